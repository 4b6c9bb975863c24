//! What holds pods, and what is to be said about it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    asked::{Asked, is_chosen},
    csi,
    faults::{Fault, Setup, host_directory, many_directories},
    pods::{empty_dir, pod},
};

/// What ends a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The first command that is printed.
    Command,
    /// What no command can do, such as to bring a driver back.
    Advice,
    /// Nothing is wrong: it is asked about while it goes on.
    Time,
    /// Nothing is wrong: its time of grace is not over.
    Grace,
    /// Nothing is wrong: nobody deletes it.
    Never,
}

/// What all pods of a node notice: such cases are played by themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// kubelet is started anew, as by an upgrade.
    KubeletRestarted,
    /// kubelet has ended.
    KubeletEnded,
    /// The runtime does not answer.
    RuntimeStopped,
}

/// A pod that something holds.
pub struct Case {
    /// Of the case, of the pod, and of all that it takes.
    pub name: &'static str,
    /// The pod, or a list with it.
    pub pod: fn(&str) -> Value,
    /// What is done while it runs.
    pub faults: Setup,
    /// What must be told first; empty where no cause can be known, and a note must say who is missing.
    pub cause: &'static str,
    /// How sure.
    pub certainty: &'static str,
    /// What must be told behind it, for what holds the pod next.
    pub next: Option<&'static str>,
    /// What ends it.
    pub end: End,
    /// What happens to the node before the deletion.
    pub trouble: Trouble,
}

impl Case {
    const PLAIN: Self = Self {
        name: "",
        pod: on_disk,
        faults: |_, _| Vec::new(),
        cause: "",
        certainty: "firm",
        next: None,
        end: End::Command,
        trouble: Trouble::None,
    };
}

impl Case {
    /// What stands in the API server's record only.
    pub fn is_unknowable(&self) -> bool {
        let by_record = ["pod-finalizer", "pod-not-deleted", "grace-period-or-prestop"];
        self.cause.is_empty() || (by_record.contains(&self.cause) && api_hangs())
    }

    /// Whether what is printed must release the pod.
    pub fn is_released(&self) -> bool {
        // What kubelet has lost, the API server knows.
        let is_lost = self.cause == "vol-data-missing-or-corrupt" && api_hangs();
        self.end == End::Command && !self.is_unknowable() && !is_lost
    }

    /// What was wrong with an answer.
    pub fn complaints(&self, asked: &Asked, released_after: Option<Duration>) -> Vec<String> {
        let first = asked.first();
        let mut wrong = Vec::new();
        if self.cause.is_empty() && !asked.notes().any(|note| note.contains("no kubelet runs")) {
            wrong.push("no note that nobody tries".into());
        }
        if self.is_unknowable() {
            if asked.status != Some(5) || !first.is_null() {
                wrong.push(format!("{} by no record, exit status {:?}", first["id"], asked.status));
            }
            return wrong;
        }
        if first["id"] != self.cause {
            wrong.push(format!("{} first, and not {}", first["id"], self.cause));
        } else if first["certainty"] != self.certainty {
            wrong.push(format!("only {}", first["certainty"]));
        } else if first["blocks_deletion"] != !matches!(self.end, End::Grace | End::Never) {
            wrong.push(format!("that it holds the pod is {}", first["blocks_deletion"]));
        }
        // Whose volume it is, only the API server says.
        let claim = format!("claim default/{0}, PersistentVolume pv-{0}, driver ", self.name);
        let is_claimed = first["volume"]["plugin"] == "kubernetes.io/csi" && !api_hangs();
        if is_claimed && !first["evidence"].to_string().contains(&claim) {
            wrong.push("whose claim it is, is not told".into());
        }
        if self.next.is_some() && self.next != asked.causes().get(1).copied() {
            wrong.push(format!("{:?} after it, and not {:?}", asked.causes().get(1), self.next));
        }
        if asked.status != Some(i32::from(self.end != End::Never)) {
            wrong.push(format!("exit status {:?}", asked.status));
        }
        if self.is_released() && released_after.is_none() {
            wrong.push("the pod is not released".into());
        }
        wrong
    }
}

/// Whether the API server does not answer.
pub fn api_hangs() -> bool {
    is_chosen("PODSTUCK_NODE_API", "hung")
}

