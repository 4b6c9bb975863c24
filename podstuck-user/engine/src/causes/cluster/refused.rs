//! Admission that refuses the request by which a controller removes its finalizer. No object records this: the API server
//! shows it in a dry run of that request, with the controller's user name. That takes a right which permits more than
//! reading, so the request is made only if the caller asks for it.

use super::{
    case::{Case, State, api, draft},
    remedy, webhook,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, seen, way},
    ids,
    model::{
        cluster::{self, By, Facts, Key, Known, Meta, Object, Refusal, Removal, Webhook},
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
    draft.held_by(match &by {
        By::Webhook(name) => format!("the webhook {name}, which denies the request"),
        By::Call(name) => format!("the webhook {name}, whose call fails"),
        By::Policy(name) => format!("the ValidatingAdmissionPolicy {name}"),
        By::Validation => "admission, after which the object is not valid".into(),
    });
    let short: String = message.chars().take(SHOWN).collect();
    let user = removal.user();
    draft.fact(
        format!(
            "the API server refuses the removal of the finalizer by {user}, in a dry run: {}",
            safe(short.trim().as_bytes())
        ),
        api(facts.now),
    );
    if facts.object(&removal.account()).is_missing() {
        draft.doubt(
            "whether the controller uses that user name: the service account does not exist",
        );
    }
    match &by {
        By::Webhook(name) => {
            draft.advice(
                "make the webhook admit updates of objects that are being deleted: the message says what it refuses",
                "none",
            );
            draft.remedies.extend(of_webhook(name, removal, facts, exempt));
        }
        By::Call(name) => {
            draft.doubt("whether each call of the webhook fails: one did");
            draft.remedies.extend(of_webhook(name, removal, facts, |key, of, at, _| {
                webhook::ignore_failure(key, of, at)
            }));
        }
        By::Policy(name) => {
            draft.advice(
                "make the policy admit updates of objects that are being deleted: the message says what it refuses",
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
    draft.explanation = "The API server keeps the object until the finalizer is removed, and \
        admission refuses the controller's request that removes it. The command that removes a \
        finalizer is such a request, too: it is refused unless admission admits it for its user."
        .into();
    Some(draft)
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
    removal: &Removal,
    facts: &Facts,
    lift: impl Fn(&Key, &Object, usize, &cluster::Kind) -> Option<Remedy>,
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
    show.into_iter().chain(lift(&key, of, *at, &removal.key.kind)).collect()
}

/// Removes UPDATE from the rules of a webhook that cover objects of this type.
fn exempt(key: &Key, of: &Object, at: usize, kind: &cluster::Kind) -> Option<Remedy> {
    let webhook: &Webhook = of.webhooks.get(at)?;
    let path = format!("/webhooks/{at}");
    let mut steps = vec![
        serde_json::json!({"op": "test", "path": format!("{path}/name"), "value": webhook.name}),
    ];
    // From the last, so that the places of the others stay.
    for (number, rule) in webhook.rules.iter().enumerate().rev() {
        if !webhook::covers(rule, webhook, "UPDATE", kind, &kind.plural) {
            continue;
        }
        let is_any = rule.operations.iter().any(|it| it == "*");
        let others: Vec<&str> = ["CREATE", "DELETE", "CONNECT"]
            .into_iter()
            .filter(|it| is_any || rule.operations.iter().any(|has| has == it))
            .collect();
        let rule = format!("{path}/rules/{number}");
        steps.push(if others.is_empty() {
            serde_json::json!({"op": "remove", "path": rule})
        } else {
            serde_json::json!({"op": "replace", "path": format!("{rule}/operations"), "value": others})
        });
    }
    remedy::patch(
        format!("do not call the webhook {} for updates", webhook.name),
        key,
        &of.metadata,
        &steps,
        format!(
            "updates of {} that it should refuse are admitted until UPDATE is in its rules again; a controller that \
             manages the configuration may restore it at once",
            kind.plural
        ),
    )
}
