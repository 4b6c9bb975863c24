//! EPERM on a removal. `may_delete` in fs/namei.c gives it for an immutable or append-only object,
//! an append-only directory, a sticky directory, an active swap file and an unmapped owner; an
//! immutable directory gives it through the permission check. The inode says which.

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

use super::{
    Case, Draft, Family, Needs,
    command::View,
    draft::{PROBE, times},
    is_clean_up,
};
use crate::{
    model::{
        call::Call,
        finding::Severity,
        identity::{Component, TargetKind},
        operation::Operation,
        path::{safe_path, shell_word},
        time::Monotonic,
    },
    state::look::{Answer, Attributes, LookError, Question},
};

/// Not a cause: says what could not be found out.
const UNEXPLAINED: &str = "permission-unexplained";
/// Targets followed at a time.
const TARGETS: usize = 1024;

struct Refused {
    op: Operation,
    /// The object whose refusal a look has explained.
    explained: Option<PathBuf>,
    count: u64,
    first: Monotonic,
}

/// All targets with a removal that was refused.
#[derive(Default)]
pub(super) struct Permission {
    targets: HashMap<u64, Refused>,
}

impl Permission {
    pub(super) fn observe(&mut self, op: &Operation) -> Option<Case> {
        if !op.outcome.is(Errno::EPERM) || op.call == Call::Umount2 || !is_clean_up(op) {
            return None;
        }
        if self.targets.len() >= TARGETS && !self.targets.contains_key(&op.target_id) {
            return None;
        }
        let refused = self.targets.entry(op.target_id).or_insert_with(|| Refused {
            op: op.clone(),
            explained: None,
            count: 0,
            first: op.end,
        });
        refused.count += 1 + u64::from(op.suppressed);
        refused.op = op.clone();
        let directory: OsString = op.path.parent()?.into();
        let name = op.path.file_name()?.to_owned();
        Some(Case {
            family: Family::Permission,
            target_id: op.target_id,
            path: op.path.clone(),
            needs: Needs::Look(Question::Attributes {
                pid: op.actor.pid,
                directory,
                name,
                expected: op.directory,
            }),
        })
    }

    pub(super) fn conclude(
        &mut self,
        case: &Case,
        answer: Result<Answer, LookError>,
    ) -> Option<Draft> {
        let refused = self.targets.get_mut(&case.target_id)?;
        if refused.op.path != case.path {
            return None;
        }
        let mut draft = match answer {
            Ok(Answer::Attributes { swap: true, .. }) => swap_file(refused),
            Ok(Answer::Attributes { object, directory, same_directory, sticky, .. }) => {
                confirmed(refused, object, directory, same_directory, sticky)
            }
            Ok(_) => return None,
            Err(error) => {
                let mut draft = unexplained(refused);
                draft.fact(format!("the object could not be looked at: {error}"), "statx");
                draft
            }
        };
        let explained = draft.id != UNEXPLAINED;
        if !explained && refused.explained.as_ref() == Some(&case.path) {
            // Cured between the call and the look: what was found before still holds for the call.
            return None;
        }
        refused.explained = explained.then(|| case.path.clone());
        let fact = format!("{} failed with EPERM {}", refused.op.call.name(), times(refused.count));
        draft.evidence.insert(0, crate::model::finding::Evidence::new(fact, PROBE));
        draft.count = refused.count;
        draft.first = refused.first;
        Some(draft)
    }

    /// Calls that were refused on a target.
    pub(super) fn count(&self, target_id: u64) -> Option<u64> {
        self.targets.get(&target_id).map(|refused| refused.count)
    }

    /// Forgets an object, or all of a target.
    pub(super) fn forget(&mut self, target_id: u64, path: Option<&Path>) {
        self.targets.retain(|target, refused| {
            *target != target_id || path.is_some_and(|path| path != refused.op.path)
        });
    }
}

