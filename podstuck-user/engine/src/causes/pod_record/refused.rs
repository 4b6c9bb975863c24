//! Pods that the node has finished, and whose record stays because the API server refuses kubelet's last update or
//! deletion: by a webhook, or for lack of permission. kubelet's status manager logs that at each attempt.

use crate::cause::Origin;
use crate::model::degraded::Feed;
use std::{collections::BTreeMap, time::Duration};

use crate::{
    cause::{Cause, Kind, TriedWith, absent, log, seen, way},
    causes::shared::repeated::{OfPods, Repeated},
    command::Step,
    event::{Event, What},
    ids,
    model::{
        chain::Who,
        diagnosis::Stage,
        evidence::Source,
        finding::Severity,
        identity::{Component, Pod},
        node::{NodeSample, PodState},
        path::safe,
        said::Said,
        shell::is_object_name,
        time::Monotonic,
    },
    stage,
    tracker::{Context, Steps, Tracker, TrackerId},
    verdict::{Draft, Verdict},
};

/// How long a line counts. kubelet's status manager retries every ten seconds (`syncPeriod` in pkg/kubelet/status).
const FRESH: Duration = Duration::from_secs(60);

/// Messages of kubelet's status manager about failed requests (pkg/kubelet/status/status_manager.go, `syncPod`).
const FAILURES: [&str; 3] = [
    "Failed to delete status for pod: ",
    "Failed to update status for pod: ",
    "Failed to get status for pod: ",
];

/// The API server refuses kubelet's request.
pub(crate) static STATUS_REFUSED: Cause = Cause {
    id: ids::STATUS_UPDATE_REFUSED,
    title: "the API server or a webhook refuses kubelet's last request about the pod",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The node is done with the pod. kubelet reports that and requests the deletion of \
        the record, and the API server refuses: an admission webhook denies the request or does \
        not answer, an admission policy denies it, or kubelet's credentials have expired or lack the right. kubelet retries \
        every ten seconds.",
    confirmed_by: &[
        seen(
            "kubelet's log says at each attempt that the status of the pod could not be updated or deleted, and why; or the API \
             server refuses the same request in a dry run, with the user name of the node",
            &[Origin::Log, Origin::Api],
        ),
        absent("neither processes nor volumes of the pod are left on the node", Feed::Node),
    ],
    log: log("kubelet", "Failed to delete status for pod"),
    look_alikes: &[],
    ways_out: &[
        way("restore the webhook's service", ""),
        way(
            "exempt pods or nodes from the webhook, or set its failurePolicy to Ignore",
            "requests that it should refuse are admitted meanwhile",
        ),
        way("renew kubelet's credentials", ""),
    ],
    field: &["kyverno#16281", "csm#2023"],
    tried: &[TriedWith::Test, TriedWith::ApiServer, TriedWith::Objects],
    source: &[
        "kubernetes pkg/kubelet/status/status_manager.go, syncPod",
        "kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook",
    ],
};

/// Refused requests, by UID.
#[derive(Default)]
pub(crate) struct StatusRefusals {
    refusals: OfPods,
    /// By UID: the target of the finding.
    found: BTreeMap<String, u64>,
}

impl StatusRefusals {
    fn listen(&mut self, context: &Context<'_>, said: &Said) {
        let is_failure = FAILURES.iter().any(|failure| said.text.starts_with(failure));
        if said.component != Component::Kubelet || !is_failure || who(&said.text).is_none() {
            return;
        }
        self.refusals.note(context, said);
    }

    fn sampled(&mut self, context: &Context<'_>, sample: &NodeSample, steps: &mut Steps) {
        let (tracker, at) = (TrackerId::StatusRefused, sample.at);
        let mut before = std::mem::take(&mut self.found);
        for (uid, refusal) in self.refusals.iter() {
            let is_fresh = refusal.lines >= 2 && context.now.since(refusal.last) <= FRESH;
            let named = sample.pod(uid).map(PodState::named);
            let unnamed = || Pod { uid: uid.clone(), namespace: None, name: None };
            let pod = named.unwrap_or_else(unnamed);
            let stage = stage::stage(&pod, sample).filter(|it| it.stage >= Stage::Directories);
            let Some(stage) = stage.filter(|_| is_fresh) else { continue };
            let Some(draft) = draft(refusal, pod, &stage.fact, at) else { continue };
            before.remove(uid);
            self.found.insert(uid.clone(), draft.target_id);
            steps.found([draft]);
        }
        let over = before.into_values();
        steps.say(over.map(|target_id| Verdict::Over { tracker, target_id, at }));
    }
}

impl Tracker for StatusRefusals {
    fn id(&self) -> TrackerId {
        TrackerId::StatusRefused
    }

    fn take(&mut self, event: &Event, context: &Context<'_>, steps: &mut Steps) {
        match &event.what {
            What::Said(said) => self.listen(context, said),
            What::Sample(sample) => self.sampled(context, sample, steps),
            _ => {}
        }
    }