fn on_disk(name: &str) -> Value {
    pod(name, &json!([empty_dir("data")]))
}

fn in_memory(name: &str) -> Value {
    pod(name, &json!([{ "name": "data", "emptyDir": { "medium": "Memory" } }]))
}

/// Its container has a directory of the volume, which kubelet mounts for it.
fn with_subpath(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = "part".into();
    pod
}

/// On the pods' network, not on the node's.
fn with_network(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["spec"]["hostNetwork"] = false.into();
    pod
}

/// Its container's last words are a file in a volume whose mounts the node sees.
fn with_last_words(name: &str) -> Value {
    let mut pod = on_disk(name);
    let container = &mut pod["spec"]["containers"][0];
    container["terminationMessagePath"] = "/data/data/last-words".into();
    container["securityContext"] = json!({ "privileged": true });
    container["volumeMounts"][0]["mountPropagation"] = "Bidirectional".into();
    pod
}

/// A volume of a secret, which is made with it.
fn with_secret(name: &str) -> Value {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name },
        "stringData": { "key": "value" },
    });
    let volume = json!({ "name": "data", "secret": { "secretName": name } });
    json!({ "apiVersion": "v1", "kind": "List", "items": [secret, pod(name, &json!([volume]))] })
}

fn with_grace(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["spec"]["terminationGracePeriodSeconds"] = 3600.into();
    pod
}