fn confirmed(
    refused: &Refused,
    object: Attributes,
    directory: Attributes,
    same_directory: bool,
    sticky: bool,
) -> Draft {
    let op = &refused.op;
    let (id, on_directory) = match (object, directory) {
        (Attributes { immutable: true, .. }, _) => ("immutable-attribute", false),
        (Attributes { append_only: true, .. }, _) => ("append-only-attribute", false),
        (_, Attributes { immutable: true, .. }) => ("immutable-attribute", true),
        (_, Attributes { append_only: true, .. }) => ("append-only-attribute", true),
        _ => {
            let mut draft = unexplained(refused);
            rule_out(&mut draft, object, directory);
            if sticky {
                draft.fact("the directory has the sticky bit", "statx");
            }
            return draft;
        }
    };
    let mut draft = Draft::about(Family::Permission, id, op);
    let (flag, word) =
        if id == "immutable-attribute" { ("i", "immutable") } else { ("a", "append-only") };
    let flagged: PathBuf = match (on_directory, op.path.parent()) {
        (true, Some(parent)) => parent.into(),
        _ => op.path.clone(),
    };
    let what = if on_directory { "the directory that holds it" } else { "the object itself" };
    draft.fact(format!("{what}, {}, has the {word} attribute", safe_path(&flagged)), "statx");
    if same_directory {
        draft.fact(
            "it is the same directory by device and inode number as in the failed call",
            "statx",
        );
    }
    draft.confidence = if same_directory { 0.98 } else { 0.9 };
    draft.severity = Severity::Warning;
    draft.blocks_deletion = blocks(op);
    draft.explanation = format!(
        "The file system refuses to remove what carries the {word} attribute, also to root. \
         Everything else in the volume is removed, and every attempt fails at the same place. Ask \
         who set it: hardening scripts do, and so do intruders."
    );
    draft.remedy(
        View::of(op).on_object(&format!("chattr -{flag}"), &flagged),
        "low: removes the protection of this one object; the owner's next attempt deletes it",
    );
    rule_out(&mut draft, object, directory);
    draft
}

fn swap_file(refused: &Refused) -> Draft {
    let op = &refused.op;
    let mut draft = Draft::about(Family::Permission, "swapfile-active", op);
    let path = safe_path(&op.path);
    draft.fact(format!("{path} is an active swap file, by device and inode number"), "/proc/swaps");
    draft.confidence = 0.98;
    draft.blocks_deletion = blocks(op);
    draft.explanation = "The kernel swaps to this file, and does not let it be removed until that \
        is switched off."
        .into();
    draft.remedy(
        format!("swapoff {}", shell_word(&op.path)),
        "reads all that was swapped there back into memory: fails, or makes the node kill \
         processes, where there is too little. `swapon --show` says by which path the node knows it",
    );
    draft
}

/// Says which attributes are not set, as far as the file system tells.
fn rule_out(draft: &mut Draft, object: Attributes, directory: Attributes) {
    if !object.known {
        draft.fact("this file system does not report the attributes", "statx");
        return;
    }
    let unset = [
        (object.immutable, "immutable-attribute", "the object is not immutable"),
        (object.append_only, "append-only-attribute", "the object is not append-only"),
    ];
    let directory_is_plain = !directory.immutable && !directory.append_only;
    for (set, id, text) in unset {
        if !set && id != draft.id {
            let also = if directory_is_plain { ", and neither is its directory" } else { "" };
            draft.ruled_out.push(format!("{id}: {text}{also}"));
        }
    }
}

fn unexplained(refused: &Refused) -> Draft {
    let mut draft = Draft::about(Family::Permission, UNEXPLAINED, &refused.op);
    draft.confidence = 0.3;
    draft.blocks_deletion = blocks(&refused.op);
    draft.explanation = "The kernel refused the removal with EPERM, and no attribute explains it. \
        Still possible: a sticky directory of another owner, an owner that is not mapped in the \
        caller's user namespace, a security module."
        .into();
    draft
}

/// Whether the pod waits for this removal.
fn blocks(op: &Operation) -> Option<bool> {
    match (op.target.kind, op.actor.component) {
        (TargetKind::PodVolume | TargetKind::PodDirectory, _) => Some(true),
        // containerd logs a warning and tries again at the next garbage collection.
        (TargetKind::ContainerLayer, Component::Containerd) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
#[path = "permission_tests.rs"]
mod tests;
