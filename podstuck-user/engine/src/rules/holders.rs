//! Holders in evidence and remedies.

use std::collections::BTreeSet;

use crate::{
    command::{Step, View, has_ended, kill},
    model::{
        evidence::Source,
        holder::{Holder, How, Through},
        identity::Component,
        path::{safe, safe_path, shell_word},
        remedy::Remedy,
    },
    verdict::Draft,
};

/// Facts and remedies for so many holders.
pub(crate) const TOLD: usize = 8;

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

/// A fact for each of the first few, and how many more there are.
pub(crate) fn tell(draft: &mut Draft, holders: &[&Holder]) {
    for holder in holders.iter().take(TOLD) {
        draft.fact(describe(holder), Source::proc(&holder.source));
    }
    if holders.len() > TOLD {
        draft.fact(format!("and {} more", holders.len() - TOLD), Source::proc("/proc"));
    }
}

/// The ways out: what is mounted on it is unmounted, the deepest first, and its users let go.
pub(crate) fn free(draft: &mut Draft, view: View, nested: &[&Holder], users: &[&Holder]) {
    for holder in nested.iter().rev().take(TOLD) {
        let umount = view.on_mount("umount", &holder.object.0, holder.nested);
        draft.remedy(umount, "low if whoever mounted it has ended: check first");
    }
    draft.remedies.extend(release(view, users));
}

/// What makes the holders let go, each once; files are as somebody with that view has them.
pub(crate) fn release(view: View, holders: &[&Holder]) -> Vec<Remedy> {
    let mut known = BTreeSet::new();
    let all = holders.iter().map(|holder| one(view, holder));
    let new = |remedy: &Remedy| known.insert((remedy.command.clone(), remedy.advice.clone()));
    all.filter(new).take(4).collect()
}

fn one(view: View, holder: &Holder) -> Remedy {
    let object = shell_word(&holder.object.0);
    match (holder.how, holder.pid) {
        (How::Swap, _) => Step::from(view.on_object("swapoff", &holder.object.0))
            .verified_by(format!("! grep -qF -- {object} /proc/swaps"))
            .remedy(
                "reads all that was swapped there back into memory: fails, or makes the node kill \
                 processes, where there is too little",
            ),
        (How::Loop, _) => {
            let device = holder.source.split('/').find(|name| name.starts_with("loop"));
            let device = device.unwrap_or("loopN");
            Step::from(format!("losetup -d /dev/{device}"))
                .verified_by(format!("! [ -e /sys/block/{device}/loop ]"))
                .remedy("what is mounted from the loop device must be unmounted first")
        }
        (How::NfsExport, _) => Remedy::command(
            format!("exportfs -u '*':{object}"),
            "its NFS clients lose it; name the client as `exportfs -v` shows it",
        ),
        (_, Some(pid)) => process(holder, pid),
        (_, None) => {
            Remedy::command("cat /proc/self/mountinfo", "none; shows what is mounted there")
        }
    }
}

fn process(holder: &Holder, pid: u32) -> Remedy {
    let named = holder.pod.as_ref().and_then(|pod| pod.namespace.as_ref().zip(pod.name.as_ref()));
    if let Some((namespace, name)) = named {
        let (namespace, name) = (shell_word(namespace.as_ref()), shell_word(name.as_ref()));
        if holder.component == Some(Component::CsiDriver) {
            let mut remedy = Remedy::advice(
                format!(
                    "restart the storage pod {namespace}/{name} only after the pods on this node that use \
                     its volumes are gone, or if its own manual says that they survive it"
                ),
                "a storage pod that serves its volumes (FUSE, NFS) takes them from every pod that uses them",
            );
            remedy.affects("every volume on this node that this driver serves");
            return remedy;
        }
        let mut remedy = Remedy::command(
            format!("kubectl --namespace {namespace} delete pod {name}"),
            "its controller starts it again; what it does on this node pauses meanwhile. For good: \
             leave kubelet's directory out of its hostPath volumes",
        );
        remedy.affects(format!("pod {namespace}/{name}"));
        remedy.verify = Some(has_ended(pid));
        return remedy;
    }
    let unit = holder.cgroup.as_deref().and_then(|group| group.rsplit('/').next());
    if let Some(unit) = unit.filter(|unit| unit.ends_with(".service") && is_plain(unit)) {
        let mut remedy =
            Remedy::command(format!("systemctl restart {unit}"), "interrupts that service");
        remedy.affects(format!("the service {unit}"));
        remedy.verify = Some(has_ended(pid));
        return remedy;
    }
    let risk = format!("ends {}: ask its owner first", holder.who());
    kill("kill", pid, holder.started).remedy(risk)
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
        let of =
            |holder: &Holder| release(View::OURS, &[holder])[0].command.clone().unwrap_or_default();
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
        assert_eq!(of(&one), "swapoff '/v/swap file'");
        let same = holder(How::Fd, Through::Itself, Some(true));
        assert_eq!(release(View::OURS, &[&same, &same]).len(), 1);
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
