//! Commands that change an object only if it is still the judged one, in the judged state: each names UID and
//! resourceVersion.

use crate::{
    command,
    model::{
        cluster::{Key, Meta},
        remedy::{Place, Remedy},
        shell::{is_object_name, word},
    },
};

/// Whether a text needs no escape in JSON or in shell quotes.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !b"'\"\\!".contains(&byte))
}

/// Whether the key consists of names that are safe in every shell.
fn is_printable(key: &Key) -> bool {
    is_object_name(&key.name)
        && key.namespace.as_deref().is_none_or(is_object_name)
        && [&key.kind.group, &key.kind.version, &key.kind.plural]
            .iter()
            .all(|it| it.is_empty() || is_object_name(it))
}

/// Arguments of kubectl for a verb, such as `--namespace shop patch pod cart-0`.
fn words(verb: &str, key: &Key) -> String {
    let namespace = key.namespace.as_ref().map(|it| format!("--namespace {it} "));
    format!("{}{verb} {} {}", namespace.unwrap_or_default(), key.kind.for_kubectl(), key.name)
}

/// The command that waits until the object is gone.
fn gone(key: &Key) -> String {
    let namespace = key.namespace.as_ref().map(|it| format!("--namespace {it} "));
    format!(
        "kubectl {}wait --for=delete {}/{} --timeout=150s",
        namespace.unwrap_or_default(),
        key.kind.for_kubectl(),
        key.name
    )
}

/// A JSON patch that the API server refuses if the object is another one or has changed; `None` if a part needs escapes.
pub(super) fn patch(
    does: String,
    key: &Key,
    meta: &Meta,
    steps: &[serde_json::Value],
    risk: impl Into<String>,
) -> Option<Remedy> {
    if !is_printable(key) || !is_plain(&meta.uid) || !is_plain(&meta.resource_version) {
        return None;
    }
    let test = |path: &str, value: &str| {
        format!("{{\"op\":\"test\",\"path\":\"{path}\",\"value\":\"{value}\"}}")
    };
    let mut all = vec![
        test("/metadata/uid", &meta.uid),
        test("/metadata/resourceVersion", &meta.resource_version),
    ];
    for step in steps {
        let step = step.to_string();
        if step.contains(['\'', '\\', '!']) || !step.is_ascii() {
            return None;
        }
        all.push(step);
    }
    let patch = word(format!("[{}]", all.join(",")));
    let command = format!("kubectl {} --type=json -p {patch}", words("patch", key));
    let mut remedy = command::Step::new(does, command).remedy(risk);
    remedy.guard = Some(format!(
        "{key} is still {} with the resourceVersion {}: after any change the API server refuses \
        the command; run podstuck again for a new one",
        meta.uid, meta.resource_version
    ));
    Some(remedy)
}

/// Removes one finalizer, by its index and its name.
pub(super) fn remove_finalizer(
    key: &Key,
    meta: &Meta,
    finalizer: &str,
    risk: impl Into<String>,
) -> Option<Remedy> {
    let at = meta.finalizers.iter().position(|it| it == finalizer)?;
    if !is_plain(finalizer) {
        return None;
    }
    let path = format!("/metadata/finalizers/{at}");
    let steps = [
        serde_json::json!({"op": "test", "path": path, "value": finalizer}),
        serde_json::json!({"op": "remove", "path": path}),
    ];
    let does = format!("remove the finalizer {finalizer} from {}", key.name);
    let mut remedy = patch(does, key, meta, &steps, risk)?;
    if meta.finalizers.len() == 1 {
        remedy.verify = Some(gone(key));
    }
    Some(remedy)
}

/// Requests the deletion of an object, or with `by_force` of a pod's record without its node.
pub(super) fn delete(
    does: String,
    key: &Key,
    meta: &Meta,
    by_force: bool,
    risk: impl Into<String>,
) -> Option<Remedy> {
    if !is_printable(key) || !is_plain(&meta.uid) || !is_plain(&meta.resource_version) {
        return None;
    }
    let grace = if by_force { "\"gracePeriodSeconds\":0," } else { "" };
    let version = if by_force {
        format!(",\"resourceVersion\":\"{}\"", meta.resource_version)
    } else {
        String::new()
    };
    let options = word(format!(
        "{{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",{grace}\"preconditions\":{{\"uid\":\"{}\"{version}}}}}",
        meta.uid
    ));
    let command = format!("echo {options} | kubectl delete --raw {} -f -", word(key.path()));
    let mut remedy = command::Step::new(does, command).remedy(risk);
    remedy.place = Some(Place::Kubectl);
    remedy.guard = Some(if by_force {
        format!("{key} is still {} with the resourceVersion {}", meta.uid, meta.resource_version)
    } else {
        format!("{key} is still {}", meta.uid)
    });
    remedy.verify = Some(gone(key));
    Some(remedy)
}

/// A command that only reads.
pub(super) fn show(does: String, command: String) -> Remedy {
    command::Step::new(does, command).remedy("none")
}

/// A command that runs podstuck for the object that this one waits for.
pub(super) fn ask(key: &Key) -> Option<Remedy> {
    podstuck(format!("show what keeps {key}"), key, "")
}

/// A command that runs podstuck for an object, with an option that begins with a space.
pub(super) fn podstuck(does: String, key: &Key, option: &str) -> Option<Remedy> {
    if !is_printable(key) {
        return None;
    }
    let namespace = key.namespace.as_ref().map(|it| format!(" --namespace {it}"));
    let name = format!("{}/{}", key.kind.for_podstuck(), key.name);
    let command = format!("kubectl podstuck {name}{}{option}", namespace.unwrap_or_default());
    Some(show(does, command))
}
