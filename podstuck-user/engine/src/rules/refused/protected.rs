//! What is said of attributes that were found before anybody was seen to fail because of them.

use super::{IMMUTABLE_ATTRIBUTE, cause_of, flag};
use crate::{
    cause::id,
    command::View,
    model::{evidence::Source, object::Protected, path::safe_path},
    tracker::{Context, TrackerId},
    trackers::{protected::Looked, to_go::Word},
    verdict::Draft,
};

/// The finding; `None` when nothing was found.
pub(crate) fn draft(
    context: &Context<'_>,
    looked: &Looked,
    found: &Protected,
    to_go: Option<&Word>,
) -> Option<Draft> {
    let (first, attributes) = found.objects.first()?;
    let cause = cause_of(*attributes)?;
    let Looked { pod, volume, since, .. } = looked;
    let mut draft = Draft::about_state(
        TrackerId::Protected,
        cause,
        volume.target_id,
        volume.target.clone(),
        first.0.clone(),
        context.now,
    );
    draft.first = since.unwrap_or(context.now);
    draft.blocks_deletion = Some(true);
    let look = || Source::Look("statx of what is in the volume");
    for (path, attributes) in &found.objects {
        let word = flag(cause_of(*attributes)?).1;
        draft.fact(format!("{} has the {word} attribute", safe_path(&path.0)), look());
    }
    let whole = if found.complete { "all that is in it" } else { "and there is more" };
    draft.fact(format!("{} objects of the volume were looked at, {whole}", found.looked), look());
    if let Some(word) = to_go {
        word.tell(&mut draft);
    }
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
    draft.fact("no attempt to delete it was seen yet", Source::Inference);
    draft.explanation = "kubelet deletes what is in this volume, and the file system refuses to remove \
        what carries such an attribute, also to root. Everything else is removed, and every attempt \
        fails at the same place. Ask who set it: hardening scripts do, and so do intruders."
        .into();
    // Where it cannot be asked whose namespace is ours, the process's own view serves as well.
    let (pid, namespace) = pod.seen_by?;
    let view = View::in_namespace(context, namespace, pid);
    let files = found.files.iter().copied().map(Some).chain(std::iter::repeat(None));
    for ((path, attributes), file) in found.objects.iter().zip(files) {
        let flag = flag(cause_of(*attributes)?).0;
        draft.remedy(
            view.on_file(&path.0, file, |it| format!("chattr -{flag} {it}")),
            "low: removes the protection of this one object; kubelet's next attempt deletes it",
        );
    }
    let is_immutable = *cause == IMMUTABLE_ATTRIBUTE;
    let other =
        if is_immutable { id!("append-only-attribute") } else { id!("immutable-attribute") };
    draft.rule_out(other, format!("the attribute is `{}`", flag(cause).0));
    draft.suffices_beside(id!("swapfile-active"));
    Some(draft)
}
