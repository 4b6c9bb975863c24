//! Admission that refuses the request by which a controller removes its finalizer, or with which kubelet ends its part. No
//! object records this: the API server shows it in a dry run of that request, with the user name of the controller or the
//! node. That takes a right which permits more than reading, so the request is made only if the caller asks for it.

use super::{
    case::{Case, State, api, draft},
    remedy, webhook,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, seen, way},
    causes::pod_record::STATUS_REFUSED,
    ids,
    model::{
        chain::Who,
        cluster::{
            self, By, Facts, Key, Known, Last, LastRequest, Meta, Object, Refusal, Removal, Webhook,
        },
        diagnosis::Stage,
        path::safe,
        remedy::Remedy,
        shell::is_object_name,
    },
    verdict::Draft,
};

/// Admission refuses the removal of a finalizer.
pub(crate) static REMOVAL_REFUSED: Cause = Cause {
    id: ids::FINALIZER_REMOVAL_REFUSED,
    title: "the API server refuses the request by which a controller removes its finalizer",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "A controller of kube-controller-manager, such as the Job controller, removes its \
        finalizer by an update of the object. An admission webhook or a ValidatingAdmissionPolicy \
        denies that update, the call of a webhook fails, or a mutating webhook changes a field \
        that is immutable. The controller repeats the request, and writes the error into its \
        log only.",
    confirmed_by: &[seen(
        "the API server refuses the same request in a dry run, with the user name of the controller",
        &[Origin::Api],
    )],
    log: None,
    look_alikes: &[],
    ways_out: &[
        way("make the webhook or policy admit updates of objects that are being deleted", ""),
        way(
            "exempt updates from the webhook until the object is gone",
            "updates that it should refuse are admitted meanwhile",
        ),
    ],
    field: &[
        "kyverno#8815",
        "kubernetes#121605",
        "kubernetes#109164",
        "azure-workload-identity#647",
    ],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/controller/job/job_controller.go, removeTrackingFinalizerFromPods",
        "kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go",
    ],
};

/// Length of an API server's message in an answer, in characters.
const SHOWN: usize = 500;

/// The request that removes a finalizer of a controller that sends PATCH, with its service account.
pub(super) fn removal(case: &Case, meta: &Meta, finalizer: &str) -> Option<Removal> {
    let account = match finalizer {
        super::job::TRACKING => "job-controller",
        "foregroundDeletion" | "orphan" => "generic-garbage-collector",
        _ => return None,
    };
    (case.state == State::Overdue).then(|| Removal::new(&case.key, meta, finalizer, account))
}

/// The finding, if the API server refuses the request.
pub(super) fn judge(removal: &Removal, facts: &Facts) -> Option<Draft> {
    if !facts.tries_removals {
        return None;
    }
    let Refusal { by, message } = facts.refusal(removal.clone()).is()?;
    let mut draft = draft(&REMOVAL_REFUSED);
    let user = removal.user();
    let what = format!("the removal of the finalizer by {user}");
    said(&mut draft, &by, &message, &what, facts);
    if facts.object(&removal.account()).is_missing() {
        draft.doubt(
            "whether the controller uses that user name: the service account does not exist",
        );
    }
    release(&mut draft, &by, ("UPDATE", &removal.key.kind.plural), &removal.key.kind, facts);
    draft.explanation = "The API server keeps the object until the finalizer is removed, and \
        admission refuses the controller's request that removes it. The command that removes a \
        finalizer is such a request, too: it is refused unless admission admits it for its user."
        .into();
    Some(draft)
}

/// Adds what refuses a request, and the API server's message.
fn said(draft: &mut Draft, by: &By, message: &str, what: &str, facts: &Facts) {
    draft.held_by(match by {
        By::Webhook(name) => {
            Who::object(format!("the webhook {name}")).and(", which denies the request")
        }
        By::Call(name) => Who::object(format!("the webhook {name}")).and(", whose call fails"),
        By::Policy(name) => Who::object(format!("the ValidatingAdmissionPolicy {name}")),
        By::Validation => Who::object("admission").and(", after which the object is not valid"),
    });
    let short: String = message.chars().take(SHOWN).collect();
    let short = safe(short.trim().as_bytes()).into_owned();
    draft.fact(format!("the API server refuses {what}, in a dry run: {short}"), api(facts.now));
}

/// Adds the remedies for admission that refuses a request: operation and resource, about an object of this type.
fn release(draft: &mut Draft, by: &By, request: (&str, &str), kind: &cluster::Kind, facts: &Facts) {
    let of = match request.0 {
        "DELETE" => "deletions by nodes",
        _ => "updates of objects that are being deleted",
    };
    match by {
        By::Webhook(name) => {
            draft.advice(
                format!("make the webhook admit {of}: the message says what it refuses"),
                "none",
            );
            draft
                .remedies
                .extend(of_webhook(name, facts, |key, it, at| exempt(key, it, at, request, kind)));
        }
        By::Call(name) => {
            draft.doubt("whether each call of the webhook fails: one did");
            draft.remedies.extend(of_webhook(name, facts, webhook::ignore_failure));
        }
        By::Policy(name) => {
            draft.advice(
                format!("make the policy admit {of}: the message says what it refuses"),
                "none",
            );
            if is_object_name(name) {
                draft.remedies.push(remedy::show(
                    format!("show the policy {name}"),
                    format!("kubectl get validatingadmissionpolicies.admissionregistration.k8s.io {name} --output yaml"),
                ));
            }
        }
        By::Validation => {
            draft.advice(
                "find the mutating webhook that changes the field which the message names, and make it leave objects that \
                 exist unchanged (kubectl get mutatingwebhookconfigurations)",
                "none",
            );
        }
    }
}

