//! How kubelet ends, by its own log, by what it writes before it has one, and by systemd's.

use std::sync::LazyLock;

use regex::Regex;

use super::{
    fixed,
    go_text::quoted,
    klog_pod::{Fields, first_of},
};

/// Headlines of the errors with which kubelet ends (`os.Exit` in pkg/kubelet/kubelet.go, pkg/kubelet/server/server.go and
/// cmd/kubelet/app/server.go; since 1.23 component-base's cli/run.go for the last).
const ENDS: [&str; 14] = [
    "command failed",
    "Failed to run kubelet",
    "Failed to initialize internal modules",
    "Failed to start cAdvisor",
    "Kubelet failed to get node info",
    "Failed to start ContainerManager",
    "Failed to listen and serve",
    "Failed to parse kubelet flag",
    "Unknown command",
    "Failed to validate kubelet flags",
    "Failed to load kubelet config file",
    "Failed to validate kubelet configuration",
    "Failed to set feature gates from initial flags-based config",
    "Failed to construct kubelet dependencies",
];

/// Why kubelet ends: an error with one of these headlines, or one that klog ends the process for, which has the stacks of
/// all threads after its first line.
pub(super) fn of_end(severity: u8, message: &str) -> Option<String> {
    let first = message.lines().next()?.trim_end();
    match (severity, quoted(message)) {
        (b'F', _) => Some(first_of(first)),
        (b'E', Some((headline, fields))) if ENDS.contains(&headline.as_str()) => {
            let error = Fields(fields).find(|field| field.0 == "err");
            Some(first_of(&error.map_or(headline.clone(), |it| format!("{headline}: {}", it.1))))
        }
        _ => None,
    }
}

/// Words that cobra's command ends with, on standard error, before klog is set up: of a flag or a configuration that
/// kubelet does not take (`NewKubeletCommand`).
const REFUSES: [&str; 6] = [
    "failed to parse kubelet flag",
    "unknown command",
    "failed to set feature gates",
    "failed to validate kubelet flags",
    "failed to load kubelet config file",
    "failed to merge kubelet configs",
];

/// Why kubelet ends before it has a log.
pub(super) fn of_command(line: &str) -> Option<String> {
    let error = line.strip_prefix("Error: ")?;
    REFUSES.iter().any(|words| error.starts_with(words)).then(|| first_of(error))
}

/// How often systemd has started a service again (`service_enter_restart`, since 235).
static RESTARTS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"^\S+\.service: Scheduled restart job, restart counter is at (\d{1,18})\.$")
});

/// systemd's message that it starts a service again, and for which time.
pub(super) fn of_systemd(line: &str) -> Option<u64> {
    RESTARTS.captures(line)?[1].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_with_which_kubelet_ends_is_found_in_the_form_of_all_versions() {
        let why = "start cpu manager error: could not restore state from checkpoint: checkpoint is corrupted";
        let text = format!("Failed to start ContainerManager: {why}");
        let now = format!("\"Failed to start ContainerManager\" err={why:?}");
        assert_eq!(of_end(b'E', &now), Some(text));
        let old = format!("Failed to start ContainerManager {why}");
        let with_stacks = format!("{old}\ngoroutine 1 [running]:\nmain.main()\n");
        assert_eq!(of_end(b'F', &with_stacks), Some(old.clone()));
        assert_eq!(of_end(b'E', &old), None, "kubelet continues");
        assert_eq!(of_end(b'I', &now), None);
        assert_eq!(of_end(b'E', "\"Failed to start\" err=\"command failed\""), None);
        let plain = "failed to parse kubelet flag: unknown flag: --network-plugin";
        assert_eq!(of_command(&format!("Error: {plain}")).as_deref(), Some(plain));
        assert_eq!(of_command("Error: no such container"), None);
        let counter = "kubelet.service: Scheduled restart job, restart counter is at 712.";
        assert_eq!(of_systemd(counter), Some(712));
    }
}
