//! Why a directory is not empty, by what is in it.

use std::time::Duration;

use super::{
    command::View,
    draft::{Draft, Family, PROBE, times},
    leftover::{Full, Seen},
    umounts::Umounts,
};
use crate::{
    identity::classify::SUBPATH,
    model::{
        path::{safe, safe_path, shell_word},
        time::Monotonic,
    },
    state::{
        look::{Answer, Entries},
        mounts::{Mount, Mounts},
    },
};

/// What a file in a directory that was emptied meanwhile may be older than: clocks differ, and
/// inodes carry whole seconds here.
const ROUNDING: Duration = Duration::from_secs(1);
/// Names that are told.
const TOLD: usize = 5;

pub(super) fn draft(
    full: &Full,
    seen: &Seen<'_>,
    umounts: &Umounts,
    now: Monotonic,
) -> Option<Draft> {
    let op = &full.op;
    let plugin = op.target.volume.as_ref().map_or("", |volume| volume.plugin.as_str());
    let mounts = seen.mounts?;
    if mounts.at(&op.path).next().is_some() {
        // A mount point that is busy as well: told as such.
        return None;
    }
    let below: Vec<&Mount> = mounts.below(&op.path).collect();
    if plugin == SUBPATH && !below.is_empty() {
        return subpath(full, &below, mounts, umounts);
    }
    if !below.is_empty() {
        // The removal fails with EBUSY there, or cannot look behind it.
        return None;
    }
    let entries = match seen.entries {
        Ok(Answer::Entries(entries)) => entries,
        Ok(_) => return None,
        Err(error) => {
            let mut draft = base("leftover-unexplained", full, 0.3);
            draft.fact(format!("the directory could not be looked at: {error}"), "readdir");
            draft.explanation =
                "The directory is not empty, and what is in it is not known.".into();
            return Some(draft);
        }
    };
    let mut draft = if entries.count == 0 {
        phantom(full)
    } else if removes_contents(plugin) {
        writer(full, entries, seen, now)
    } else {
        data_under_mount(full, entries, seen)
    };
    draft.fact(
        format!("{} is not a mount point for the caller", safe_path(&op.path)),
        &mounts.source,
    );
    Some(draft)
}

/// Volumes whose contents kubelet removes with them: emptyDir, and what it makes itself.
fn removes_contents(plugin: &str) -> bool {
    ["empty-dir", "secret", "configmap", "projected", "downward-api"]
        .iter()
        .any(|kind| plugin.strip_prefix("kubernetes.io/") == Some(kind))
}

fn base(id: &'static str, full: &Full, confidence: f64) -> Draft {
    let mut draft = Draft::about(Family::Leftover, id, &full.op);
    draft.confidence = confidence;
    draft.blocks_deletion = Some(true);
    draft.count = full.count;
    draft.first = full.first;
    draft.fact(
        format!(
            "{} failed with ENOTEMPTY {} in {} attempts, and nothing in this volume with any other \
             error",
            full.op.call.name(),
            times(full.count),
            full.attempts.count()
        ),
        PROBE,
    );
    draft
}

