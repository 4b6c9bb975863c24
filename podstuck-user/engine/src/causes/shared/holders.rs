//! Evidence and remedies about the holders of a mount or file.

use std::{collections::BTreeSet, path::Path};

use crate::{
    causes::shared::unit,
    command::{NAME, Process, Step, View, has_ended, if_same, kill},
    model::{
        chain::Who,
        evidence::Source,
        holder::{Holder, How, Snapshot, Through},
        identity::{Component, Pod, Target},
        path::{clip, safe, safe_path},
        remedy::Remedy,
        shell::{is_object_name, word},
    },
    verdict::Draft,
};

/// Holders named in facts and remedies.
pub(crate) const NAMED: usize = 8;

/// The holders in a snapshot that explain the failure. kubelet is excluded: it reads its volumes at intervals, and is
/// the one that unmounts them.
pub(crate) fn culprits(taken: &Snapshot) -> impl Iterator<Item = &Holder> {
    taken.culprits().filter(|h| h.component != Some(Component::Kubelet))
}

/// Adds that the holders of an object could not be listed.
pub(crate) fn not_listed(draft: &mut Draft, object: &str, why: &str) {
    let fact = format!("the holders of {object} could not be examined: {why}");
    draft.fact(fact, Source::proc("/proc"));
}

/// Adds what a search for holders could not read.
pub(crate) fn tell_unseen(draft: &mut Draft, taken: &Snapshot) {
    for unseen in &taken.unseen {
        draft.fact(format!("not examined: {unseen}"), Source::proc("/proc"));
    }
}

/// Holder, kind of use, object and mount in a sentence.
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
        let from = mount.detached.as_ref().map(|it| format!(" of {}", it.describe()));
        let from = from.unwrap_or_default();
        text.push_str(&format!(
            "; mount {}{from}, which is no longer in any mount namespace",
            mount.id
        ));
    }
    if holder.through == Through::PropagatedCopy {
        text.push_str(", a copy that receives the unmount");
    }
    if !holder.exact {
        text.push_str(" (compared by the text of its path only)");
    }
    text
}

/// The pod or control group of a holder: ` of pod shop/cart-0`, ` of /system.slice/backup.service`.
pub(crate) fn place(holder: &Holder) -> String {
    match (&holder.pod, &holder.cgroup) {
        (Some(pod), _) => match (&pod.namespace, &pod.name) {
            (Some(namespace), Some(name)) => format!(" of pod {namespace}/{name}"),
            _ => format!(" of pod {}", pod.uid),
        },
        (None, Some(cgroup)) if cgroup != "/" => format!(" of {}", safe(cgroup.as_bytes())),
        _ => String::new(),
    }
}

/// Adds a fact for each of the first holders, and the number of the rest.
pub(crate) fn tell(draft: &mut Draft, holders: &[&Holder]) {
    if let Some(first) = holders.first() {
        let more = match holders.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let who = match first.how {
            How::NestedMount => Who::object(describe(first)),
            _ => first.who().and(&place(first)),
        };
        draft.held_by(who.and(&more));
    }
    for holder in holders.iter().take(NAMED) {
        draft.fact(describe(holder), Source::proc(&holder.source));
    }
    if holders.len() > NAMED {
        draft.fact(format!("and {} more", holders.len() - NAMED), Source::proc("/proc"));
    }
}

/// A mount below the source of a bind mount is in both, and the unmount propagates in both directions.
const NESTED_RISK: &str = "low if the process that mounted it has ended: check first. Where it was mounted on the node below the \
    volume's source, as below a hostPath or the path of a local volume, it is unmounted there, too";

/// Adds the remedies: unmount nested mounts, the deepest first, then release the users.
pub(crate) fn free(draft: &mut Draft, view: View, nested: &[&Holder], users: &[&Holder]) {
    for holder in nested.iter().rev().take(NAMED) {
        let what = kept(draft);
        let umount = view
            .on_mount("umount", &holder.object.0, holder.nested)
            .so(&format!(", which keeps {what} busy"));
        draft.remedy(umount, NESTED_RISK);
    }
    draft.remedies.extend(release(view, users, kept(draft)));
}

