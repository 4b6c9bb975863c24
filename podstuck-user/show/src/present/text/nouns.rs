//! Pods, volumes and processes by name, made safe for a terminal.

use podstuck_model::{
    identity::{Actor, Component, Pod, Volume},
    path::{JsonPath, safe},
};

pub(crate) fn text(text: &str) -> String {
    safe(text.as_bytes()).into_owned()
}

pub(crate) fn path(path: &JsonPath) -> String {
    let (text, _) = path.parts();
    if text.is_empty() { "(path unknown)".into() } else { text.into_owned() }
}

/// `shop/cart-0`, or the UID when only that is known.
pub(crate) fn pod_short(pod: &Pod) -> String {
    match (&pod.namespace, &pod.name) {
        (Some(namespace), Some(name)) => format!("{}/{}", text(namespace), text(name)),
        _ => format!("uid {}", text(&pod.uid)),
    }
}

/// `shop/cart-0 (uid …)`.
pub(crate) fn pod(pod: &Pod) -> String {
    match (&pod.namespace, &pod.name) {
        (Some(_), Some(_)) => format!("{} (uid {})", pod_short(pod), text(&pod.uid)),
        _ => format!("{} (name unknown)", pod_short(pod)),
    }
}

/// `web (id 3f…)`, or the id when only that is known.
pub(crate) fn container(id: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{} (id {})", text(name), text(id)),
        None => text(id),
    }
}

/// `data (kubernetes.io/csi)`.
pub(crate) fn volume(volume: &Volume) -> String {
    format!("{} ({})", text(&volume.name), text(&volume.plugin))
}

/// `umount (pid 812, umount-helper), started by kubelet (pid 700), in pod …`.
pub(crate) fn actor(actor: &Actor) -> String {
    let mut out = format!("{} (pid {}", text(&actor.comm), actor.pid);
    if actor.component != Component::Other {
        out.push_str(&format!(", {}", actor.component.name()));
    }
    out.push(')');
    if let Some(parent) = &actor.parent {
        out.push_str(&format!(", started by {} (pid {})", text(&parent.comm), parent.pid));
    }
    match (&actor.pod, &actor.cgroup) {
        (Some(pod), _) => out.push_str(&format!(", in pod {}", pod_short(pod))),
        (None, Some(cgroup)) => out.push_str(&format!(", in cgroup {}", text(cgroup))),
        (None, None) => {}
    }
    out
}