fn names(entries: &Entries) -> String {
    let shown = entries.listed.iter().take(TOLD);
    let shown: Vec<_> = shown.map(|entry| safe(entry.name.as_encoded_bytes())).collect();
    let more = if entries.count > TOLD as u64 { " and others" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn contents(draft: &mut Draft, entries: &Entries) {
    let noun = if entries.count == 1 { "entry" } else { "entries" };
    draft.fact(format!("it has {} {noun}: {}", entries.count, names(entries)), "readdir");
}

fn users(draft: &mut Draft, seen: &Seen<'_>) {
    for user in seen.users {
        draft.fact(
            format!("{} (pid {}) has {} there", user.comm, user.pid, user.how),
            format!("/proc/{}", user.pid),
        );
    }
}

fn subpath(full: &Full, below: &[&Mount], mounts: &Mounts, umounts: &Umounts) -> Option<Draft> {
    let left: Vec<&&Mount> = below.iter().filter(|mount| !umounts.on(&mount.point).any()).collect();
    if left.is_empty() {
        return None;
    }
    let mut draft = base("subpath-source-deleted", full, 0.85);
    for mount in left {
        let point = safe_path(&mount.point);
        draft.fact(format!("{point} is mounted: {}", mount.describe()), &mounts.source);
        draft.remedy(
            View::of(&full.op).on_mount("umount", &mount.point),
            "low: the container that used it has ended; its files stay",
        );
    }
    draft.fact("nobody called umount2 on it since the observation began", PROBE);
    draft.explanation = "A subPath of the volume is still mounted for a container that has ended. \
        kubelet looks at the mount before it unmounts it, takes the error for a mount that is gone \
        (what was mounted there was deleted on its server), skips it, and then cannot remove the \
        directory around it."
        .into();
    draft
        .ruled_out
        .push("subpath-busy: umount2 would have failed with EBUSY; nobody called it".into());
    Some(draft)
}

fn phantom(full: &Full) -> Draft {
    let many = full.attempts.count() > 3;
    let mut draft = base("fs-phantom-entries", full, if many { 0.8 } else { 0.5 });
    draft.fact("readdir finds nothing in it", "readdir");
    draft.explanation =
        "The file system says that the directory is not empty and shows nothing in \
        it: its directory data are damaged, or a layer of it hides what another one keeps."
            .into();
    draft.remedy(
        "dmesg --level=err,warn | tail -50",
        "none; look for errors of the file system, then check it (`fsck`) while it is not mounted",
    );
    draft
}

fn writer(full: &Full, entries: &Entries, seen: &Seen<'_>, now: Monotonic) -> Draft {
    let tried = now.since(full.first) + ROUNDING;
    let newest = entries.listed.first().map(|entry| entry.age);
    if newest.is_none_or(|age| age > tried) {
        let mut draft = base("leftover-unexplained", full, 0.3);
        contents(&mut draft, entries);
        draft.explanation = "What is in the directory is older than the first attempt, and the \
            removal leaves it there without an error."
            .into();
        return draft;
    }
    let mut writers = seen.users.iter().filter(|user| user.writes);
    let named = writers.next();
    let mut draft = base("writer-still-alive", full, if named.is_some() { 0.9 } else { 0.75 });
    contents(&mut draft, entries);
    draft.fact(
        "the newest of them was made or changed after the first attempt, which removed what it found",
        "ctime",
    );
    users(&mut draft, seen);
    draft.explanation = "Somebody writes into the volume while it is removed, so that it is never \
        empty at the end. The pod's containers should have ended: what is left of one, a process of \
        the host, or another pod that has the directory by hostPath."
        .into();
    match named {
        Some(user) => {
            draft.remedy(format!("cat /proc/{}/cgroup", user.pid), "none; says whose it is");
            // Of several, who it is that makes the files is not known.
            if writers.next().is_none() {
                draft.remedy(
                    format!("kill {}", user.pid),
                    "what it is writing is lost, and whoever needs the process misses it; kubelet's \
                     next attempt then succeeds",
                );
            }
        }
        None => draft.remedy(
            View::of(&full.op).on_object("podstuck holders", &full.op.path),
            "none; lists who has the directory open at this moment",
        ),
    }
    draft
}

fn data_under_mount(full: &Full, entries: &Entries, seen: &Seen<'_>) -> Draft {
    let op = &full.op;
    let mut draft = base("data-under-mountpoint", full, 0.9);
    contents(&mut draft, entries);
    users(&mut draft, seen);
    draft.explanation = "The volume is not mounted any more, and its empty mount point should be \
        all that is left; but files lie in that directory on the node's own disk. They were written \
        while the volume was not mounted. kubelet does not remove them, since they might be data."
        .into();
    let name = op.path.file_name().unwrap_or_default().to_string_lossy();
    let uid = op.target.pod.as_ref().map_or("pod", |pod| pod.uid.as_str());
    let aside = format!("/var/tmp/{}-{}", safe(uid.as_bytes()), safe(name.as_bytes()));
    draft.remedy(
        format!(
            "{} {}",
            View::of(op).on_object("mv --no-target-directory --", &op.path),
            shell_word(aside.as_ref())
        ),
        "low: moves the files away instead of deleting them, for somebody to look at; kubelet's next \
         attempt then succeeds. Check once more that the path is not mounted",
    );
    draft
        .ruled_out
        .push("csi-driver-lost-publish-state: the path is not mounted for the caller".into());
    draft
}
