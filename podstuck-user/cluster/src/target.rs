//! The object that the user asks about.

use anyhow::{Result, bail};
use podstuck_model::{
    cluster::{CORE, Key, Kind},
    shell::is_object_name,
};
use serde::{Deserialize, Serialize};

/// An object, or an object of a custom type, whose version the API server has to name first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// An object of a known type.
    Object(Key),
    /// An object of a custom type.
    Custom {
        /// The plural of the type, as in `widgets`.
        plural: String,
        /// Its API group.
        group: String,
        /// The object's name.
        name: String,
    },
}

/// The scope of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// One object.
    One {
        /// The object.
        target: Target,
        /// Its namespace, if its type is namespaced.
        namespace: String,
    },
    /// All stuck objects.
    All {
        /// In this namespace; `None` for the whole cluster.
        namespace: Option<String>,
        /// With this label selector.
        labels: Option<String>,
        /// Of every type that can be listed.
        #[serde(default)]
        all_types: bool,
    },
}

impl Target {
    /// The key, if the target is a pod.
    pub fn pod(&self) -> Option<&Key> {
        match self {
            Self::Object(key) if key.kind == Kind::POD => Some(key),
            Self::Object(_) | Self::Custom { .. } => None,
        }
    }
}

/// kubectl's names of types, including the short ones.
const NAMES: [(&[&str], Kind); 13] = [
    (&["pod", "pods", "po"], Kind::POD),
    (&["persistentvolumeclaim", "persistentvolumeclaims", "pvc"], Kind::CLAIM),
    (&["persistentvolume", "persistentvolumes", "pv"], Kind::VOLUME),
    (&["volumeattachment", "volumeattachments"], Kind::ATTACHMENT),
    (&["node", "nodes", "no"], Kind::NODE),
    (&["namespace", "namespaces", "ns"], Kind::NAMESPACE),
    (&["deployment", "deployments", "deploy"], Kind::DEPLOYMENT),
    (&["replicaset", "replicasets", "rs"], Kind::REPLICA_SET),
    (&["statefulset", "statefulsets", "sts"], Kind::STATEFUL_SET),
    (&["daemonset", "daemonsets", "ds"], Kind::DAEMON_SET),
    (&["job", "jobs"], Kind::JOB),
    (&["service", "services", "svc"], Kind::SERVICE),
    (&["apiservice", "apiservices"], Kind::API_SERVICE),
];

/// Parses an argument. The namespace is that of the argument, `given`, or `default`, in this order.
///
/// # Errors
///
/// Fails if the text cannot be an object's name.
pub fn parse(text: &str, given: Option<&str>, default: &str) -> Result<Target> {
    let (of, name) = match text.split_once('/') {
        Some((of, name)) => (Some(of), name),
        None => (None, text),
    };
    let namespace = given.unwrap_or(default);
    if !is_object_name(name) || !is_object_name(namespace) {
        bail!(
            "{text:?} in the namespace {namespace:?} is not the name of an object: name a pod as NAMESPACE/NAME or NAME, \
             and another object as TYPE/NAME, as in pvc/data"
        );
    }
    let Some(of) = of else { return Ok(Target::Object(Key::of(Kind::POD, namespace, name))) };
    let lower = of.to_ascii_lowercase();
    if let Some((_, kind)) = NAMES.iter().find(|(names, _)| names.contains(&lower.as_str())) {
        return Ok(Target::Object(Key::of(kind.clone(), namespace, name)));
    }
    if !is_object_name(of) {
        bail!("{of:?} is neither a type nor a namespace");
    }
    match (of.split_once('.'), given) {
        (Some((plural, group)), _) => {
            let group = if group == CORE { "" } else { group };
            let [plural, group, name] = [plural, group, name].map(str::to_owned);
            Ok(Target::Custom { plural, group, name })
        }
        (None, Some(given)) if given != of => {
            bail!(
                "{text} names the namespace {of}, but --namespace names {given}: leave one out (a custom \
                 type is written with its group, as in widgets.example.com/{name})"
            )
        }
        (None, _) => Ok(Target::Object(Key::of(Kind::POD, of, name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_as_in_the_other_commands_and_any_object_by_its_type() {
        let of =
            |text: &str, given| parse(text, given, "default").map_err(|error| error.to_string());
        let object =
            |kind, namespace: &str, name: &str| Ok(Target::Object(Key::of(kind, namespace, name)));
        assert_eq!(of("cart-0", None), object(Kind::POD, "default", "cart-0"));
        assert_eq!(of("cart-0", Some("shop")), object(Kind::POD, "shop", "cart-0"));
        assert_eq!(of("shop/cart-0", None), object(Kind::POD, "shop", "cart-0"));
        assert_eq!(of("pod/cart-0", Some("shop")), object(Kind::POD, "shop", "cart-0"));
        assert_eq!(of("pvc/data", Some("shop")), object(Kind::CLAIM, "shop", "data"));
        assert_eq!(of("PV/pv-1", None), object(Kind::VOLUME, "", "pv-1"));
        assert_eq!(of("ns/shop", None), object(Kind::NAMESPACE, "", "shop"));
        let custom = Target::Custom {
            plural: "widgets".into(),
            group: "example.com".into(),
            name: "w".into(),
        };
        assert_eq!(of("widgets.example.com/w", Some("shop")), Ok(custom));
    }

    #[test]
    fn what_no_object_can_be_called_is_refused() {
        for (text, given) in [
            ("-A", None),
            ("a/b/c", None),
            ("shop/$(x)", None),
            ("", None),
            ("shop/a", Some("other")),
            ("a", Some("B")),
        ] {
            assert!(parse(text, given, "default").is_err(), "{text} {given:?}");
        }
    }
}
