//! System calls and their outcomes, with the names that reports use.

use nix::errno::Errno;
use podstuck_common::record::call;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

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

impl Outcome {
    /// The call succeeded.
    pub const OK: Self = Self(0);

    /// The errno; `None` after a success.
    pub fn errno(self) -> Option<Errno> {
        (self.0 != 0).then(|| Errno::from_raw(i32::from(self.0)))
    }

    /// Whether the outcome is this errno.
    pub fn is(self, errno: Errno) -> bool {
        i32::from(self.0) == errno as i32
    }

    /// `ok`, `EBUSY`, or `errno 530` for an errno without a name.
    pub fn name(self) -> String {
        match self.errno() {
            None => "ok".into(),
            Some(Errno::UnknownErrno) => format!("errno {}", self.0),
            Some(errno) => format!("{errno:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
