//! Admission webhooks that must be called for a request, and have no ready endpoint.

use super::{
    case::{Case, api, draft},
    remedy,
};
use crate::{
    cause::{Cause, Kind, Origin, TriedWith, like, seen, way},
    ids,
    model::{
        chain::Who,
        cluster::{self, Facts, Key, Known, Object, Rule, ServiceRef, Webhook},
        diagnosis::Stage,
        path::safe,
        remedy::Remedy,
        shell::is_object_name,
    },
    verdict::Draft,
};

/// The webhook is down.
pub(crate) static UNAVAILABLE: Cause = Cause {
    id: ids::WEBHOOK_UNAVAILABLE,
    title: "an admission webhook must be called for the request that would release the object, and its service has no ready \
        endpoint",
    stage: Stage::Api,
    kind: Kind::Cause,
    meaning: "The object is removed when a client updates it or kubelet deletes it. For that \
        request the API server must call a webhook whose failurePolicy is Fail, and the \
        webhook's service has no ready endpoint: the request is refused, each time. The command \
        that removes a finalizer is such a request, too.",
    confirmed_by: &[
        seen(
            "a webhook configuration with failurePolicy Fail covers the request and the object",
            &[Origin::Api],
        ),
        seen("the webhook's service has no ready endpoint", &[Origin::Api]),
    ],
    log: None,
    look_alikes: &[
        like(
            ids::FINALIZER_CONTROLLER_GONE,
            "the request would be refused, whether or not a controller makes it",
        ),
        like(
            ids::DAEMONSET_NOT_SYNCED,
            "the request would be refused, whether or not the DaemonSet controller makes it",
        ),
    ],
    ways_out: &[
        way("start the pods of the webhook's service", ""),
        way(
            "set the webhook's failurePolicy to Ignore until they run",
            "requests that it should refuse are admitted meanwhile",
        ),
    ],
    field: &["kyverno#3037", "kyverno#7243"],
    tried: &[TriedWith::ApiServer, TriedWith::Objects],
    source: &["kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook"],
};

/// Whether a rule covers this operation on a resource of this type.
pub(super) fn covers(
    rule: &Rule,
    webhook: &Webhook,
    operation: &str,
    kind: &cluster::Kind,
    resource: &str,
) -> bool {
    let is_exact = webhook.match_policy.as_deref() == Some("Exact");
    let has = |list: &[String], word: &str| list.iter().any(|it| it == "*" || it == word);
    let (_, part) = resource.split_once('/').unwrap_or((resource, ""));
    let of_resource = |pattern: &String| {
        let (of, of_part) = pattern.split_once('/').unwrap_or((pattern, ""));
        (of == "*" || of == kind.plural) && (of_part == "*" || of_part == part)
    };
    let scope = match rule.scope.as_deref() {
        Some("Namespaced") => kind.namespaced,
        Some("Cluster") => !kind.namespaced,
        _ => true,
    };
    scope
        && has(&rule.operations, operation)
        && has(&rule.api_groups, &kind.group)
        // Without an exact match, the API server converts requests in other versions.
        && (!is_exact || has(&rule.api_versions, &kind.version))
        && rule.resources.iter().any(of_resource)
}

/// Whether the webhook is called for an object, by the labels of the object and its namespace; `None` if not known.
fn selects(webhook: &Webhook, case: &Case, object: &Object, facts: &Facts) -> Option<bool> {
    if !webhook.object_selector.matches(&object.metadata.labels)? {
        return Some(false);
    }
    // A Namespace is matched by its own labels.
    if case.key.kind == cluster::Kind::NAMESPACE {
        return webhook.namespace_selector.matches(&object.metadata.labels);
    }
    let Some(namespace) = &case.key.namespace else { return Some(true) };
    match facts.object(&Key::global(cluster::Kind::NAMESPACE, namespace)) {
        Known::Is(namespace) => webhook.namespace_selector.matches(&namespace.metadata.labels),
        _ => None,
    }
}

/// Whether the service has a ready endpoint; `None` if not known.
fn is_ready(service: &ServiceRef, facts: &Facts) -> Option<bool> {
    match facts.object(&Key::of(cluster::Kind::SERVICE, &service.namespace, &service.name)) {
        Known::Missing => return Some(false),
        // An ExternalName service has no endpoints; another host answers.
        Known::Is(object) if object.spec.kind == "ExternalName" => return None,
        Known::Unread => return None,
        Known::Is(_) => {}
    }
    let labels = format!("kubernetes.io/service-name={}", service.name);
    let of = |kind| facts.all(&kind, Some(&service.namespace), Some(&labels));
    let slices = match of(cluster::Kind::ENDPOINT_SLICE) {
        Known::Missing => of(cluster::Kind::ENDPOINT_SLICE_BETA),
        known => known,
    };
    let Known::Is(slices) = slices else { return None };
    let mut endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    Some(endpoints.any(|endpoint| endpoint.conditions.ready != Some(false)))
}

/// Whether a webhook belongs to a domain: it is named after it, or is called for its objects.
fn is_of_domain(webhook: &Webhook, domain: &str) -> bool {
    let is_below = |name: &str| name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    let is_for =
        |rule: &Rule| !rule.api_groups.is_empty() && rule.api_groups.iter().all(|it| it == domain);
    webhook.name == domain
        || is_below(&webhook.name)
        || !webhook.rules.is_empty() && webhook.rules.iter().all(is_for)
}