    fn dropped(&self) -> u64 {
        self.refusals.dropped()
    }
}

/// The component that refuses, by the API server's error.
#[derive(Debug, PartialEq, Eq)]
enum Refuser<'a> {
    /// A webhook, and the name and namespace of its service if the error has the address.
    Webhook { name: &'a str, service: Option<(&'a str, &'a str)> },
    /// A ValidatingAdmissionPolicy, by its binding.
    Policy { name: &'a str, binding: &'a str },
    /// The API server itself, because of kubelet's credentials.
    Credentials,
    /// The API server itself: kubelet lacks the permission.
    Rights,
}

fn who(error: &str) -> Option<Refuser<'_>> {
    let quoted = |before: &str| {
        let (_, rest) = error.split_once(before)?;
        rest.split_once('"').map(|(name, _)| name)
    };
    let webhook = quoted("failed calling webhook \"").or_else(|| quoted("admission webhook \""));
    if let Some(name) = webhook {
        let host = error.split_once("https://").map(|(_, rest)| rest);
        let host = host.and_then(|rest| rest.split([':', '/', '"']).next());
        let service = host.and_then(|host| {
            let (name, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
            (is_object_name(name) && is_object_name(namespace)).then_some((name, namespace))
        });
        return Some(Refuser::Webhook { name, service });
    }
    if let Some((name, binding)) = policy(error) {
        return Some(Refuser::Policy { name, binding });
    }
    let has = |words: &[&str]| words.iter().any(|words| error.contains(words));
    if has(&["Unauthorized", "certificate has expired"]) {
        return Some(Refuser::Credentials);
    }
    // The node authorizer's answer also about a pod that no longer exists, or is on another node (plugin/pkg/auth/authorizer/node):
    // no such record waits for this kubelet.
    let is_unrelated = has(&["no relationship found between node"]);
    (has(&["is forbidden"]) && !is_unrelated).then_some(Refuser::Rights)
}

/// The policy that denies a request, and its binding (k8s.io/apiserver, pkg/admission/plugin/policy/validating).
fn policy(error: &str) -> Option<(&str, &str)> {
    let (_, rest) = error.split_once("is forbidden: ValidatingAdmissionPolicy '")?;
    let (name, rest) = rest.split_once("' with binding '")?;
    let (binding, _) = rest.split_once("' denied request")?;
    (is_object_name(name) && is_object_name(binding)).then_some((name, binding))
}

