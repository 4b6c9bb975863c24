//! Identifies a pod by files of the node: its own and the runtime's. No file is read here.

use std::net::IpAddr;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::{containers::describe, name_source::NameSource};
use podstuck_model::identity::Pod;

/// A pod's identity, by one of its traces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Its UID.
    pub uid: String,
    /// Its namespace; `None` for a host name.
    pub namespace: Option<String>,
    /// Its name, cut where it is from a host name.
    pub name: String,
    /// The source of the name.
    pub source: NameSource,
}

/// A service account's token, projected into a pod (`pkg/serviceaccount/claims.go`). Only its claims
/// are read, from the middle part; the signature is not checked, since kubelet wrote the file.
pub(crate) fn of_token(token: &str) -> Option<Trace> {
    #[derive(Deserialize)]
    struct Claims {
        #[serde(rename = "kubernetes.io")]
        kubernetes: Kubernetes,
    }
    #[derive(Deserialize)]
    struct Kubernetes {
        namespace: String,
        pod: Object,
    }
    #[derive(Deserialize)]
    struct Object {
        name: String,
        uid: String,
    }
    let payload = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let Kubernetes { namespace, pod } = serde_json::from_slice::<Claims>(&payload).ok()?.kubernetes;
    let Object { name, uid } = pod;
    Some(Trace { uid, namespace: Some(namespace), name, source: NameSource::Token })
}

/// The `etc-hosts` that kubelet writes for a pod with a network of its own (`managedHostsFileContent` in
/// pkg/kubelet/kubelet_pods.go): the address, the full name if the pod has a subdomain, the host name.
pub(crate) fn of_etc_hosts(text: &str, uid: &str) -> Option<Trace> {
    let own = text.split("# Entries added by HostAliases").next()?;
    if !own.starts_with("# Kubernetes-managed hosts file.") {
        return None;
    }
    let line = own.lines().rev().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        // Entries that every such file begins with.
        let of_all = address.is_loopback() || address.to_string().starts_with("fe00::");
        (!of_all).then(|| words.collect::<Vec<_>>())
    })?;
    let name = (*line.last()?).to_owned();
    let full: Vec<&str> = line.first()?.split('.').collect();
    // HOST.SUBDOMAIN.NAMESPACE.svc.DOMAIN
    let namespace = (full.get(3) == Some(&"svc")).then(|| full.get(2).map(|ns| (*ns).to_owned()));
    let (uid, source) = (uid.to_owned(), NameSource::EtcHosts);
    Some(Trace { uid, namespace: namespace.flatten(), name, source })
}

/// The host name of a pod with this name, unless its spec sets another (`truncatePodHostnameIfNeeded`).
pub(crate) fn host_name(pod: &str) -> &str {
    pod.get(..63).map_or(pod, |cut| cut.trim_end_matches(['-', '.']))
}

/// The pod of a container, by a runtime's file; `None` without its name.
pub fn of_container(text: &[u8]) -> Option<Trace> {
    let Pod { uid, namespace, name } = describe(text)?.pod?;
    Some(Trace { uid, namespace, name: name?, source: NameSource::Runtime })
}

/// UID of a container's pod, with or without its name.
pub(crate) fn pod_of_container(text: &[u8]) -> Option<String> {
    Some(describe(text)?.pod?.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

    fn parts(trace: Option<Trace>) -> Option<(Option<String>, String, String)> {
        trace.map(|trace| (trace.namespace, trace.name, trace.uid))
    }

    fn full() -> Option<(Option<String>, String, String)> {
        Some((Some("shop".into()), "cart-0".into(), UID.into()))
    }

    #[test]
    fn fuzz_token() {
        podstuck_fuzz::fuzz("token", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = of_token(&text).map(|trace| host_name(&trace.name).to_owned());
        });
    }

    #[test]
    fn fuzz_etc_hosts() {
        podstuck_fuzz::fuzz("etc_hosts", |input| {
            let text = String::from_utf8_lossy(input);
            let _ = of_etc_hosts(&text, UID).map(|trace| host_name(&trace.name).to_owned());
        });
    }

    #[test]
    fn a_token_names_its_pod() {
        let claims = format!(
            r#"{{"aud":["x"],"exp":1,"kubernetes.io":{{"namespace":"shop","node":{{"name":"n"}},
            "pod":{{"name":"cart-0","uid":"{UID}"}},"serviceaccount":{{"name":"default","uid":"u"}}}}}}"#
        );
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let token = format!("{}.{}.signature", part(r#"{"alg":"RS256"}"#), part(&claims));
        assert_eq!(parts(of_token(&token)), full());
        // A secret's token names no pod, and any file can have the name.
        let legacy = part(r#"{"kubernetes.io/serviceaccount/namespace":"shop"}"#);
        for other in [format!("a.{legacy}.b"), "nonsense".into(), "a.%.c".into(), String::new()] {
            assert_eq!(of_token(&other), None, "{other}");
        }
    }

    const HOSTS: &str = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
        ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
        fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";

    #[test]
    fn a_hosts_file_has_the_pods_host_name() {
        let of = |lines: &str| parts(of_etc_hosts(&format!("{HOSTS}{lines}"), UID));
        let plain = Some((None, "cart-0".into(), UID.into()));
        assert_eq!(of("10.0.0.5\tcart-0\n"), plain);
        assert_eq!(of("10.0.0.5\tcart-0\nfd00::5\tcart-0\n"), plain);
        assert_eq!(of("10.0.0.5\tcart-0.carts.shop.svc.cluster.local\tcart-0\n"), full());
        let aliases = "\n# Entries added by HostAliases.\n1.2.3.4\tevil\n";
        assert_eq!(of(&format!("10.0.0.5\tcart-0\n{aliases}")), plain);
        assert_eq!(of(aliases), None);
        let of_host = "# Kubernetes-managed hosts file (host network).\n10.0.0.1\tnode\n";
        assert_eq!(of_etc_hosts(of_host, UID), None);
        let long = "a".repeat(62) + "-bc";
        assert_eq!((host_name(&long), host_name("cart-0")), ("a".repeat(62).as_str(), "cart-0"));
    }

    #[test]
    fn a_containers_file_names_its_pod_only_with_its_name() {
        let labels = format!(
            r#"{{"io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.name":"cart-0",
            "io.kubernetes.pod.uid":"{UID}"}}"#
        );
        let docker = format!(r#"{{"ID":"x","Config":{{"Hostname":"h","Labels":{labels}}}}}"#);
        assert_eq!(parts(of_container(docker.as_bytes())), full());
        let nameless = docker.replace("io.kubernetes.pod.name\"", "x\"");
        assert_eq!(of_container(nameless.as_bytes()), None);
        assert_eq!(pod_of_container(nameless.as_bytes()).as_deref(), Some(UID));
        for other in ["", "{}", r#"{"Config":{"Labels":{}}}"#, r#"{"annotations":{"a":"b"}}"#] {
            assert_eq!(of_container(other.as_bytes()), None, "{other}");
        }
    }
}
