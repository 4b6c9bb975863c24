//! The service that a process belongs to.

use crate::{
    command::{NAME, Step},
    model::path::clip,
};

/// The service of the host's own systemd, by the control group of a process in it. A group further below, or in another
/// slice, belongs to a container, a user or a nested node, where a service of that name is another one.
pub(crate) fn of(cgroup: &str) -> Option<&str> {
    let unit = cgroup.strip_prefix("/system.slice/")?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.@:".contains(&b);
    let is_service = unit.len() > ".service".len() && unit.ends_with(".service");
    (is_service && !unit.starts_with(['-', '.']) && unit.bytes().all(is_plain)).then_some(unit)
}

pub(crate) fn restart(unit: &str) -> Step {
    Step::new(format!("restart {}", clip(unit, NAME)), format!("systemctl restart {unit}"))
}

pub(crate) fn start(unit: &str) -> Step {
    Step::new(format!("start {}", clip(unit, NAME)), format!("systemctl start {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_own_services_count() {
        assert_eq!(of("/system.slice/backup.service"), Some("backup.service"));
        assert_eq!(of("/system.slice/foo@1.service"), Some("foo@1.service"));
        for foreign in [
            "/kubepods.slice/kubepods-pod0f0e0d0c.slice/system.slice/kubelet.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service",
            "/system.slice/docker-00112233.scope/system.slice/kubelet.service",
            "/system.slice/containerd.service/kubelet.service",
            "/kubelet.service",
            "system.slice/kubelet.service",
            "/../system.slice/kubelet.service",
            "/system.slice/$(reboot).service",
            "/system.slice/a b.service",
            "/system.slice/--force.service",
            "/system.slice/.service",
            "/system.slice/kubelet.service (deleted)",
            "/system.slice/",
        ] {
            assert_eq!(of(foreign), None, "{foreign}");
        }
    }
}
