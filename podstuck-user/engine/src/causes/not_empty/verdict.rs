//! Findings about directories that are not empty, by their contents.

use std::{collections::BTreeSet, ffi::OsStr, path::Path, time::Duration};

use crate::{
    cause::Cause,
    causes::{
        not_empty::{
            causes::{
                DATA_UNDER_MOUNT, LEFTOVER_UNEXPLAINED, PHANTOM_ENTRIES, SUBPATH_SOURCE_DELETED,
                WRITER_ALIVE,
            },
            tracker::{Full, Seen},
        },
        shared::moments::began,
    },
    command::{NAME, Process, Step, View, kill},
    ids,
    model::{
        evidence::Source,
        identity::SUBPATH,
        mounts::{Mount, Mounts},
        object::{Entries, FileId},
        operation::Operation,
        path::{clip, safe, safe_path},
        pod_group::Task,
        shell::word,
    },
    tracker::{Context, TrackerId},
    verdict::{Draft, times},
};

/// Tolerance when the age of an entry is compared with the first attempt: clocks differ, and ages have whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// After more attempts than this that found no entry, a slow writer is ruled out.
const SLIPPED_AWAY: u64 = 3;
/// Entries named in the finding.
const NAMED: usize = 5;

pub(crate) fn draft(context: &Context<'_>, full: &Full, seen: &Seen<'_>) -> Option<Draft> {
    let op = &full.op;
    let plugin = op.target.volume.as_ref().map_or("", |volume| volume.plugin.as_str());
    let mounts = seen.mounts?;
    if mounts.at(&op.path).next().is_some() {
        // A mount point is busy as well, and reported as such.
        return None;
    }
    let below: Vec<&Mount> = mounts.below(&op.path).collect();
    if plugin == SUBPATH && !below.is_empty() {
        return subpath(context, full, &below, mounts);
    }
    if !below.is_empty() {
        // The removal fails with EBUSY at the mount, or cannot see what is behind it.
        return None;
    }
    let entries = match seen.entries {
        Ok(entries) => entries,
        Err(error) => {
            let mut draft = base(&LEFTOVER_UNEXPLAINED, full);
            draft
                .fact(format!("the directory could not be read: {error}"), Source::Look("readdir"));
            draft.explanation =
                "The directory is not empty, and its contents are not known.".into();
            return Some(draft);
        }
    };
    let mut draft = if entries.count == 0 {
        phantom(full)
    } else if removes_contents(plugin) {
        writer(context, full, entries, seen)
    } else {
        data_under_mount(context, full, entries, seen, mounts)
    };
    draft.fact(
        format!("{} is not a mount point for the caller", safe_path(&op.path)),
        Source::mountinfo(&mounts.source),
    );
    Some(draft)
}

/// Whether kubelet removes the contents of this plugin's volumes: emptyDir, and volumes that kubelet fills itself.
fn removes_contents(plugin: &str) -> bool {
    ["empty-dir", "secret", "configmap", "projected", "downward-api"]
        .iter()
        .any(|kind| plugin.strip_prefix("kubernetes.io/") == Some(kind))
}

fn base(cause: &'static Cause, full: &Full) -> Draft {
    let mut draft = Draft::about(TrackerId::NotEmpty, cause, &full.op);
    draft.blocks_deletion = Some(true);
    draft.count = full.count;
    draft.first = full.first;
    draft.fact(
        format!(
            "{} failed with ENOTEMPTY {} in {} attempts, and no call in this volume failed with \
            another error",
            full.op.call.name(),
            times(full.count),
            full.attempts.count()
        ),
        full.op.source(),
    );
    draft
}

