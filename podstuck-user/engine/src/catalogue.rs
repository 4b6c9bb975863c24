//! All causes that podstuck can name, and those that it only knows to be confused with them.

use crate::{
    cause::{Cause, CauseId},
    causes::FAMILIES,
    ids,
};

/// Every cause that a finding can have, in the order in which documents list them: what only says that no cause is known
/// comes last.
pub fn all() -> impl Iterator<Item = &'static Cause> + Clone {
    let of = |admissions| {
        let all = FAMILIES.iter().flat_map(|family| family.causes.iter().copied());
        all.filter(move |cause| cause.is_admission() == admissions)
    };
    of(false).chain(of(true))
}

/// A cause that is known in the field, and that podstuck does not recognise.
#[derive(Debug)]
pub struct Elsewhere {
    /// Its name.
    pub id: CauseId,
    /// What it means, in one line.
    pub title: &'static str,
}

const fn elsewhere(id: CauseId, title: &'static str) -> Elsewhere {
    Elsewhere { id, title }
}

/// Causes that some of ours are confused with, and that podstuck does not recognise.
pub static ELSEWHERE: [Elsewhere; 3] = [
    elsewhere(
        ids::CONTAINER_CLEARS_OWN_VOLUME,
        "a container tidies up its own volume, which is its right",
    ),
    elsewhere(
        ids::MOUNT_LEAKED_FOREIGN_NS_EL7,
        "on RHEL 7 (kernel 3.10, fs.may_detach_mounts=0) a mount that only another namespace has keeps its mount \
         point from being removed; podstuck needs 5.10, where that cannot be",
    ),
    elsewhere(
        ids::NFS_SILLY_RENAME,
        "NFS keeps a file that was removed while it was open, as .nfsXXXX",
    ),
];

/// The cause of this name.
pub fn find(id: &str) -> Option<&'static Cause> {
    all().find(|cause| cause.id.as_str() == id)
}

/// The name itself, also of a cause that podstuck does not recognise.
pub fn id(name: &str) -> Option<CauseId> {
    let known = ELSEWHERE.iter().map(|known| known.id).find(|id| id.as_str() == name);
    find(name).map(|cause| cause.id).or(known)
}

/// What a name means in one line, also of a cause that podstuck does not recognise.
pub fn title(id: CauseId) -> Option<&'static str> {
    let known = ELSEWHERE.iter().find(|known| known.id == id).map(|known| known.title);
    find(id.as_str()).map(|cause| cause.title).or(known)
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