/// The object that a holder keeps busy, as words.
fn kept(draft: &Draft) -> &'static str {
    match &*draft.target {
        Target { volume: Some(_), .. } => "the volume",
        Target { container: Some(_), .. } => "the container's files",
        _ => "it",
    }
}

/// All users of the file system, through any of its mounts.
pub(crate) fn who_else(taken: &Snapshot) -> Vec<String> {
    let who = |holder: &Holder| {
        let point = safe_path(&holder.mount.point.0);
        match (holder.how, holder.mount.namespace) {
            (How::NestedMount, _) => describe(holder),
            (How::Mount, Some(namespace)) => format!(
                "{}{}, by the mount at {point} in mount namespace {namespace}",
                holder.who(),
                place(holder)
            ),
            _ => format!("{}{}", holder.who(), place(holder)),
        }
    };
    let all: BTreeSet<String> = taken.holders.iter().map(who).collect();
    let rest = all.len().saturating_sub(NAMED);
    let more = (rest > 0).then(|| format!("and {rest} more"));
    all.into_iter().take(NAMED).chain(more).collect()
}

/// Remedies that make the holders release `what`, each once; paths are as seen from `view`.
pub(crate) fn release(view: View, holders: &[&Holder], what: &str) -> Vec<Remedy> {
    let mut known = BTreeSet::new();
    let all = holders.iter().map(|holder| one(view, holder, what));
    let new = |remedy: &Remedy| known.insert((remedy.command.clone(), remedy.advice.clone()));
    all.filter(new).take(4).collect()
}

fn one(view: View, holder: &Holder, what: &str) -> Remedy {
    let_go(view, holder, &format!(", which keeps {what} busy"))
}

/// The remedy that makes a holder release the object; `busy` follows the holder's name in the sentence.
pub(crate) fn let_go(view: View, holder: &Holder, busy: &str) -> Remedy {
    let object = word(&holder.object.0);
    match (holder.how, holder.pid) {
        (How::Swap, _) => view
            .on_file("stop swapping to", &holder.object.0, holder.file, |it| {
                format!("swapoff {it}")
            })
            .so(busy)
            .verified_by(format!("! grep -qF -- {object} /proc/swaps"))
            .remedy(
                "reads all that was swapped there back into memory: fails, or makes the node kill \
                 processes, where there is too little",
            ),
        (How::Loop, _) => detach(holder, busy),
        (How::NfsExport, _) => Step::new(
            view.says("stop exporting by NFS", &holder.object.0),
            format!("exportfs -u \"*\":{object}"),
        )
        .so(busy)
        .remedy("its NFS clients lose it; name the client as `exportfs -v` shows it"),
        (_, Some(pid)) => process(holder, pid, busy),
        (_, None) => Remedy::command("list what is mounted", "cat /proc/self/mountinfo", "none"),
    }
}

/// Detaches a loop device. The kernel gives its name, in the path of the `backing_file` attribute.
fn detach(holder: &Holder, busy: &str) -> Remedy {
    const RISK: &str = "what is mounted from the loop device must be unmounted first";
    let name = holder.source.strip_prefix("/sys/block/");
    let name = name.and_then(|rest| rest.strip_suffix("/loop/backing_file"));
    match name.and_then(|name| detach_loop(name, &holder.object.0)) {
        Some(step) => step.so(busy).remedy(RISK),
        None => Remedy::advice("detach the loop device: `losetup --list` shows its name", RISK),
    }
}

/// Detaches the loop device of this name, if it is one's, while it is still built on this file or device.
pub(crate) fn detach_loop(name: &str, of: &Path) -> Option<Step> {
    let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix("loop").filter(|n| is_number(n))?;
    let (object, what) = (word(of), safe_path(of));
    let step =
        Step::new(format!("detach the loop device {name}"), format!("losetup -d /dev/{name}"));
    let guard = format!("[ \"$(cat /sys/block/{name}/loop/backing_file)\" = {object} ]");
    let step = step.only_if(guard, format!("{name} is still built on {what}"));
    Some(step.verified_by(format!("! [ -e /sys/block/{name}/loop ]")))
}

