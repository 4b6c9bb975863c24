//! SELinux in enforcing mode: its policy may refuse root's probes, too. Debian's policy allows no domain the events
//! of tracepoints (`perf_event { tracepoint }`), and allows `fentry` and kprobes.

use std::{fs, io};

use nix::errno::Errno;

use podstuck_model::path::safe;

/// The context of this process, where SELinux enforces its policy; `None` where it does not, or selinuxfs is not
/// mounted.
pub fn enforced() -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).ok();
    enforced_by(&read("/sys/fs/selinux/enforce")?, &read("/proc/self/attr/current")?)
}

fn enforced_by(enforce: &str, context: &str) -> Option<String> {
    let context = context.trim_end_matches(['\0', '\n']);
    (enforce.trim() == "1").then(|| safe(context.as_bytes()).into_owned())
}

/// Adds the SELinux context to an error that its policy may have caused.
pub(super) fn explain(error: anyhow::Error) -> anyhow::Error {
    let is_refusal = |cause: &io::Error| cause.raw_os_error() == Some(Errno::EACCES as i32);
    let refused = error.chain().filter_map(|cause| cause.downcast_ref()).any(is_refusal);
    match enforced().filter(|_| refused) {
        Some(context) => error.context(format!(
            "SELinux enforces a policy that does not allow it to {context} (look for `avc: denied` in the \
             audit log or the kernel log)"
        )),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_reported_where_it_is_enforced() {
        let context = "system_u:system_r:unconfined_t:s0\0";
        assert_eq!(enforced_by("1", context).as_deref(), Some("system_u:system_r:unconfined_t:s0"));
        assert_eq!(enforced_by("0", context), None);
    }
}
