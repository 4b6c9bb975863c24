//! What keeps the probes from their work whatever the privileges: checked before anything is loaded.

use std::{fs, os::unix::fs::MetadataExt};

use thiserror::Error;

use podstuck_confine::privilege;

/// One of them, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// `bpf_probe_read_kernel` and tracefs are refused to everybody.
    #[error(
        "the kernel is locked down (lockdown=confidentiality): no program may read its memory. Boot the node \
         with lockdown=integrity"
    )]
    Confidentiality,
    /// The probes see the ids of the first namespace, and `/proc` shows those of another.
    #[error(
        "podstuck is not in the host's PID namespace: the probes name processes by their ids there. Start \
         the pod with `hostPID: true`, or the container with `--pid=host`"
    )]
    PidNamespace,
}

/// Whether there is a point in loading probes: with privileges, too.
///
/// # Errors
/// Says what is missing, or in the way.
pub fn any() -> anyhow::Result<()> {
    privilege::check()?;
    Ok(check()?)
}

/// What is in the way.
///
/// # Errors
/// Says what it is.
pub fn check() -> Result<(), Obstacle> {
    if lockdown().as_deref() == Some(CONFIDENTIALITY) {
        return Err(Obstacle::Confidentiality);
    }
    // `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
    const FIRST: u64 = 0xefff_fffc;
    let own = fs::metadata("/proc/self/ns/pid").map(|namespace| namespace.ino());
    if own.is_ok_and(|own| own != FIRST) {
        return Err(Obstacle::PidNamespace);
    }
    Ok(())
}

const CONFIDENTIALITY: &str = "confidentiality";

/// How far the kernel is locked down, as `integrity`; `None` where that cannot be read.
pub fn lockdown() -> Option<String> {
    chosen(&fs::read_to_string("/sys/kernel/security/lockdown").ok()?)
}

/// The one in brackets.
fn chosen(levels: &str) -> Option<String> {
    let (_, rest) = levels.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// What the verifier says of a program where securityfs, which tells of it before, is not mounted.
pub(super) fn is_confidentiality(verifier_log: &str) -> bool {
    let refused = |line: &str| {
        // Since Linux 6.11, and before.
        (line.contains("cannot use helper") || line.contains("unknown func"))
            && line.contains("bpf_probe_read_kernel")
    };
    verifier_log.lines().any(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_one_in_brackets() {
        assert_eq!(chosen("none integrity [confidentiality]\n").as_deref(), Some(CONFIDENTIALITY));
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen("").as_deref(), None);
    }

    #[test]
    fn a_locked_down_kernel_is_known_by_what_it_refuses() {
        assert!(is_confidentiality(
            "12: (85) call bpf_probe_read_kernel#113\nunknown func bpf_probe_read_kernel#113"
        ));
        assert!(is_confidentiality(
            "program of this type cannot use helper bpf_probe_read_kernel#113"
        ));
        assert!(!is_confidentiality("unknown func bpf_get_current_task_btf#158"));
        assert!(!is_confidentiality(
            "12: (85) call bpf_probe_read_kernel#113\nR1 invalid mem access"
        ));
    }
}