fn draft(refusal: &Repeated, pod: Pod, left: &str, at: Monotonic) -> Option<Draft> {
    let refuser = who(&refusal.said.text)?;
    let mut draft = Draft::about_pod(TrackerId::StatusRefused, &STATUS_REFUSED, pod, None, at);
    (draft.severity, draft.blocks_deletion) = (Severity::Warning, Some(true));
    refusal.tell(&mut draft);
    draft.fact(left, Source::Samples);
    let because = match refuser {
        Refuser::Webhook { name, service } => {
            let name = safe(name.as_bytes()).into_owned();
            let of = service.map(|(service, namespace)| {
                format!(" (service {service} in namespace {namespace})")
            });
            let who = Who::object(format!("the admission webhook {name}"));
            draft.held_by(who.and(&of.unwrap_or_default()));
            if let Some((service, namespace)) = service {
                draft.remedy(
                    Step::new(
                        format!("show whether the webhook's service {service} has endpoints that are ready"),
                        format!(
                            "kubectl --namespace {namespace} get endpointslices --selector \
                             kubernetes.io/service-name={service}"
                        ),
                    ),
                    "none",
                );
            }
            draft.remedy(
                Step::new(
                    "list the admission webhooks, with their services and failure policies",
                    "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations --output \
                     custom-columns=KIND:.kind,NAME:.metadata.name,WEBHOOKS:.webhooks[*].name,SERVICE:.webhooks[*].\
                     clientConfig.service.name,FAILURE:.webhooks[*].failurePolicy",
                ),
                "none",
            );
            draft.advice(
                "restore the webhook's service: kubelet's next attempt succeeds, within ten seconds",
                "none",
            );
            draft.advice(
                "if that takes long, exempt pods of this namespace from the webhook, or set its \
                failurePolicy to Ignore",
                "requests that it should refuse are admitted meanwhile",
            );
            "an admission webhook denies it or does not answer"
        }
        Refuser::Policy { name, binding } => {
            let who = Who::object(format!("the ValidatingAdmissionPolicy {name}"));
            draft.held_by(who.and(&format!(" (binding {binding})")));
            let show =
                format!("kubectl get validatingadmissionpolicybinding {binding} --output yaml");
            draft.remedy(Step::new("show to what the policy's binding applies", show), "none");
            draft.advice(
                "exempt kubelet's requests (group system:nodes) or this namespace from the policy, by its \
                matchConditions or by matchResources of the binding",
                "requests that it should refuse are admitted meanwhile",
            );
            "a ValidatingAdmissionPolicy denies it"
        }
        Refuser::Credentials => {
            draft.held_by(Who::object("kubelet's credentials"));
            draft.remedy(
                Step::new(
                    "show until when kubelet's client certificate is valid",
                    "openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem",
                ),
                "none",
            );
            draft.advice(
                "renew kubelet's credentials, and restart kubelet",
                "low: containers keep running",
            );
            "the API server does not accept kubelet's credentials"
        }
        Refuser::Rights => {
            draft.held_by(Who::object("the API server's authorization or admission"));
            draft.advice(
                "restore kubelet's rights of system:node, or remove the obstacle that the error \
                names",
                "none",
            );
            "the API server forbids it"
        }
    };
    draft.explanation = format!(
        "The node is done with the pod, and kubelet's last request about it is refused: {because}. The record stays until \
         that request succeeds; nothing on this node holds the pod."
    );
    Some(draft)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        model::{evidence::Certainty, said},
        testing::{Alone, found, holder_of, pod_state},
    };

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
    /// As in kyverno issue 16281.
    const WEBHOOK: &str = "Failed to delete status for pod: Internal error occurred: failed calling webhook \
        \"mutate.kyverno.svc-fail\": failed to call webhook: Post \
        \"https://kyverno-svc.kyverno.svc:443/mutate/fail?timeout=10s\": dial tcp 10.30.144.165:443: connect: no route \
        to host";

    fn verdict(text: &str, source: &str, second: i64, state: Option<PodState>) -> Option<Draft> {
        let mut alone = Alone::<StatusRefusals>::new();
        let at = Timestamp::from_second(second).unwrap();
        let said = Said::new(Component::Kubelet, source, UID, at, text);
        let now = Monotonic(600_000_000_000);
        alone.take(now, What::Said(Box::new(Said { times: 4, ..said })));
        let pods = state.into_iter().collect();
        let sample = NodeSample { at: now, pods, ..NodeSample::default() };
        found(alone.take(now, What::Sample(sample.into())).verdicts).pop()
    }

    #[test]
    fn a_webhook_that_refuses_kubelet_is_named_with_its_service() {
        for state in [None, Some(pod_state(UID))] {
            let draft = verdict(WEBHOOK, "log of kubelet", 590, state).unwrap();
            draft.assert_is("status-update-refused", Certainty::Firm);
            let by = "the admission webhook mutate.kyverno.svc-fail (service kyverno-svc in namespace kyverno)";
            assert_eq!(holder_of(&draft.held_by), by);
            assert!(draft.remedies[0].words().contains("--namespace kyverno"));
        }
        let unproven = verdict(WEBHOOK, &said::unproven("log of kubelet"), 590, None).unwrap();
        assert_eq!(unproven.certainty(), Certainty::Likely, "{:?}", unproven.not_known());
    }

    #[test]
    fn a_policy_that_refuses_kubelet_is_named_with_its_binding() {
        let text = "Failed to delete status for pod: pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'keep' with \
            binding 'keep-all' denied request: no";
        let draft = verdict(text, "log of kubelet", 590, None).unwrap();
        draft.assert_is("status-update-refused", Certainty::Firm);
        let by = "the ValidatingAdmissionPolicy keep (binding keep-all)";
        assert_eq!(holder_of(&draft.held_by), by);
        assert!(draft.remedies[0].words().contains("validatingadmissionpolicybinding keep-all"));
    }

    #[test]
    fn old_lines_and_lines_about_a_running_pod_are_ignored() {
        assert!(verdict(WEBHOOK, "log", 500, None).is_none());
        let runs = PodState { populated: Some(true), ..pod_state(UID) };
        assert!(verdict(WEBHOOK, "log", 590, Some(runs)).is_none());
        let away =
            "Failed to update status for pod: dial tcp 10.0.0.1:6443: connect: connection refused";
        assert!(verdict(away, "log", 590, None).is_none(), "no server refuses");
    }

    #[test]
    fn the_refuser_is_read_from_the_error() {
        let denied = "admission webhook \"a.b\" denied the request: no";
        assert_eq!(who(denied), Some(Refuser::Webhook { name: "a.b", service: None }));
        assert_eq!(who("Unauthorized"), Some(Refuser::Credentials));
        assert_eq!(who("pods \"x\" is forbidden: no"), Some(Refuser::Rights));
        let unrelated = "pods \"x\" is forbidden: User \"system:node:n1\" cannot get resource \"pods\": no relationship found \
            between node 'n1' and this object";
        assert_eq!(who(unrelated), None);
        let denied = "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'no-delete.example' with binding 'all' denied \
            request: keep it";
        assert_eq!(
            who(denied),
            Some(Refuser::Policy { name: "no-delete.example", binding: "all" })
        );
        let hostile = denied.replace("'all'", "'$(id)'");
        assert_eq!(who(&hostile), Some(Refuser::Rights));
        let hostile = "failed calling webhook \"a\": Post \"https://$(id).x.svc:443/\"";
        assert_eq!(who(hostile), Some(Refuser::Webhook { name: "a", service: None }));
    }
}