/// `[ "$(kubectl get ...)" = UID ]`: a pod's name may be reused, and its source may be untrusted.
pub(crate) fn is_same_pod(namespace: &str, name: &str, uid: &str) -> String {
    let uid = word(uid);
    format!(
        "[ \"$(kubectl --namespace {namespace} get pod {name} -o jsonpath='{{.metadata.uid}}')\" = {uid} ]"
    )
}

/// The risk of ending dockerd.
const ENDS_ALL: &str = "all containers of the node end, unless Docker's live-restore is set";

fn process(holder: &Holder, pid: u32, busy: &str) -> Remedy {
    let named = |pod: &'_ Pod| Some((pod.uid.clone(), pod.namespace.clone()?, pod.name.clone()?));
    let named = holder.pod.as_ref().and_then(named);
    let can_be = |name: &String| is_object_name(name);
    if let Some((uid, namespace, name)) = named.filter(|it| can_be(&it.1) && can_be(&it.2)) {
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
        let does = clip(&format!("{namespace}/{name}"), NAME);
        let delete = Step::new(
            format!("delete pod {does}"),
            format!("kubectl --namespace {namespace} delete pod {name}"),
        )
        .so(busy)
        .only_if(
            is_same_pod(&namespace, &name, &uid),
            format!("the pod of that name has the UID {}", safe(uid.as_bytes())),
        );
        let mut remedy = delete.remedy(
            "its controller starts it again; what it does on this node pauses meanwhile. For good: \
             leave kubelet's directory out of its hostPath volumes",
        );
        remedy.affects(format!("pod {namespace}/{name}"));
        remedy.verify = Some(has_ended(pid));
        return remedy;
    }
    // A service's child processes may outlast it: cron jobs, ssh logins, containers (`KillMode=process`).
    let unit = holder.cgroup.as_deref().and_then(unit::of).filter(|_| !holder.is_child);
    if let Some(unit) = unit {
        let restart = format!("systemctl restart {unit}");
        let main = Process::new(pid, holder.started, Some(unit));
        let same = if_same("restart", main, restart).so(busy);
        let is_dockers = holder.component == Some(Component::Dockerd);
        let mut remedy = same.remedy(if is_dockers { ENDS_ALL } else { "interrupts that service" });
        remedy.affects(format!("the service {unit}"));
        remedy.verify = Some(has_ended(pid));
        return remedy;
    }
    let risk = match holder.component {
        Some(Component::Dockerd) => ENDS_ALL.to_owned(),
        _ => format!("ends {}: ask its owner first", holder.who()),
    };
    let process = Process::new(pid, holder.started, holder.comm.as_deref());
    kill("kill", process).so(busy).remedy(risk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            remedy::Place,
            time::{Clock, Monotonic},
        },
        testing::holder,
    };

    #[test]
    fn the_gentlest_way_is_offered() {
        let of = |holder: &Holder| {
            release(View::OURS, &[holder], "the volume")[0].command.clone().unwrap_or_default()
        };
        let mut one = holder(How::Cwd, Through::Itself, Some(true));
        assert!(of(&one).ends_with(" = 99 ] && kill 77"), "{}", of(&one));
        one.cgroup = Some("/system.slice/backup.service".into());
        assert!(of(&one).ends_with(" = 99 ] && systemctl restart backup.service"), "{}", of(&one));
        one.is_child = true;
        assert!(of(&one).ends_with(" && kill 77"), "{}", of(&one));
        one.is_child = false;
        one.component = Some(Component::Dockerd);
        let risk = &release(View::OURS, &[&one], "the volume")[0].risk;
        assert!(risk.contains("all containers"), "{risk}");
        one.cgroup = None;
        let risk = &release(View::OURS, &[&one], "the volume")[0].risk;
        assert!(risk.contains("all containers"), "{risk}");
        for foreign in
            ["/system.slice/$(reboot).service", "/kubepods/podu/system.slice/sshd.service"]
        {
            one.cgroup = Some(foreign.into());
            assert!(of(&one).ends_with(" && kill 77"), "{}", of(&one));
        }
        one.how = How::Swap;
        one.object.0 = "/v/swap file".into();
        assert!(of(&one).ends_with("&& swapoff \"$1\"' sh './swap file'"), "{}", of(&one));
        let same = holder(How::Fd, Through::Itself, Some(true));
        assert_eq!(release(View::OURS, &[&same, &same], "the volume").len(), 1);
    }

    #[test]
    fn a_command_names_the_process_its_start_and_the_purpose() {
        let clock = Clock::new(jiff::Timestamp::UNIX_EPOCH, Monotonic(100_000_000_000));
        let does = |one: &Holder, now: i64| {
            let remedy = release(View::OURS, &[one], "the volume").remove(0);
            let now = jiff::Timestamp::from_second(now).unwrap();
            remedy.dated(&clock, now).does.unwrap()
        };
        let mut one = holder(How::Cwd, Through::Itself, Some(true));
        one.started = Some(82_000);
        let today = "end backup (pid 77, started 00:12Z), which keeps the volume busy";
        assert_eq!(does(&one, 3_600), today);
        let later = "end backup (pid 77, started 1970-01-01), which keeps the volume busy";
        assert_eq!(does(&one, 90_000), later);
        one.started = None;
        assert_eq!(does(&one, 0), "end backup (pid 77), which keeps the volume busy");
        one.comm = Some("x\u{1b}[2J".repeat(20));
        let hostile = does(&one, 0);
        assert!(hostile.starts_with("end …") && hostile.contains(" (pid 77)"), "{hostile}");
        assert!(hostile.chars().count() <= 100 && !hostile.contains('\u{1b}'), "{hostile}");
    }

    /// The pod's name comes from a directory of logs, and is not trusted.
    #[test]
    fn a_pod_is_deleted_by_its_uid() {
        let mut one = holder(How::Cwd, Through::Itself, Some(true));
        let of = |uid: &str, name: &str| Pod {
            uid: uid.into(),
            namespace: Some("shop".into()),
            name: Some(name.into()),
        };
        one.pod = Some(of("u-1", "cart-0"));
        let remedy = &release(View::OURS, &[&one], "the volume")[0];
        assert_eq!((remedy.place, remedy.guard.is_some()), (Some(Place::Kubectl), true));
        assert_eq!(
            remedy.words(),
            "[ \"$(kubectl --namespace shop get pod cart-0 -o jsonpath='{.metadata.uid}')\" = u-1 ] \
             && kubectl --namespace shop delete pod cart-0"
        );
        // No Kubernetes object has such a name: the remedy is for the process.
        for name in ["cart; reboot", "-A"] {
            one.pod = Some(of("u-1", name));
            let remedy = &release(View::OURS, &[&one], "the volume")[0];
            assert!(remedy.words().ends_with(" && kill 77"), "{}", remedy.words());
        }
    }

    #[test]
    fn a_loop_device_is_named_by_the_kernel_and_by_what_is_behind_it() {
        let mut one = holder(How::Loop, Through::Itself, Some(true));
        one.object.0 = "/v/$(reboot)".into();
        let words = |one: &Holder| release(View::OURS, &[one], "the volume")[0].words().to_owned();
        assert_eq!(
            words(&one),
            "[ \"$(cat /sys/block/loop3/loop/backing_file)\" = '/v/$(reboot)' ] && losetup -d /dev/loop3"
        );
        for source in [
            "/v/loop9/x",
            "/sys/block/loop3;reboot/loop/backing_file",
            "/sys/block/sda/loop/backing_file",
        ] {
            one.source = source.into();
            assert!(words(&one).starts_with("detach the loop device"), "{}", words(&one));
        }
    }

    #[test]
    fn a_holder_is_described_with_its_mount() {
        let text = describe(&holder(How::Fd, Through::PropagatedCopy, Some(true)));
        assert_eq!(
            text,
            "backup (pid 77) has it open: /v/x; mount 9 at /v in mount namespace 5, a copy that \
             receives the unmount"
        );
    }
}
