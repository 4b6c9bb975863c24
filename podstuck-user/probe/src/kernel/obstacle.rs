//! Conditions that keep the probes from working with any privileges: checked before anything is loaded.

use std::{fs, os::unix::fs::MetadataExt};

use thiserror::Error;

use podstuck_confine::privilege;

/// An obstacle, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// The kernel refuses `bpf_probe_read_kernel` and tracefs to every process.
    #[error(
        "the kernel is locked down (lockdown=confidentiality): no program may read its memory. Boot the node \
         with lockdown=integrity"
    )]
    Confidentiality,
    /// The probes see the process ids of the initial namespace, and `/proc` shows those of another.
    #[error(
        "podstuck is not in the host's PID namespace: the probes report process ids of that namespace. \
         Start the pod with `hostPID: true`, or the container with `--pid=host`"
    )]
    PidNamespace,
}

/// Whether probes can be loaded: checks privileges, too.
///
/// # Errors
/// Fails with what is missing, or in the way.
pub fn any() -> anyhow::Result<()> {
    privilege::check()?;
    Ok(check()?)
}

/// Checks for obstacles.
///
/// # Errors
/// Fails with the obstacle.
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

/// The kernel's lockdown level, as `integrity`; `None` when it cannot be read.
pub fn lockdown() -> Option<String> {
    chosen(&fs::read_to_string("/sys/kernel/security/lockdown").ok()?)
}

/// The level in brackets.
fn chosen(levels: &str) -> Option<String> {
    let (_, rest) = levels.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Whether the verifier's log shows lockdown: for kernels without a mounted securityfs, which would show it before.
pub(super) fn is_confidentiality(verifier_log: &str) -> bool {
    let refused = |line: &str| {
        // The message since Linux 6.11, and the one before.
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
