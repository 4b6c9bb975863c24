//! Holders in evidence and remedies.

use std::collections::BTreeSet;

use crate::{
    command::kill,
    model::{
        holder::{Holder, How, Through},
        path::{safe, safe_path, shell_word},
    },
};

/// Who holds what how, in a sentence.
pub(crate) fn describe(holder: &Holder) -> String {
    let object = safe_path(&holder.object.0);
    if holder.how == How::NestedMount {
        return format!("{object} is mounted on it");
    }
    let mut text = format!("{}{} {}: {object}", holder.who(), place(holder), holder.how.phrase());
    if holder.count > 1 {
        text.push_str(&format!(" and {} more", holder.count - 1));
    }
    let mount = &holder.mount;
    if let Some(namespace) = mount.namespace {
        let point = safe_path(&mount.point.0);
        text.push_str(&format!("; mount {} at {point} in mount namespace {namespace}", mount.id));
    } else {
        text.push_str(&format!("; mount {}, which is in no namespace any more", mount.id));
    }
    if holder.through == Through::PropagatedCopy {
        text.push_str(", a copy that receives the unmount");
    }
    if !holder.exact {
        text.push_str(" (by the text of its path)");
    }
    text
}

/// ` of pod shop/cart-0`, ` of /system.slice/backup.service`
fn place(holder: &Holder) -> String {
    match (&holder.pod, &holder.cgroup) {
        (Some(pod), _) => match (&pod.namespace, &pod.name) {
            (Some(namespace), Some(name)) => format!(" of pod {namespace}/{name}"),
            _ => format!(" of pod {}", pod.uid),
        },
        (None, Some(cgroup)) if cgroup != "/" => format!(" of {}", safe(cgroup.as_bytes())),
        _ => String::new(),
    }
}

/// Commands that make the holders let go, each once, and their risks.
pub(crate) fn release(holders: &[&Holder]) -> Vec<(String, String)> {
    let mut known = BTreeSet::new();
    let all = holders.iter().map(|holder| one(holder));
    all.filter(|(command, _)| known.insert(command.clone())).take(4).collect()
}

fn one(holder: &Holder) -> (String, String) {
    let object = shell_word(&holder.object.0);
    match (holder.how, holder.pid) {
        (How::Swap, _) => (
            format!("swapoff {object}"),
            "reads all that was swapped there back into memory: fails, or makes the node kill \
             processes, where there is too little"
                .into(),
        ),
        (How::Loop, _) => {
            let device = holder.source.split('/').find(|name| name.starts_with("loop"));
            (
                format!("losetup -d /dev/{}", device.unwrap_or("loopN")),
                "what is mounted from the loop device must be unmounted first".into(),
            )
        }
        (How::NfsExport, _) => (
            format!("exportfs -u '*':{object}"),
            "its NFS clients lose it; name the client as `exportfs -v` shows it".into(),
        ),
        (_, Some(pid)) => process(holder, pid),
        (_, None) => {
            ("cat /proc/self/mountinfo".into(), "none; shows what is mounted there".into())
        }
    }
}

fn process(holder: &Holder, pid: u32) -> (String, String) {
    if let Some(pod) = &holder.pod
        && let (Some(namespace), Some(name)) = (&pod.namespace, &pod.name)
    {
        return (
            format!(
                "kubectl --namespace {} delete pod {}",
                shell_word(namespace.as_ref()),
                shell_word(name.as_ref())
            ),
            "its controller starts it again; what it does on this node pauses meanwhile. For good: \
             leave kubelet's directory out of its hostPath volumes"
                .into(),
        );
    }
    let unit = holder.cgroup.as_deref().and_then(|group| group.rsplit('/').next());
    if let Some(unit) = unit.filter(|unit| unit.ends_with(".service") && is_plain(unit)) {
        return (format!("systemctl restart {unit}"), "interrupts that service".into());
    }
    (kill("kill", pid, holder.started), format!("ends {}: ask its owner first", holder.who()))
}

fn is_plain(unit: &str) -> bool {
    unit.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@:".contains(&b))
        && !unit.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::holder;

    #[test]
    fn the_gentlest_way_is_offered() {
        let of = |holder: &Holder| release(&[holder])[0].0.clone();
        let mut one = holder(How::Cwd, Through::Itself, Some(true));
        assert_eq!(of(&one), "kill 77");
        one.cgroup = Some("/system.slice/backup.service".into());
        assert_eq!(of(&one), "systemctl restart backup.service");
        one.cgroup = Some("/system.slice/$(reboot).service".into());
        assert_eq!(of(&one), "kill 77");
        one.started = Some(99);
        assert!(of(&one).ends_with(" = 99 ] && kill 77"), "{}", of(&one));
        one.how = How::Swap;
        one.object.0 = "/v/swap file".into();
        assert_eq!(of(&one), "swapoff $'/v/swap file'");
        let same = holder(How::Fd, Through::Itself, Some(true));
        assert_eq!(release(&[&same, &same]).len(), 1);
    }

    #[test]
    fn a_holder_is_told_with_its_mount() {
        let text = describe(&holder(How::Fd, Through::PropagatedCopy, Some(true)));
        assert_eq!(
            text,
            "backup (pid 77) has it open: /v/x; mount 9 at /v in mount namespace 5, a copy that \
             receives the unmount"
        );
    }
}
