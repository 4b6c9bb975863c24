//! The request of a controller of kube-controller-manager that removes a finalizer, and why the API server refuses it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Key, Kind, Meta};

/// The namespace of the service accounts that kube-controller-manager creates for its controllers.
pub(super) const CONTROLLERS: &str = "kube-system";

/// The request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Removal {
    /// The object.
    pub key: Key,
    account: String,
    uid: String,
    resource_version: String,
    /// The other finalizers.
    stay: Vec<String>,
}

impl Removal {
    /// The request of the controller with this service account.
    pub fn new(key: &Key, meta: &Meta, finalizer: &str, account: &str) -> Self {
        let stay = meta.finalizers.iter().filter(|it| *it != finalizer).cloned().collect();
        Self {
            key: key.clone(),
            account: account.to_owned(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            stay,
        }
    }

    /// The service account of the controller.
    pub fn account(&self) -> Key {
        let kind = Kind::named("", "v1", "serviceaccounts", "ServiceAccount", true);
        Key::of(kind, CONTROLLERS, &self.account)
    }

    /// The user name of the controller.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{CONTROLLERS}:{}", self.account)
    }

    /// The JSON merge patch. The API server refuses it with 409 if the object is another one or has changed.
    pub fn patch(&self) -> Value {
        json!({"metadata": {"uid": self.uid, "resourceVersion": self.resource_version, "finalizers": self.stay}})
    }
}

/// Why the API server refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refusal {
    /// What refuses.
    pub by: By,
    /// The API server's message.
    pub message: String,
}

/// What refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// An admission webhook of this name denies it.
    Webhook(String),
    /// The call of an admission webhook of this name fails.
    Call(String),
    /// A ValidatingAdmissionPolicy of this name denies it.
    Policy(String),
    /// The validation of the object that the mutating admission webhooks and policies have made of it.
    Validation,
}

impl Refusal {
    /// From the status and the message of a response; `None` if admission does not refuse: for a missing right, a
    /// conflict, or a webhook that supports no dry run. The API server writes the beginning of each message, a webhook
    /// only what follows.
    pub fn of(status: u16, message: &str) -> Option<Self> {
        let between = |text: &str, end| text.split_once(end).map(|(name, _)| name.to_owned());
        let denied = |rest: &str| between(rest, "\" denied the request").map(By::Webhook);
        let failed = |rest: &str| between(rest, "\": ").map(By::Call);
        let by = if let Some(rest) = message.strip_prefix("admission webhook \"") {
            denied(rest)
        } else if let Some(rest) =
            message.strip_prefix("Internal error occurred: failed calling webhook \"")
        {
            failed(rest)
        } else {
            // TYPE "NAME" is forbidden: MESSAGE, and TYPE "NAME" is invalid: MESSAGE
            let (_, rest) = message.split_once(" \"")?;
            let (_, rest) = rest.split_once("\" is ")?;
            match rest.strip_prefix("forbidden: ValidatingAdmissionPolicy '") {
                Some(rest) => between(rest, "' ").map(By::Policy),
                None => (status == 422 && rest.starts_with("invalid: ")).then_some(By::Validation),
            }
        };
        by.map(|by| Self { by, message: message.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_message_says_what_refuses() {
        let by = |status, message: &str| Refusal::of(status, message).map(|it| it.by);
        let name = || "validate.kyverno.svc-fail".to_owned();
        // kyverno#8815
        let denied = "admission webhook \"validate.kyverno.svc-fail\" denied the request: \n\nresource Pod/foo/bar was blocked";
        assert_eq!(by(400, denied), Some(By::Webhook(name())));
        let unexplained = "admission webhook \"validate.kyverno.svc-fail\" denied the request without explanation";
        assert_eq!(by(403, unexplained), Some(By::Webhook(name())));
        let failed = "Internal error occurred: failed calling webhook \"validate.kyverno.svc-fail\": failed to call webhook: Post \"https://kyverno-svc.kyverno.svc:443/validate/fail?timeout=10s\": dial tcp 10.0.0.1:443: connect: connection refused";
        assert_eq!(by(500, failed), Some(By::Call(name())));
        let policy = "pods \"bar\" is forbidden: ValidatingAdmissionPolicy 'lock' with binding 'lock-all' denied request: no";
        assert_eq!(by(422, policy), Some(By::Policy("lock".into())));
        // kubernetes#109164
        let invalid = "Pod \"bar\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`";
        assert_eq!(by(422, invalid), Some(By::Validation));
        for (status, message) in [
            (
                403,
                "serviceaccounts \"job-controller\" is forbidden: User \"jane\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"kube-system\"",
            ),
            (
                403,
                "pods \"bar\" is forbidden: User \"system:serviceaccount:kube-system:job-controller\" cannot patch resource \"pods\" in API group \"\" in the namespace \"shop\"",
            ),
            (400, "admission webhook \"a.example.com\" does not support dry run"),
            (
                409,
                "Operation cannot be fulfilled on pods \"bar\": the object has been modified; please apply your changes to the latest version and try again",
            ),
            (404, "pods \"bar\" not found"),
            (500, "Internal error occurred: admission webhook \"a\" denied the request"),
            (403, "is forbidden: ValidatingAdmissionPolicy 'x' denies"),
        ] {
            assert_eq!(by(status, message), None, "{message}");
        }
    }
}
