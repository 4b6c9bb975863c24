//! podstuck's own pod on a node, with the least privilege (`docs/in-a-pod.md` explains each field).

use serde_json::{Value, json};

use super::record;

/// The parameters of podstuck's own pod.
#[derive(Clone, Debug, Default)]
pub struct OwnPod {
    /// Name of the pod.
    pub name: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Node that it runs on.
    pub node: String,
    /// Its image.
    pub image: String,
    /// Whether it is privileged. Required for kernel stacks, and on kernels before 5.11.
    pub privileged: bool,
    /// The pod to examine.
    pub about: About,
    /// Whether the output is JSON lines, to be parsed.
    pub for_program: bool,
    /// Additional options of `podstuck diagnose`.
    pub options: Vec<String>,
}

/// The stuck pod to examine.
#[derive(Clone, Debug)]
pub enum About {
    /// By its name, with its record if the API server has it.
    Name {
        /// `namespace/name`.
        name: String,
        /// The API object.
        record: Option<Value>,
    },
    /// By its UID: the API server no longer has the pod.
    Uid(String),
}

impl Default for About {
    fn default() -> Self {
        Self::Uid(String::new())
    }
}

/// Path of the record in the container, and the annotation that it comes from.
const RECORD: &str = "/record/pod.json";
const ANNOTATION: &str = "podstuck-record";
/// Maximum length of the record, in bytes: all annotations of an object together may have 256 KiB. Without a record,
/// podstuck reads the pod from the API server itself.
const LONGEST: usize = 128 << 10;

impl OwnPod {
    /// The manifest, as the API server accepts it.
    pub fn manifest(&self) -> Value {
        let record = match &self.about {
            About::Name { record: Some(pod), .. } => Some(record::of(pod).to_string()),
            About::Name { record: None, .. } | About::Uid(_) => None,
        };
        let record = record.filter(|text| text.len() <= LONGEST);
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {
                    "app.kubernetes.io/name": "podstuck",
                    "app.kubernetes.io/managed-by": "kubectl-podstuck",
                },
                "annotations": {"container.apparmor.security.beta.kubernetes.io/podstuck": "unconfined"},
            },
            "spec": {
                "nodeName": self.node,
                "hostPID": true,
                "restartPolicy": "Never",
                "activeDeadlineSeconds": 900,
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "podstuck",
                    "image": self.image,
                    "imagePullPolicy": "IfNotPresent",
                    "args": self.args(record.is_some()),
                    "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                    "securityContext": self.may(),
                    "volumeMounts": [
                        {"name": "host", "mountPath": "/host", "readOnly": true, "mountPropagation": "HostToContainer"},
                        {"name": "tracing", "mountPath": "/sys/kernel/tracing", "readOnly": true},
                    ],
                }],
                "volumes": [
                    {"name": "host", "hostPath": {"path": "/"}},
                    {"name": "tracing", "hostPath": {"path": "/sys/kernel/tracing"}},
                ],
            },
        });
        if let Some(record) = record {
            hand_over(&mut pod, record);
        }
        pod
    }

    /// The container's arguments. kubelet expands `$(NAME)` in them and reads `$$` as a dollar sign, so dollar signs
    /// are doubled.
    fn args(&self, has_record: bool) -> Vec<String> {
        let form = if self.for_program { "json" } else { "text" };
        let mut args: Vec<&str> = vec!["diagnose", "--host-root", "/host", "--output", form];
        match &self.about {
            About::Name { name, .. } => args.extend(["--pod", name]),
            About::Uid(uid) => args.extend(["--pod-uid", uid]),
        }
        if has_record {
            args.extend(["--pod-json", RECORD]);
        }
        args.extend(self.options.iter().map(String::as_str));
        args.into_iter().map(|word| word.replace('$', "$$")).collect()
    }

    /// The security context: podstuck reads all processes and files and loads BPF programs, and may do nothing else.
    fn may(&self) -> Value {
        let mut may = json!({"runAsUser": 0, "readOnlyRootFilesystem": true});
        let more = if self.privileged {
            json!({"privileged": true})
        } else {
            json!({
                "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]},
                "allowPrivilegeEscalation": false,
                "seLinuxOptions": {"type": "spc_t"},
            })
        };
        for (name, value) in more.as_object().into_iter().flatten() {
            may[name] = value.clone();
        }
        may
    }
}