fn names(entries: &Entries) -> String {
    let shown = entries.listed.iter().take(NAMED);
    let shown: Vec<_> = shown.map(|entry| safe(entry.name.as_encoded_bytes())).collect();
    let more = if entries.count > NAMED as u64 { " and others" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn contents(draft: &mut Draft, entries: &Entries) {
    let noun = if entries.count == 1 { "entry" } else { "entries" };
    draft.fact(
        format!("it has {} {noun}: {}", entries.count, names(entries)),
        Source::Look("readdir"),
    );
}

/// Rules out NFS silly renames: NFS keeps a file that was removed while open under a name that starts with `.nfs`.
fn rule_out_silly_rename(draft: &mut Draft, entries: &Entries) {
    let renamed = |name: &OsStr| name.as_encoded_bytes().starts_with(b".nfs");
    let all_are_listed = entries.listed.len() as u64 == entries.count;
    if all_are_listed && !entries.listed.iter().any(|entry| renamed(&entry.name)) {
        draft.rule_out(ids::NFS_SILLY_RENAME, "no name in it begins with .nfs");
    }
}

fn users(draft: &mut Draft, seen: &Seen<'_>) {
    for user in seen.users {
        draft.fact(
            format!("{} (pid {}) has {} there", user.comm, user.pid, user.how),
            Source::proc(format!("/proc/{}", user.pid)),
        );
    }
}

fn subpath(context: &Context<'_>, full: &Full, below: &[&Mount], mounts: &Mounts) -> Option<Draft> {
    let left: Vec<&&Mount> =
        below.iter().filter(|mount| !context.unmounts.on(&mount.point).any()).collect();
    if left.is_empty() {
        return None;
    }
    let mut draft = base(&SUBPATH_SOURCE_DELETED, full);
    for mount in left {
        let point = safe_path(&mount.point);
        draft.fact(
            format!("{point} is mounted: {}", mount.describe()),
            Source::mountinfo(&mounts.source),
        );
        draft.remedy(
            View::of(context, &full.op)
                .on_mount("umount", &mount.point, Some(mount.id))
                .so(", which kubelet skips"),
            "low: the container that used it has ended; its files stay",
        );
    }
    draft.fact_since(
        format!("no process unmounted it since {}", began(context)),
        Source::Probe,
        context.begun,
    );
    draft.explanation = "A subPath of the volume is still mounted for a container that has \
        ended. kubelet checks the mount before it unmounts it. The check fails because the \
        source of the mount was deleted on its server; kubelet treats the error as a mount that \
        is gone, skips the unmount, and then cannot remove the directory around it."
        .into();
    draft.rule_out_since(
        ids::SUBPATH_BUSY,
        format!(
            "umount2 would have failed with EBUSY; no process called it since {}",
            began(context)
        ),
        Some(context.begun),
    );
    Some(draft)
}

fn phantom(full: &Full) -> Draft {
    let mut draft = base(&PHANTOM_ENTRIES, full);
    if full.op.logged_in.is_some() {
        draft.doubt("whether it lists no entries at kubelet's attempts either: it was read after the logged ones");
    } else if full.attempts.count() > SLIPPED_AWAY {
        let fact = "readdir finds no entries, in more attempts than a writer can explain";
        draft.rule_out(ids::WRITER_STILL_ALIVE, fact);
    }
    draft.fact("readdir lists no entries in it", Source::Look("readdir"));
    draft.explanation =
        "The file system reports that the directory is not empty, and lists no entries: its \
        directory data are damaged, or one of its layers hides entries of another."
            .into();
    draft.remedy(
        Step::new(
            "show the kernel's last warnings, for errors of the file system",
            "dmesg --level=err,warn | tail -50",
        ),
        "none; where there are any, check the file system (`fsck`) while it is not mounted",
    );
    draft
}

fn writer(context: &Context<'_>, full: &Full, entries: &Entries, seen: &Seen<'_>) -> Draft {
    let tried = context.now.since(full.first) + ROUNDING;
    let newest = entries.listed.first().map(|entry| entry.age);
    if newest.is_none_or(|age| age > tried) {
        let mut draft = base(&LEFTOVER_UNEXPLAINED, full);
        contents(&mut draft, entries);
        draft.explanation = "The entries of the directory are older than the first attempt, and \
            the removal leaves them there without an error."
            .into();
        return draft;
    }
    let mut writers = seen.users.iter().filter(|user| user.writes);
    let named = writers.next();
    let mut draft = base(&WRITER_ALIVE, full);
    contents(&mut draft, entries);
    draft.fact(
        "the newest of them was created or changed after the first attempt, which removed all \
        entries that it found",
        Source::Look("ctime"),
    );
    users(&mut draft, seen);
    draft.rule_out(ids::FS_PHANTOM_ENTRIES, "readdir shows what is in it");
    rule_out_silly_rename(&mut draft, entries);
    if named.is_none() {
        draft.doubt("which process writes");
    }
    draft.explanation = "A process writes into the volume while the volume is being removed, so \
        the volume is never empty at the end. The pod's containers should have ended: the \
        process is left over from one of them, belongs to the host, or belongs to another pod \
        that uses the directory by hostPath."
        .into();
    match named {
        Some(user) => {
            let comm = clip(&user.comm, NAME);
            let whose =
                format!("show which container or service {comm} (pid {}) belongs to", user.pid);
            draft.remedy(Step::new(whose, format!("cat /proc/{}/cgroup", user.pid)), "none");
            // If there are several, which of them makes the files is not known.
            if writers.next().is_none() {
                draft.remedy(
                    kill("kill", Process::new(user.pid, user.started, Some(&user.comm)))
                        .so(", which writes into the volume"),
                    "loses what it is writing, and interrupts whatever depends on the process; \
                    kubelet's next attempt then succeeds",
                );
            }
        }
        None => {
            draft.remedy(
                View::of(context, &full.op).look(
                    "list the processes that use",
                    &full.op.path,
                    |it| format!("podstuck holders {it}"),
                ),
                "none",
            );
        }
    }
    draft
}

fn data_under_mount(
    context: &Context<'_>,
    full: &Full,
    entries: &Entries,
    seen: &Seen<'_>,
    mounts: &Mounts,
) -> Draft {
    let op = &full.op;
    let mut draft = base(&DATA_UNDER_MOUNT, full);
    contents(&mut draft, entries);
    users(&mut draft, seen);
    draft.explanation = "The volume is not mounted any more, and its empty mount point should be \
        all that is left; but files lie in that directory on the node's own disk. They were written \
        while the volume was not mounted. kubelet does not remove them, since they might be data."
        .into();
    let alive = alive(context, op);
    let fills_again = !alive.is_empty();
    still_alive(&mut draft, &alive);
    move_aside(context, &mut draft, op, (entries.directory, mounts), fills_again);
    draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the path is not mounted for the caller");
    draft.rule_out(
        ids::ORPHANED_POD_DIR,
        "it is not kubelet's housekeeping, which begins with the pod's `volumes`",
    );
    rule_out_silly_rename(&mut draft, entries);
    draft
}

/// The pod's processes that live, without the sandbox's own: the path is theirs, mounted or not.
fn alive<'a>(context: &Context<'a>, op: &Operation) -> Vec<&'a Task> {
    let uid = op.target.pod.as_ref().map(|pod| pod.uid.as_str());
    let groups = context.sample.map(|sample| sample.cgroups.as_slice()).unwrap_or_default();
    let Some(group) = groups.iter().find(|group| Some(group.uid.as_str()) == uid) else {
        return Vec::new();
    };
    let all = group.tasks.iter().chain(&group.outside);
    let mut alive: Vec<&Task> =
        all.filter(|task| task.is_alive() && !group.is_sandboxs(task)).collect();
    alive.sort_by_key(|task| (task.started, task.pid));
    alive
}