/// The findings about kubelet's last requests that the API server refuses. `has_ended`: all containers have, by kubelet's
/// report.
pub(super) fn of_kubelet(case: &Case, pod: &Object, has_ended: bool, facts: &Facts) -> Vec<Draft> {
    if !facts.tries_removals || case.state != State::Overdue || !is_object_name(&pod.spec.node_name)
    {
        return Vec::new();
    }
    let all = [Last::Deletion, Last::Status];
    // Each is asked for before the first is judged, so that both are read at a time.
    let refused = all.map(|what| {
        let request = LastRequest::new(&case.key, pod, what);
        (facts.refusal_of_last(request.clone()), request)
    });
    let known = refused.into_iter().filter_map(|(refusal, request)| Some((refusal.is()?, request)));
    known.map(|(refusal, request)| of_last(&refusal, &request, has_ended, facts)).collect()
}

fn of_last(refusal: &Refusal, request: &LastRequest, has_ended: bool, facts: &Facts) -> Draft {
    let Refusal { by, message } = refusal;
    let mut draft = draft(&STATUS_REFUSED);
    let what = format!("{} by {}", request.what.words(), request.user());
    said(&mut draft, by, message, &what, facts);
    draft.fact(
        if has_ended {
            "kubelet has reported that all containers of the pod have ended"
        } else {
            "kubelet has not reported that all containers of the pod have ended"
        },
        api(facts.now),
    );
    match (request.what, has_ended) {
        (Last::Deletion, true) => draft.doubt(
            "whether kubelet has reached the deletion of the record: the API does not show the pod's mounted volumes",
        ),
        (Last::Deletion, false) => {
            draft.is_later = true;
            draft.lacks("that nothing of the pod is left on its node");
        }
        (Last::Status, _) => draft.doubt(
            "whether kubelet has something to report: the API shows its last report that was admitted",
        ),
    }
    release(&mut draft, by, request.what.names(), &request.key.kind, facts);
    draft.explanation = match request.what {
        Last::Deletion => "The API server removes the record when kubelet requests it, after nothing of the pod is left on \
            the node, and admission refuses that request. kubelet repeats it."
            .into(),
        Last::Status => "kubelet reports by updates of the status that the pod's containers have ended, and admission \
            refuses these. kubelet requests the deletion of the record only after such a report was admitted."
            .into(),
    };
    draft
}

/// Adds to the finding about the finalizer what the dry run shows, or how to make one.
pub(super) fn remark(draft: &mut Draft, removal: &Removal, facts: &Facts) {
    if !facts.tries_removals {
        draft.remedies.extend(remedy::podstuck(
            format!(
                "show whether the API server refuses to remove the finalizer from {}, by a dry run",
                removal.key
            ),
            &removal.key,
            " --via-dry-run",
        ));
    } else if facts.refusal(removal.clone()) == Known::Missing {
        let user = removal.user();
        draft.fact(
            format!("in a dry run, the API server admits the removal of the finalizer by {user}"),
            api(facts.now),
        );
    }
}

/// The commands about the one webhook of this name.
fn of_webhook(
    name: &str,
    facts: &Facts,
    lift: impl Fn(&Key, &Object, usize) -> Option<Remedy>,
) -> Vec<Remedy> {
    let kinds = [cluster::Kind::MUTATING, cluster::Kind::VALIDATING];
    let mut found = Vec::new();
    for kind in kinds {
        let all = facts.all(&kind, None, None).is().unwrap_or_default();
        for of in all.iter() {
            let named = of.webhooks.iter().enumerate().filter(|(_, it)| it.name == name);
            found.extend(named.map(|(at, _)| (kind.clone(), of.clone(), at)));
        }
    }
    let [(kind, of, at)] = &found[..] else { return Vec::new() };
    let key = Key::global(kind.clone(), &of.metadata.name);
    let show = is_object_name(&key.name).then(|| {
        remedy::show(
            format!("show the configuration of the webhook {name}"),
            format!("kubectl get {} {} --output yaml", kind.for_kubectl(), key.name),
        )
    });
    show.into_iter().chain(lift(&key, of, *at)).collect()
}

/// Removes an operation from the rules of a webhook that cover this request about objects of this type.
fn exempt(
    key: &Key,
    of: &Object,
    at: usize,
    (operation, resource): (&str, &str),
    kind: &cluster::Kind,
) -> Option<Remedy> {
    let webhook: &Webhook = of.webhooks.get(at)?;
    let path = format!("/webhooks/{at}");
    let mut steps = vec![
        serde_json::json!({"op": "test", "path": format!("{path}/name"), "value": webhook.name}),
    ];
    // From the last, so that the places of the others stay.
    for (number, rule) in webhook.rules.iter().enumerate().rev() {
        if !webhook::covers(rule, webhook, operation, kind, resource) {
            continue;
        }
        let is_any = rule.operations.iter().any(|it| it == "*");
        let others: Vec<&str> = ["CREATE", "UPDATE", "DELETE", "CONNECT"]
            .into_iter()
            .filter(|it| *it != operation)
            .filter(|it| is_any || rule.operations.iter().any(|has| has == it))
            .collect();
        let rule = format!("{path}/rules/{number}");
        steps.push(if others.is_empty() {
            serde_json::json!({"op": "remove", "path": rule})
        } else {
            serde_json::json!({"op": "replace", "path": format!("{rule}/operations"), "value": others})
        });
    }
    let what = if operation == "DELETE" { "deletions" } else { "updates" };
    remedy::patch(
        format!("do not call the webhook {} for {what}", webhook.name),
        key,
        &of.metadata,
        &steps,
        format!(
            "{what} of {resource} that it should refuse are admitted until {operation} is in its rules again; a controller \
             that manages the configuration may restore it at once"
        ),
    )
}
