//! Orphans by kubelet's own log, which names them at each attempt. This also covers orphans without a call on `volumes`,
//! such as a subPath whose mount point is a file where kubelet expects a directory (kubernetes#106942).

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Component as Part, Path, PathBuf},
    sync::Arc,
};

use crate::{
    causes::{
        orphan::{ORPHANED_POD_DIR, mounted_below, tell_left},
        shared::{
            repeated::{OfPods, Repeated},
            stat_errors::FRESH,
        },
    },
    command::{NAME, View},
    ids,
    model::{
        chain::Who,
        evidence::Source,
        finding::Severity,
        identity::{Component, Target, TargetKind},
        node::{NodeSample, PodState},
        path::{clip, safe_path},
        said::Said,
        time::Monotonic,
    },
    tracker::{Context, Steps, TrackerId},
    verdict::{Draft, Verdict},
};

/// kubelet's log lines about orphans (pkg/kubelet/kubelet_volumes.go, `cleanupOrphanedPodDirs`), by UID.
#[derive(Default)]
pub(super) struct Logged {
    words: OfPods,
    /// By UID: the target of the finding.
    found: BTreeMap<String, u64>,
}

/// `find`'s test for what is lost with its name alone.
const WITHOUT_DATA: &str = r"\( -type f -empty -o -type l -o -type s -o -type p \)";

/// Whether a name means itself alone as a pattern, and in a shell: the index of a subPath's volume mount, the name of a volume.
fn is_literal(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.starts_with('-') && name.bytes().all(is_plain)
}

/// What kubelet cannot remove.
enum Obstacle {
    /// A file where it expects a directory.
    File(PathBuf),
    /// A mount point, also in a directory that has no volumes, such as `plugins`.
    Mount(PathBuf),
}

/// The object in kubelet's error: `... at path PATH: not a directory`, which old releases continue with the number of
/// such errors, `cannot delete directory PATH: it is a mount point` (pkg/util/removeall), or `unlinkat PATH: device or
/// resource busy`.
fn obstacle(text: &str) -> Option<Obstacle> {
    let after = |words: &str| text.rsplit_once(words)?.1.split_once(": ");
    let is = |(path, error): &(&str, &str), start: &str| {
        path.starts_with('/') && error.starts_with(start)
    };
    let file = after(" at path ").filter(|it| is(it, "not a directory"));
    let point = after("cannot delete directory ").filter(|it| is(it, "it is a mount point"));
    let busy = || after("unlinkat ").filter(|it| is(it, "device or resource busy"));
    let mount = point.or_else(busy);
    let file = file.map(|(path, _)| Obstacle::File(path.into()));
    file.or_else(|| mount.map(|(path, _)| Obstacle::Mount(path.into())))
}

impl Logged {
    pub(super) fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let claim = format!("orphaned pod \"{}\" found, but ", said.uid);
        // At the start, or after the message of a structured entry.
        let of_entry =
            |text: &str| text.split_once(": ").is_some_and(|(_, it)| it.starts_with(&claim));
        let is_claimed = said.text.starts_with(&claim) || of_entry(&said.text);
        if said.component != Component::Kubelet || !is_claimed {
            return;
        }
        self.words.note(context, said);
    }

    /// Reports orphans whose directory still exists. `is_known` tells whether an orphan is already reported otherwise.
    pub(super) fn look(
        &mut self,
        context: &Context<'_>,
        sample: &NodeSample,
        is_known: impl Fn(&str) -> bool,
        steps: &mut Steps,
    ) {
        let (tracker, at) = (TrackerId::Orphan, sample.at);
        let mut before = std::mem::take(&mut self.found);
        for (uid, word) in self.words.iter() {
            let is_fresh = context.now.since(word.last) <= FRESH;
            let state = sample.pod(uid).filter(|_| is_fresh && !is_known(uid));
            let Some(state) = state else { continue };
            let draft = draft(context, word, state, sample.at);
            self.found.insert(uid.clone(), draft.target_id);
            if before.remove(uid).is_none() {
                steps.found([draft]);
            }
        }
        let over = before.into_iter().filter(|(uid, _)| !is_known(uid));
        steps.say(over.map(|(_, target_id)| Verdict::Over { tracker, target_id, at }));
    }

    pub(super) fn is_found(&self, uid: &str) -> bool {
        self.found.contains_key(uid)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.words.dropped()
    }
}

fn draft(context: &Context<'_>, word: &Repeated, state: &PodState, at: Monotonic) -> Draft {
    let target = Target {
        kind: TargetKind::PodDirectory,
        root: state.directory.clone(),
        pod: Some(state.named()),
        ..Target::unknown()
    };
    let id = podstuck_common::component::name_hash(state.uid.as_bytes());
    let (tracker, path) = (TrackerId::Orphan, state.directory.clone());
    let mut draft = Draft::about_state(tracker, &ORPHANED_POD_DIR, id, Arc::new(target), path, at);
    (draft.severity, draft.blocks_deletion) = (Severity::Info, Some(false));
    word.tell(&mut draft);
    let directory = safe_path(&state.directory);
    draft.fact(format!("{directory} is still there"), Source::file(directory));
    draft.explanation = "kubelet no longer knows this pod, so the pod is not Terminating. Only \
        its directory is left, which kubelet cannot remove because of its contents. This adds a \
        line to kubelet's log every two seconds, and blocks no other pod."
        .into();
    let view = state
        .seen_by
        .map_or(View::OURS, |(pid, namespace)| View::in_namespace(context, namespace, pid));
    let is_mounted = state.volumes.iter().any(|volume| !volume.mounts.is_empty());
    let obstacle = obstacle(&word.said.text).filter(|_| !is_mounted);
    if let Some(Obstacle::Mount(path)) = &obstacle
        && is_within(path, &state.directory)
    {
        draft.held_by(Who::object(format!("the mount at {}", safe_path(path))));
        mounted_below(&mut draft, view, &state.directory);
    }
    if let Some(Obstacle::File(path)) = obstacle
        && is_within(&path, &state.directory)
        && let (Some(above), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
        && is_literal(name)
    {
        draft.held_by(Who::object(format!("the file {}", safe_path(&path))));
        let verb = format!("remove the empty file, link or socket {} in", clip(name, NAME));
        let remove = view.look(&verb, above, |it| {
            format!("find {it} -maxdepth 1 -name {name} {WITHOUT_DATA} -delete")
        });
        draft.remedy(
            remove.so(", where kubelet expects a directory"),
            "none: the command removes only what holds no data: an empty file, as kubelet creates \
            for the mount point of a single file, a link (not what it leads to), a socket or a pipe",
        );
    }
    tell_left(&mut draft, view, state);
    let known = "kubelet's log says that the pod is gone";
    draft.rule_out(ids::VOL_DATA_MISSING_OR_CORRUPT, known);
    draft.rule_out(ids::DATA_UNDER_MOUNTPOINT, known);
    draft
}

/// Whether a path from a log lies in this directory and has no `..`.
fn is_within(path: &Path, directory: &Path) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_ok_and(|rest| rest.components().all(|part| matches!(part, Part::Normal(_))))
}