fn with_finalizer(name: &str) -> Value {
    let mut pod = on_disk(name);
    pod["metadata"]["finalizers"] = json!(["podstuck.test/held"]);
    pod
}

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "many",
        faults: |_, pod| {
            many_directories(&pod.empty_dir("data"), 2_000_000);
            Vec::new()
        },
        cause: "emptydir-mass-files",
        end: End::Time,
        ..Case::PLAIN
    },
    Case {
        name: "immutable",
        faults: |_, pod| vec![Fault::immutable(&pod.empty_dir("data").join("d/f"))],
        cause: "immutable-attribute",
        ..Case::PLAIN
    },
    Case {
        name: "bind-mount",
        faults: |node, pod| {
            let from = host_directory(node, "bind-mount");
            vec![Fault::bind(&from, &pod.empty_dir("data").join("m"))]
        },
        cause: "emptydir-bidirectional-submount",
        ..Case::PLAIN
    },
    Case {
        name: "held-tmpfs",
        pod: in_memory,
        faults: |_, pod| vec![Fault::held(&pod.empty_dir("data"))],
        cause: "volume-held-by-host-process",
        ..Case::PLAIN
    },
    Case {
        name: "read-only",
        faults: |_, pod| vec![Fault::read_only(&pod.empty_dir("data"))],
        cause: "mount-over-volume",
        ..Case::PLAIN
    },
    Case {
        name: "rootfs-mount",
        faults: |node, pod| vec![Fault::tmpfs(&pod.rootfs(node).join("tmp"))],
        cause: "shim-rootfs-busy",
        ..Case::PLAIN
    },
    Case {
        name: "rootfs-held",
        faults: |node, pod| vec![Fault::held(&pod.rootfs(node).join("tmp"))],
        cause: "shim-rootfs-busy",
        ..Case::PLAIN
    },
    Case {
        name: "frozen",
        faults: |_, pod| vec![Fault::frozen(&pod.freezer())],
        cause: "cgroup-v1-frozen",
        ..Case::PLAIN
    },
    Case {
        name: "hung-fuse",
        faults: |_, pod| vec![Fault::hung_fuse(&pod.empty_dir("data").join("m"))],
        cause: "fuse-daemon-hung",
        ..Case::PLAIN
    },
    Case {
        name: "finalizer",
        pod: with_finalizer,
        faults: |_, _| Vec::new(),
        cause: "pod-finalizer",
        ..Case::PLAIN
    },
    Case { name: "running", cause: "pod-not-deleted", end: End::Never, ..Case::PLAIN },
    Case {
        name: "grace",
        pod: with_grace,
        cause: "grace-period-or-prestop",
        end: End::Grace,
        ..Case::PLAIN
    },
    Case {
        name: "forgot",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("forgot", "forget");
            Vec::new()
        },
        cause: "csi-driver-lost-publish-state",
        ..Case::PLAIN
    },
    Case {
        name: "not-found",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("not-found", "not-found");
            Vec::new()
        },
        cause: "csi-driver-error",
        end: End::Advice,
        ..Case::PLAIN
    },
    Case {
        name: "down",
        pod: csi::with_volume,
        faults: |node, _| {
            csi::end(node, "down", "driver");
            Vec::new()
        },
        cause: "csi-driver-down",
        end: End::Advice,
        ..Case::PLAIN
    },
    Case {
        name: "unregistered",
        pod: csi::with_volume,
        faults: |node, _| {
            csi::end(node, "unregistered", "registrar");
            Vec::new()
        },
        cause: "csi-driver-not-registered",
        end: End::Advice,
        ..Case::PLAIN
    },
    Case {
        name: "elsewhere",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("elsewhere", "elsewhere");
            Vec::new()
        },
        // What is left shows no more than that the driver said that all is well: a namespace that has ended
        // leaves no trace.
        cause: "csi-driver-lost-publish-state",
        ..Case::PLAIN
    },
    Case {
        name: "hangs",
        pod: csi::with_volume,
        faults: |_, _| {
            csi::order("hangs", "hang");
            Vec::new()
        },
        cause: "csi-unpublish-hung-lock",
        end: End::Advice,
        ..Case::PLAIN
    },
    Case {
        name: "subpath",
        pod: with_subpath,
        faults: |_, pod| vec![Fault::held(&pod.directory().join("volume-subpaths/data/main/0"))],
        cause: "volume-held-by-host-process",
        ..Case::PLAIN
    },
    Case {
        name: "under",
        pod: csi::with_volume,
        faults: |node, pod| {
            csi::hide_a_file(node, &csi::mount_of(pod, "under"));
            Vec::new()
        },
        cause: "data-under-mountpoint",
        ..Case::PLAIN
    },
    Case {
        name: "network",
        pod: with_network,
        faults: |node, _| vec![Fault::network(node, "network")],
        cause: "cni-teardown-failed",
        certainty: "likely",
        end: End::Advice,
        ..Case::PLAIN
    },
    Case {
        name: "last-words",
        pod: with_last_words,
        cause: "termination-message-in-bidirectional",
        ..Case::PLAIN
    },
    Case {
        name: "cut-off",
        pod: csi::with_volume,
        faults: |node, _| {
            csi::order("cut-off", "only-unmount");
            csi::cut_off(node, "cut-off");
            Vec::new()
        },
        cause: "csi-umount-wrong-namespace",
        ..Case::PLAIN
    },
    Case {
        name: "by-hand",
        pod: csi::with_volume,
        faults: |_, pod| {
            csi::order("by-hand", "not-idempotent");
            csi::unmount(pod, "by-hand");
            Vec::new()
        },
        cause: "csi-not-idempotent-after-reboot",
        ..Case::PLAIN
    },
    Case {
        name: "shim",
        faults: |_, pod| vec![Fault::stopped_shim(pod)],
        cause: "shim-hung",
        ..Case::PLAIN
    },
    Case {
        name: "restarted",
        pod: with_secret,
        faults: |node, _| {
            node.kubectl(&["delete", "secret", "restarted"]).unwrap();
            Vec::new()
        },
        cause: "kubelet-restart-lost-volume",
        trouble: Trouble::KubeletRestarted,
        ..Case::PLAIN
    },
    Case { name: "no-kubelet", end: End::Advice, trouble: Trouble::KubeletEnded, ..Case::PLAIN },
    Case {
        name: "no-runtime",
        cause: "dockerd-hang",
        certainty: "likely",
        end: End::Advice,
        trouble: Trouble::RuntimeStopped,
        ..Case::PLAIN
    },
    Case {
        name: "lost-data",
        pod: csi::with_volume,
        faults: |_, pod| {
            csi::lose_data(&csi::mount_of(pod, "lost-data"));
            Vec::new()
        },
        cause: "vol-data-missing-or-corrupt",
        ..Case::PLAIN
    },
    Case {
        name: "two",
        faults: |_, pod| {
            let frozen = Fault::frozen(&pod.freezer());
            vec![frozen, Fault::immutable(&pod.empty_dir("data").join("d/f"))]
        },
        cause: "cgroup-v1-frozen",
        next: Some("immutable-attribute"),
        ..Case::PLAIN
    },
];
