//! System calls and their outcomes, with the names that reports use.

use std::sync::LazyLock;

use podstuck_common::record::call;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::errno::Errno;

/// A system call that deletes or unmounts. `unlinkat` with `AT_REMOVEDIR` is a call of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `umount2(2)`
    Umount2,
    /// `unlink(2)`
    Unlink,
    /// `unlinkat(2)` without `AT_REMOVEDIR`
    Unlinkat,
    /// `unlinkat(2)` with `AT_REMOVEDIR`
    UnlinkatDir,
    /// `rmdir(2)`
    Rmdir,
}

impl Call {
    /// All calls, in the order of their codes.
    pub const ALL: [Self; call::COUNT] =
        [Self::Umount2, Self::Unlink, Self::Unlinkat, Self::UnlinkatDir, Self::Rmdir];

    /// The call of a record's code; `None` for an unknown code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The name in reports, such as `unlinkat+AT_REMOVEDIR`.
    pub const fn name(self) -> &'static str {
        call::NAMES[self as usize]
    }

    /// Whether it removes directories only.
    pub const fn removes_directory(self) -> bool {
        matches!(self, Self::UnlinkatDir | Self::Rmdir)
    }
}

impl Serialize for Call {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Call {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = Self::ALL.into_iter().find(|call| call.name() == name);
        known.ok_or_else(|| D::Error::custom(format!("no call is named {name}")))
    }
}

/// The outcome of a call: 0 for success, else its errno.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Outcome(pub u16);

/// The errors whose text says what failed, wherever it stands in a message.
const READ: [Errno; 33] = [
    Errno::EPERM,
    Errno::ENOENT,
    Errno::EINTR,
    Errno::EIO,
    Errno::ENXIO,
    Errno::EBADF,
    Errno::EAGAIN,
    Errno::ENOMEM,
    Errno::EACCES,
    Errno::EBUSY,
    Errno::EEXIST,
    Errno::ENODEV,
    Errno::ENOTDIR,
    Errno::EISDIR,
    Errno::EINVAL,
    Errno::ENFILE,
    Errno::EMFILE,
    Errno::EFBIG,
    Errno::ENOSPC,
    Errno::EROFS,
    Errno::ENAMETOOLONG,
    Errno::ENOTEMPTY,
    Errno::ELOOP,
    Errno::EOPNOTSUPP,
    Errno::ESHUTDOWN,
    Errno::ENOTCONN,
    Errno::ETIMEDOUT,
    Errno::ECONNREFUSED,
    Errno::EHOSTDOWN,
    Errno::EHOSTUNREACH,
    Errno::ESTALE,
    Errno::EUCLEAN,
    Errno::EDQUOT,
];

/// The texts of these errors in small letters, and an old one.
static TEXTS: LazyLock<Vec<(Errno, String)>> = LazyLock::new(|| {
    let texts = READ.into_iter().map(|errno| (errno, errno.words().to_ascii_lowercase()));
    texts.chain([(Errno::ESTALE, "stale nfs file handle".into())]).collect()
});

impl Outcome {
    /// The call succeeded.
    pub const OK: Self = Self(0);

    /// The error of a call that these words of strerror(3) name.
    pub fn of_words(words: &str) -> Option<Self> {
        let (errno, _) = TEXTS.iter().find(|(_, is)| words.eq_ignore_ascii_case(is))?;
        Some(Self::from(*errno))
    }

    /// The last error of a call that a text names: a message has what was tried first, and why it failed last.
    pub fn named_in(text: &str) -> Option<Self> {
        Self::last_in(text).map(|(_, outcome)| outcome)
    }

    /// The same, after the place in the text at which its words begin.
    pub fn last_in(text: &str) -> Option<(usize, Self)> {
        let text = text.to_ascii_lowercase();
        let found = TEXTS.iter().filter_map(|(errno, words)| {
            let begin = text.rfind(words)?;
            Some((begin + words.len(), begin, *errno))
        });
        found.max_by_key(|(end, ..)| *end).map(|(_, begin, errno)| (begin, Self::from(errno)))
    }

    /// The errno; `None` after a success.
    pub fn errno(self) -> Option<Errno> {
        (self.0 != 0).then(|| Errno::from_raw(self.0))
    }

    /// Whether the outcome is this errno.
    pub fn is(self, errno: Errno) -> bool {
        self.0 == errno as u16
    }

    /// `ok`, `EBUSY`, or `errno 530` for an errno without a name.
    pub fn name(self) -> String {
        match self.errno() {
            None => "ok".into(),
            Some(Errno::Unnamed) => format!("errno {}", self.0),
            Some(errno) => format!("{errno:?}"),
        }
    }
}

impl From<Errno> for Outcome {
    fn from(errno: Errno) -> Self {
        Self(errno as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_from_its_words() {
        assert_eq!(Outcome::of_words("Stale file handle"), Some(Errno::ESTALE.into()));
        assert_eq!(Outcome::of_words("stale"), None);
        let both = "no such file or directory; unlinkat /a: device or resource busy";
        assert_eq!(Outcome::named_in(both), Some(Errno::EBUSY.into()));
        assert_eq!(
            Outcome::named_in("open /a: Too many open files in system"),
            Some(Errno::ENFILE.into())
        );
        assert_eq!(Outcome::named_in("unable to parse quantity's suffix"), None);
    }

    #[test]
    fn names_follow_the_codes() {
        assert_eq!(Call::from_code(call::UMOUNT2), Some(Call::Umount2));
        assert_eq!(
            Call::from_code(call::UNLINKAT_DIR).map(Call::name),
            Some("unlinkat+AT_REMOVEDIR")
        );
        assert_eq!(Call::from_code(5), None);
    }

    #[test]
    fn an_outcome_has_a_name_even_without_one() {
        assert_eq!(Outcome(16).name(), "EBUSY");
        assert_eq!(Outcome::OK.name(), "ok");
        assert_eq!(Outcome(530).name(), "errno 530");
    }
}
