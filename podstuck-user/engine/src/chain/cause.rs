//! The link of the cause that holds the pod.

use super::link::seen;
use crate::{
    catalogue,
    cause::CauseId,
    ids,
    model::{
        chain::{Link, Who},
        diagnosis::PodStage,
        finding::Finding,
        path::safe_path,
    },
};

/// Causes inside kubelet: all later steps wait for it.
pub(super) const OF_KUBELET: [CauseId; 3] =
    [ids::KUBELET_MISSED_DELETION, ids::KUBELET_STEP_FAILS, ids::POD_NEVER_STARTED];

/// Whether a cause lies inside kubelet.
pub(crate) fn is_of_kubelet(id: CauseId) -> bool {
    OF_KUBELET.contains(&id)
}

/// Whom kubelet waits for where a cause inside kubelet has another holder.
pub(crate) fn waited_for(cause: &Finding) -> Option<&Who> {
    let who = cause.held_by.as_ref().filter(|_| is_of_kubelet(cause.id))?;
    (who.name != "kubelet").then_some(who)
}

/// The first finding that blocks the pod.
pub(crate) fn holding<'a>(pod: &PodStage, causes: &'a [Finding]) -> Option<&'a Finding> {
    causes.iter().find(|cause| {
        let is_of_pod = cause.pod.as_ref().is_none_or(|it| it.uid == pod.pod.uid);
        is_of_pod && cause.blocks_deletion == Some(true)
    })
}

/// The link of that finding.
pub(super) fn of_cause(pod: &PodStage, causes: &[Finding]) -> Option<Link> {
    let cause = holding(pod, causes)?;
    let (who, must) = match &cause.held_by {
        Some(who) => (who.clone(), cause.must.map_or_else(|| release(who, cause), str::to_owned)),
        None => (Who::object(safe_path(&cause.call.path.0)), "be released".to_owned()),
    };
    let sure = cause.certainty.word();
    let fact = catalogue::title(cause.id).unwrap_or_default().to_owned();
    let waits_for = cause.waits_for.clone();
    let source = format!("cause {}, {sure}", cause.id);
    let link = seen(who, &must, waits_for, fact, &source);
    Some(Link { since: Some(cause.first), explained_by: Some(cause.id), ..link })
}

/// What the holder must do by default.
pub(super) fn release(who: &Who, cause: &Finding) -> String {
    let path = safe_path(&cause.call.path.0);
    match path.is_empty() || who.to_string().contains(&*path) {
        true => "release the pod".to_owned(),
        false => format!("release {path}"),
    }
}

/// Adds the cause to the link of the process or object that it names, or else at the end. Links behind it are
/// dropped, unless it waits for the next one.
pub(super) fn end_with(links: &mut Vec<Link>, reason: Option<Link>) {
    let Some(reason) = reason else { return };
    let Some(at) = links.iter().position(|link| link.who.is(&reason.who)) else {
        links.push(reason);
        return;
    };
    let next = links.get(at + 1).map(|next| next.who.to_string());
    let link = &mut links[at];
    // As in `nc (pid 9) to end`, or `a mutex of the kernel, held by nc (pid 9)`.
    let waits_for_next =
        next.is_some_and(|next| link.waits_for.as_ref().is_some_and(|what| what.contains(&next)));
    link.facts.extend(reason.facts);
    (link.explained_by, link.not_visible) = (reason.explained_by, None);
    link.since = link.since.or(reason.since);
    if !waits_for_next {
        // A wait for the dropped links is not the cause.
        let is_last = links.len() == at + 1;
        let supposed = links[at].waits_for.take().filter(|_| is_last);
        links[at].waits_for = reason.waits_for.or(supposed);
        links.truncate(at + 1);
    }
}