/// The oldest process of each group: of a container, usually the first one, with which the others end.
fn first_ones<'a>(alive: &[&'a Task]) -> Vec<&'a Task> {
    let mut groups = BTreeSet::new();
    alive.iter().copied().filter(|task| groups.insert(task.group.as_path())).collect()
}

/// Names them as what must end first.
fn still_alive(draft: &mut Draft, alive: &[&Task]) {
    let Some(first) = alive.first() else { return };
    draft.held_by(first.who());
    draft.must = Some("end");
    draft.explanation.push_str(&format!(
        " {} of the pod is alive, although the volume is gone: it goes on writing there, or may, so that what is removed \
         comes back.",
        first.who()
    ));
    for task in alive.iter().take(NAMED) {
        let fact = format!("{}, a process of the pod, is alive: state {}", task.who(), task.state);
        draft.fact(fact, Source::proc(format!("/proc/{}/stat", task.pid)));
    }
    for task in first_ones(alive).into_iter().take(NAMED) {
        draft.remedy(
            kill("kill -9", Process::thread(task)).so(", which can fill the directory again"),
            "low for a pod that is to be deleted: its container ends without its own clean-up",
        );
    }
    draft.doubt("whether the pod's living processes write there again");
}

/// Adds the remedy that moves the entries to a directory for root only, with a random name, on the same file system.
fn move_aside(
    context: &Context<'_>,
    draft: &mut Draft,
    op: &Operation,
    (directory, mounts): (Option<FileId>, &Mounts),
    fills_again: bool,
) {
    const ALONE: &str = "low: moves the files away instead of deleting them, so that they can be \
        examined; kubelet's next attempt then succeeds. Check once more that the path is not \
        mounted";
    const AFTERWARDS: &str = "low: moves the files away instead of deleting them, so that they can be examined. kubelet's \
        next attempt succeeds only once the processes of the pod have ended. Check once more that the path is not mounted";
    let risk = if fills_again { AFTERWARDS } else { ALONE };
    let mount = |path: &Path| mounts.covering(path).map(|mount| mount.id);
    let root = kubelet_root(op).filter(|root| mount(root) == mount(&op.path));
    let Some((root, above)) = root.zip(op.path.parent()) else {
        draft.advice("move the files away, to a directory that root alone may enter", risk);
        return;
    };
    let depth = above.strip_prefix(root).map_or(0, |below| below.components().count());
    // Relative to the checked directory, so that no link is followed.
    let up = vec![".."; depth].join("/");
    let there = word(root);
    draft.remedy(
        View::of(context, op).on_file("move away the contents of", &op.path, directory, |it| {
            format!(
                "aside=$(mktemp -d {up}/podstuck.XXXXXXXX) && mv -- {it} \"$aside\" && \
                 echo {there}/\"${{aside##*/}}\""
            )
        }),
        risk,
    );
}

/// kubelet's root of a volume in `<kubelet root>/pods/<uid>/volumes/<plugin>/<name>`.
fn kubelet_root(op: &Operation) -> Option<&Path> {
    let mut above = op.target.root.ancestors().skip(4);
    let pods = above.next().filter(|pods| pods.file_name().is_some_and(|name| name == "pods"));
    pods.and_then(Path::parent).filter(|_| op.path.starts_with(&op.target.root))
}