/// Passes the record as a file that kubelet makes from an annotation: this needs no right to attach, and no part of
/// the record is interpreted.
fn hand_over(pod: &mut Value, record: String) {
    pod["metadata"]["annotations"][ANNOTATION] = Value::String(record);
    let path = format!("metadata.annotations['{ANNOTATION}']");
    let volume = json!({"name": "record", "downwardAPI": {"items": [
        {"path": "pod.json", "fieldRef": {"fieldPath": path}},
    ]}});
    let mount = json!({"name": "record", "mountPath": "/record", "readOnly": true});
    for (place, value) in [("/spec/volumes", volume), ("/spec/containers/0/volumeMounts", mount)] {
        if let Some(Value::Array(all)) = pod.pointer_mut(place) {
            all.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(about: About) -> OwnPod {
        OwnPod {
            name: "podstuck-0".into(),
            namespace: "kube-system".into(),
            node: "worker-3".into(),
            image: "r.example/podstuck:1".into(),
            about,
            ..OwnPod::default()
        }
    }

    #[test]
    fn it_has_the_least_that_it_needs() {
        let pod = own(About::Uid("1-2".into())).manifest();
        assert_eq!(pod["spec"]["nodeName"], "worker-3");
        let container = &pod["spec"]["containers"][0];
        let words = ["diagnose", "--host-root", "/host", "--output", "text", "--pod-uid", "1-2"];
        assert_eq!(container["args"], json!(words));
        let security = &container["securityContext"];
        assert!(security["privileged"].is_null() && security["allowPrivilegeEscalation"] == false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        assert!(pod["spec"]["hostNetwork"].is_null());
        for mount in container["volumeMounts"].as_array().unwrap() {
            assert_eq!(mount["readOnly"], true, "{mount}");
        }
        let privileged = OwnPod { privileged: true, ..own(About::default()) }.manifest();
        let security = &privileged["spec"]["containers"][0]["securityContext"];
        assert!(security["privileged"] == true && security["capabilities"].is_null());
    }

    #[test]
    fn options_reach_the_tool_word_for_word() {
        let options = ["--path", "/a b/\"c\"\\d$(touch pwned)`'*$$", "--api=never", ""];
        let own = OwnPod { options: options.map(str::to_owned).to_vec(), ..own(About::default()) };
        let manifest = own.manifest();
        let args = manifest["spec"]["containers"][0]["args"].as_array().unwrap();
        // Expands the arguments like kubelet (`third_party/forked/golang/expansion`): none of these names is a
        // variable.
        let read: Vec<String> =
            args.iter().map(|it| it.as_str().unwrap().replace("$$", "$")).collect();
        assert_eq!(read[read.len() - 4..], options);
    }

    #[test]
    fn a_record_is_a_file_of_the_pod_unless_it_is_too_long() {
        let named = |record| own(About::Name { name: "shop/cart-0".into(), record: Some(record) });
        let record = json!({"metadata": {"name": "cart-0", "finalizers": ["$(x) '\"` \\n"]}});
        let pod = named(record).manifest();
        let args = &pod["spec"]["containers"][0]["args"];
        let words: Vec<&str> = args.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(words[5..], ["--pod", "shop/cart-0", "--pod-json", RECORD]);
        let text = pod["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
        let read: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read["metadata"]["finalizers"][0], "$(x) '\"` \\n");
        let long = json!({"metadata": {"name": "cart-0", "finalizers": ["x".repeat(LONGEST)]}});
        let pod = named(long).manifest();
        assert!(!pod.to_string().contains("--pod-json") && pod.to_string().len() < LONGEST);
    }
}
