//! The helper process: looks at what may lie on a dead file system, or behind a lock that is never
//! given back, for as long as that takes. `stat` on a hung NFS or FUSE mount never returns, and a
//! thread in it cannot be killed; a process can at least be left behind.
//!
//! The helper is a process of the fork server. It reads one request, a line of JSON, and writes [`Message`]s, one a line: what it is about to do, parts of the answer, and last the answer.
//! So whoever waits knows where it hangs, and has what was found before. One client ([`client`])
//! serves threads and, through a thread, asynchronous tasks; it also bounds how many helpers may hang.

mod client;
mod each;
mod left_behind;
mod serve;
mod share;

use std::{ffi::OsString, fmt::Debug, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use client::{Failure, LIMIT, ask, ask_in_parts, degraded, is_hanging};
pub use each::ask_each;
pub use serve::{Teller, answer, serve, serve_through};
pub use share::{Share, ask_for};

use podstuck_model::degraded::Feed;

use crate::{alive::Occasion, role::Role};

/// By what a request says which question it is. The room with the list of all questions names them.
pub trait Named {
    /// No other question has it.
    const NAME: &'static str;
}

/// What the helper can be asked, with both sides of it.
pub trait Question: Named + Serialize {
    /// What bounds how many helpers may hang over it.
    const BUDGET: Budget = Budget::Events;
    /// What is made of the answers, and is missing while a helper hangs; nothing where whoever asks says so
    /// himself, or where no finding is made of them.
    const FEEDS: Option<Feed> = None;
    /// What the helper may do.
    const ROLE: Role = Role::Helper;
    /// Whether it takes a few milliseconds of CPU time, whatever it meets: it does not give way to others, since somebody
    /// waits for it.
    const IS_SHORT: bool = false;
    /// Something that it does and that may never end.
    type Step: Debug + Serialize + DeserializeOwned;
    /// What is told as soon as it is known.
    type Part: Serialize + DeserializeOwned;
    /// What is told in the end.
    type Answer: Serialize + DeserializeOwned;

    /// What lives if the question is asked: it is asked because a call has returned from there.
    const OCCASION: Occasion = Occasion::Unknown;

    /// The path that it enters, and the process as which; `None` where it enters several.
    fn enters(&self) -> Option<(u32, &Path)> {
        None
    }

    /// What it looks at, for whoever hears that it hangs; empty where its steps say so.
    fn place(&self) -> OsString {
        self.enters().map(|(_, path)| path.into()).unwrap_or_default()
    }

    /// The helper's side.
    ///
    /// # Errors
    /// Fails when the file system answers with an error, or when nobody listens any more.
    fn answer(self, tell: &mut Teller<Self::Step, Self::Part>) -> Result<Self::Answer>;
}

/// Helpers that hang are counted by what they are for. While as many hang as may, no other one is
/// risked: each keeps a reference to the path that it looks at. What is asked again and again has a
/// budget of its own, so that one hung disk leaves the other questions alone. Within a budget each pod has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Questions that a failed or hung call raises.
    Events,
    /// Searches for holders. Each may leave several behind before it knows what hangs.
    Holders,
    /// The pods' directories, in every sample.
    Pods,
    /// Logs. Many lie on one disk, and those of kubelet, of runtimes and of drivers are read by one helper each.
    Logs,
    /// The directories of pods' logs, whenever a pod has no name, and kubelet's before a run begins.
    Names,
    /// How full file systems are, in every few samples.
    Space,
    /// Where kubelets and runtimes keep their things, again and again.
    Roots,
    /// What runtimes keep of their containers, in every sample.
    Containers,
}

impl Budget {
    const ALL: [Self; 8] = [
        Self::Events,
        Self::Holders,
        Self::Pods,
        Self::Logs,
        Self::Names,
        Self::Space,
        Self::Roots,
        Self::Containers,
    ];

    /// What is missing while as many hang as may.
    const fn feeds(self) -> &'static [Feed] {
        match self {
            Self::Events => &[Feed::Objects],
            Self::Logs => &[Feed::Logs],
            Self::Holders => &[Feed::Holders],
            Self::Pods | Self::Containers => &[Feed::Node],
            Self::Space => &[Feed::Space],
            // A pod without a name is found all the same; what was shown once, the probes know.
            Self::Names | Self::Roots => &[],
        }
    }

    /// What those do that are counted together.
    const fn work(self) -> &'static str {
        match self {
            Self::Events => "look at objects",
            Self::Logs => "read logs",
            Self::Holders => "search for holders",
            Self::Pods => "read the pods' directories",
            Self::Names => "read directories that name pods",
            Self::Space => "ask how full file systems are",
            Self::Roots => "look where pods and containers are kept",
            Self::Containers => "read what runtimes keep of containers",
        }
    }

    const fn hung_max(self) -> usize {
        match self {
            Self::Events => 6,
            Self::Logs | Self::Pods => 4,
            Self::Holders => 8,
            Self::Names | Self::Space | Self::Roots | Self::Containers => 3,
        }
    }
}

/// One line of the helper's output.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message<S, P, A> {
    /// This is what it does next.
    At(S),
    /// A part of the answer.
    Part(P),
    /// The last one.
    Answer(Result<A, Refusal>),
}

/// Why there is no answer, in a sentence.
#[derive(Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// What was to be entered does not live.
    NotEntered(String),
    /// It was tried, and failed.
    Failed(String),
}

/// What a helper does not enter that learns only by itself where it is to look, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotEntered(pub String);

#[cfg(test)]
mod testing {
    //! Questions that nobody asks.

    use super::*;

    /// About an object, as after each failed call.
    #[derive(Serialize)]
    pub(super) struct Short;

    impl Named for Short {
        const NAME: &'static str = "Short";
    }

    impl Question for Short {
        const FEEDS: Option<Feed> = Some(Feed::Objects);
        const IS_SHORT: bool = true;
        type Step = ();
        type Part = ();
        type Answer = ();

        fn answer(self, _: &mut Teller<(), ()>) -> Result<()> {
            Ok(())
        }
    }

    /// With steps.
    #[derive(Serialize)]
    pub(super) struct Long;

    impl Named for Long {
        const NAME: &'static str = "Long";
    }

    impl Question for Long {
        const BUDGET: Budget = Budget::Space;
        type Step = std::path::PathBuf;
        type Part = ();
        type Answer = ();

        fn answer(self, _: &mut Teller<Self::Step, ()>) -> Result<()> {
            Ok(())
        }
    }
}
