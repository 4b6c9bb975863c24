//! Kinds of questions, by what may keep their answers waiting.

use crate::degraded::Feed;

/// A kind. Each has turns of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One object, by its inode: a helper that takes milliseconds.
    Inode,
    /// What `/proc` and `/sys` say: no helper.
    Tables,
    /// A directory, the mounts below it, sockets: a helper that may have to read much.
    Places,
    /// A whole tree, which may take seconds.
    Trees,
    /// Who holds what: all processes.
    Holders,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Inode, Self::Tables, Self::Places, Self::Trees, Self::Holders];

    /// Looks at a time. All but those of [`Self::Tables`] are a process each, of the few that there may be
    /// (`MOST` of the fork server); one search answers all.
    pub const fn turns(self) -> usize {
        match self {
            Self::Tables => 4,
            Self::Inode | Self::Places | Self::Trees => 2,
            Self::Holders => 1,
        }
    }

    /// What is missing without it.
    pub const fn feed(self) -> Feed {
        match self {
            Self::Holders => Feed::Holders,
            _ => Feed::Objects,
        }
    }
}
