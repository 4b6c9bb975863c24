//! What is said of attributes that were found before anybody was seen to fail because of them.

use super::refused::{IMMUTABLE_ATTRIBUTE, ask_dockerd_again, cause_of, flag, unflag};
use crate::{
    causes::{
        permission::protected_tracker::{Looked, Owner},
        shared::pending_deletion::Word,
    },
    command::View,
    ids,
    model::{
        container::ContainerState,
        evidence::Source,
        node::PodState,
        object::Protected,
        path::{safe, safe_path},
    },
    tracker::{Context, TrackerId},
    verdict::Draft,
};

/// What is known of the pod; who deletes its volumes.
fn of_pod(draft: &mut Draft, pod: &PodState) -> &'static str {
    draft.blocks_deletion = Some(true);
    if pod.populated == Some(false) {
        draft.fact(
            "no process is left in the pod's control groups: kubelet deletes its volumes now",
            Source::proc("control groups"),
        );
    } else {
        draft.doubt(
            "whether kubelet has come to the volume: it waits for the pod's containers before",
        );
    }
    "kubelet"
}

/// What is known of the container; who deletes its layers.
fn of_container(draft: &mut Draft, state: &ContainerState) -> &'static str {
    draft.blocks_deletion = state.container.pod.is_none().then_some(true);
    let id = safe(state.container.id.as_bytes());
    draft.fact(
        format!("dockerd has begun to remove container {id}, and has not come to the end"),
        Source::file("config.v2.json of the container"),
    );
    draft.fact(
        "its first process is gone, and its root file system is not mounted",
        Source::proc("mountinfo"),
    );
    "dockerd"
}

/// The finding; `None` when nothing was found.
pub(crate) fn draft(
    context: &Context<'_>,
    looked: &Looked,
    found: &Protected,
    to_go: Option<&Word>,
) -> Option<Draft> {
    let (first, attributes) = found.objects.first()?;
    let cause = cause_of(*attributes)?;
    let Looked { tree, since, .. } = looked;
    let mut draft = Draft::about_state(
        TrackerId::Protected,
        cause,
        tree.target_id,
        tree.target.clone(),
        first.0.clone(),
        context.now,
    );
    draft.first = since.unwrap_or(context.now);
    let what = match &tree.owner {
        Owner::Pod(_) => "volume",
        Owner::Container(_) => "layer",
    };
    let look = || Source::Look("statx of what is in the tree");
    for (path, attributes) in &found.objects {
        let word = flag(cause_of(*attributes)?).1;
        draft.fact(format!("{} has the {word} attribute", safe_path(&path.0)), look());
    }
    let whole = if found.complete { "all that is in it" } else { "and not all that is in it" };
    draft.fact(format!("{} objects of the {what} were looked at, {whole}", found.looked), look());
    if let Some(word) = to_go {
        word.tell(&mut draft);
    }
    let who = match &tree.owner {
        Owner::Pod(pod) => of_pod(&mut draft, pod),
        Owner::Container(state) => of_container(&mut draft, state),
    };
    draft.fact("no attempt to delete it was seen yet", Source::Inference);
    draft.explanation = format!(
        "{who} deletes what is in this {what}, and the file system refuses to remove what carries such an \
         attribute, also to root. Everything else is removed, and every attempt fails at the same place. Ask who \
         set it: hardening scripts do, and so do intruders."
    );
    // Where it cannot be asked whose namespace is ours, the process's own view serves as well.
    let (pid, namespace) = tree.seen_by;
    let view = View::in_namespace(context, namespace, pid);
    let files = found.files.iter().copied().map(Some).chain(std::iter::repeat(None));
    for ((path, attributes), file) in found.objects.iter().zip(files) {
        let cause = cause_of(*attributes)?;
        let flag = flag(cause).0;
        draft.remedy(
            view.on_file(&unflag(cause), &path.0, file, |it| format!("chattr -{flag} {it}")),
            format!(
                "low: removes the protection of this one object; {who}'s next attempt deletes it"
            ),
        );
    }
    if let Owner::Container(state) = &tree.owner {
        let is_pods = state.container.pod.is_some();
        ask_dockerd_again(&mut draft, &state.container.id, is_pods);
    }
    let is_immutable = *cause == IMMUTABLE_ATTRIBUTE;
    let other = if is_immutable { ids::APPEND_ONLY_ATTRIBUTE } else { ids::IMMUTABLE_ATTRIBUTE };
    draft.rule_out(other, format!("the attribute is `{}`", flag(cause).0));
    draft.suffices_beside(ids::SWAPFILE_ACTIVE);
    Some(draft)
}
