//! All causes that podstuck can name, and look-alikes that it cannot recognise.

use crate::{
    cause::{Cause, CauseId},
    causes::FAMILIES,
    ids,
};

/// All causes of findings, in the order of the documents: the admissions that no cause is known come last.
pub fn all() -> impl Iterator<Item = &'static Cause> + Clone {
    let of = |admissions| {
        let all = FAMILIES.iter().flat_map(|family| family.causes.iter().copied());
        all.filter(move |cause| cause.is_admission() == admissions)
    };
    of(false).chain(of(true))
}

/// A cause known from the field that podstuck cannot recognise.
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

/// Look-alikes of podstuck's causes that it cannot recognise.
pub static ELSEWHERE: [Elsewhere; 3] = [
    elsewhere(
        ids::CONTAINER_CLEARS_OWN_VOLUME,
        "a container removes files of its own volume, as it is allowed to",
    ),
    elsewhere(
        ids::MOUNT_LEAKED_FOREIGN_NS_EL7,
        "on RHEL 7 (kernel 3.10, fs.may_detach_mounts=0) a mount that exists only in another mount namespace \
         prevents the removal of its mount point; podstuck needs 5.10, where this cannot happen",
    ),
    elsewhere(
        ids::NFS_SILLY_RENAME,
        "NFS keeps a file that was removed while it was open, as .nfsXXXX",
    ),
];

/// Whether a cause is that a component answers with an error, so that its words are the diagnosis.
pub fn is_an_answer(id: CauseId) -> bool {
    const ANSWERS: [CauseId; 3] =
        [ids::CSI_DRIVER_ERROR, ids::CSI_DRIVER_NOT_IDEMPOTENT, ids::KUBELET_STEP_FAILS];
    ANSWERS.contains(&id)
}

/// The cause with a name.
pub fn find(id: &str) -> Option<&'static Cause> {
    all().find(|cause| cause.id.as_str() == id)
}

/// The id of a name, also of a cause that podstuck cannot recognise.
pub fn id(name: &str) -> Option<CauseId> {
    let known = ELSEWHERE.iter().map(|known| known.id).find(|id| id.as_str() == name);
    find(name).map(|cause| cause.id).or(known)
}

/// The title of a cause, also of one that podstuck cannot recognise.
pub fn title(id: CauseId) -> Option<&'static str> {
    let known = ELSEWHERE.iter().find(|known| known.id == id).map(|known| known.title);
    find(id.as_str()).map(|cause| cause.title).or(known)
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