/// A sentence about the webhooks of a finalizer's domain, which the program that removes it mostly serves. It is a sign,
/// and no proof: another program may serve them.
pub(super) fn of_domain(finalizer: &str, facts: &Facts) -> Option<String> {
    let (domain, _) = finalizer.split_once('/')?;
    // Kubernetes' own groups have no webhook of their own.
    if !domain.contains('.') || domain.ends_with("kubernetes.io") {
        return None;
    }
    let mut found: Vec<(String, bool)> = Vec::new();
    for kind in [cluster::Kind::MUTATING, cluster::Kind::VALIDATING] {
        let Known::Is(configurations) = facts.all(&kind, None, None) else { continue };
        for webhook in configurations.iter().flat_map(|it| &it.webhooks) {
            let service = webhook.client_config.service.as_ref();
            let Some(service) = service.filter(|_| is_of_domain(webhook, domain)) else { continue };
            let place = format!("{}/{}", service.namespace, service.name);
            found.extend(is_ready(service, facts).map(|ready| (place, ready)));
        }
    }
    let place = |of: &(String, bool)| safe(of.0.as_bytes()).into_owned();
    // One program may serve several.
    let up = found.iter().find(|(_, ready)| *ready).map(place);
    let down = found.iter().find(|(_, ready)| !ready).map(place);
    Some(match (up, down) {
        (Some(up), None) => format!(
            "the webhooks of {} are served by {up}, which has a ready endpoint: a sign that its controller runs, too",
            safe(domain.as_bytes())
        ),
        (None, Some(down)) => format!(
            "the webhooks of {} are served by {down}, which has no ready endpoint: a sign that its controller does not run, \
             either, and no proof",
            safe(domain.as_bytes())
        ),
        _ => return None,
    })
}

/// A draft for each webhook that makes one of these requests about the object fail. A request is (operation, resource).
pub(super) fn judge(
    case: &Case,
    object: &Object,
    facts: &Facts,
    requests: &[(&str, &str)],
) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for kind in [cluster::Kind::MUTATING, cluster::Kind::VALIDATING] {
        let Known::Is(configurations) = facts.all(&kind, None, None) else { continue };
        for configuration in configurations.iter() {
            for (at, webhook) in configuration.webhooks.iter().enumerate() {
                let covered = requests.iter().find(|(operation, resource)| {
                    webhook
                        .rules
                        .iter()
                        .any(|rule| covers(rule, webhook, operation, &case.key.kind, resource))
                });
                let fails = webhook.failure_policy.as_deref() == Some("Fail");
                let (Some(request), true) = (covered, fails) else { continue };
                let Some(service) = &webhook.client_config.service else { continue };
                let selects = selects(webhook, case, object, facts);
                if selects == Some(false) || is_ready(service, facts) != Some(false) {
                    continue;
                }
                let found = Refusal { kind: &kind, configuration, at, webhook, service };
                drafts.push(found.draft(*request, selects.is_some(), facts));
            }
        }
    }
    drafts
}

/// A webhook without a ready endpoint.
struct Refusal<'a> {
    kind: &'a cluster::Kind,
    configuration: &'a Object,
    at: usize,
    webhook: &'a Webhook,
    service: &'a ServiceRef,
}

impl Refusal<'_> {
    fn draft(&self, request: (&str, &str), is_selected: bool, facts: &Facts) -> Draft {
        let Self { kind, configuration, at, webhook, service } = self;
        let name = safe(webhook.name.as_bytes()).into_owned();
        let of = safe(configuration.metadata.name.as_bytes()).into_owned();
        let place = format!("{}/{}", service.namespace, service.name);
        let place = safe(place.as_bytes()).into_owned();
        let mut draft = draft(&UNAVAILABLE);
        draft.held_by(Who::object(format!("the webhook {name}")).and(", which does not answer"));
        let (operation, resource) = request;
        draft.fact(
            format!(
                "{} {of} makes the API server call {name} for {operation} of {resource}, \
                with failurePolicy Fail",
                kind.name
            ),
            api(facts.now),
        );
        draft.fact(format!("its service {place} has no ready endpoint"), api(facts.now));
        draft.suffices_beside(ids::FINALIZER_CONTROLLER_GONE);
        draft.suffices_beside(ids::DAEMONSET_NOT_SYNCED);
        if !is_selected {
            draft.doubt("whether the webhook's namespaceSelector covers the object: the labels of its namespace were not read");
        }
        if !webhook.match_conditions.is_empty() {
            draft.doubt("whether the webhook's matchConditions cover the request");
        }
        if is_object_name(&service.name) && is_object_name(&service.namespace) {
            draft.remedies.push(remedy::show(
                format!("show the endpoints of the webhook's service {}", service.name),
                format!(
                    "kubectl --namespace {} get endpointslices --selector kubernetes.io/service-name={}",
                    service.namespace, service.name
                ),
            ));
        }
        draft.advice(format!("start the pods of the service {place}"), "none");
        let key = Key::global((*kind).clone(), &configuration.metadata.name);
        draft.remedies.extend(ignore_failure(&key, configuration, *at));
        draft
    }
}

/// Admits requests while a webhook does not answer.
pub(super) fn ignore_failure(key: &Key, of: &Object, at: usize) -> Option<Remedy> {
    let name = &of.webhooks.get(at)?.name;
    let path = format!("/webhooks/{at}");
    let steps = [
        serde_json::json!({"op": "test", "path": format!("{path}/name"), "value": name}),
        serde_json::json!({"op": "replace", "path": format!("{path}/failurePolicy"), "value": "Ignore"}),
    ];
    remedy::patch(
        format!("admit requests while {name} does not answer"),
        key,
        &of.metadata,
        &steps,
        "requests that it should refuse are admitted until failurePolicy is Fail again",
    )
}
