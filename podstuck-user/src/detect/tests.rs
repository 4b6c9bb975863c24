//! What all detectors together make of a healthy removal, and of a stuck one.

use std::sync::Arc;

use nix::errno::Errno;
use podstuck_common::record::reason;

use super::{
    sample::{actor, failed},
    *,
};
use crate::model::call::Outcome;

#[test]
fn the_noise_of_a_healthy_removal_opens_no_case() {
    let mut detectors = Detectors::default();
    for (call, errno) in [
        (Call::Unlinkat, Errno::EISDIR),
        (Call::UnlinkatDir, Errno::ENOTEMPTY),
        (Call::Unlinkat, Errno::ENOENT),
        (Call::UnlinkatDir, Errno::ENOENT),
        (Call::Umount2, Errno::EINVAL),
        (Call::Umount2, Errno::ENOENT),
    ] {
        for second in 0..100 {
            // Each removal begins with one such failure for each directory.
            let op = failed(call, errno, &format!("x{second}"), f64::from(second));
            let (cases, verdicts) = detectors.observe(&op);
            assert!(cases.is_empty() && verdicts.is_empty(), "{call:?} {errno:?}");
        }
    }
}

#[test]
fn a_container_may_delete_through_its_own_mounts() {
    let mut op = failed(Call::Unlinkat, Errno::EPERM, "m/x", 1.0);
    op.outcome = Outcome::OK;
    op.reason = reason::CROSSED;
    op.mount_depth = 1;
    assert_eq!(Detectors::default().observe(&op).0.len(), 1);
    op.actor = Arc::new(actor(Component::Workload));
    assert!(Detectors::default().observe(&op).0.is_empty());
}

#[test]
fn a_mount_that_was_deleted_through_is_not_told_again_as_busy() {
    let mut detectors = Detectors::default();
    let mut crossed = failed(Call::Unlinkat, Errno::EPERM, "m/x", 1.0);
    crossed.outcome = Outcome::OK;
    crossed.reason = reason::CROSSED;
    crossed.mount_depth = 1;
    detectors.observe(&crossed);
    let busy = failed(Call::UnlinkatDir, Errno::EBUSY, "m", 2.0);
    assert!(detectors.observe(&busy).0.is_empty());
}

#[test]
fn one_busy_removal_is_not_yet_a_cause_two_attempts_are() {
    let mut detectors = Detectors::default();
    let mut verdicts = Vec::new();
    for second in [1.0, 1.5] {
        let op = failed(Call::UnlinkatDir, Errno::EBUSY, "m", second);
        let (cases, _) = detectors.observe(&op);
        verdicts.push(detectors.conclude(&cases[0], Facts::Mounts(None)).len());
    }
    assert_eq!(verdicts, [0, 1]);
}
