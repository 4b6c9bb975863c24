//! A pod whose control group is frozen, and what holds it next.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_tests::{requires, root_and_btf};
use serde_json::Value;

use super::{Node, answer, chattr, klog};

/// A pod's control groups of version 1, frozen, with a container in them that was killed.
struct FrozenPod {
    groups: Vec<PathBuf>,
    container: Child,
}

const GROUPS: &str = "/sys/fs/cgroup";

fn freezer() -> Result<(), &'static str> {
    let there = Path::new(GROUPS).join("freezer/cgroup.procs").exists();
    if there { root_and_btf() } else { Err("needs the freezer of control groups version 1") }
}

impl FrozenPod {
    fn new(uid: &str) -> Self {
        let below =
            |tree: &str| Path::new(GROUPS).join(tree).join(format!("podstuck-late/pod{uid}"));
        let groups: Vec<PathBuf> = ["pids", "freezer"].map(below).into();
        let container = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = container.id();
        let frozen = Self { groups, container };
        for group in &frozen.groups {
            let container = group.join("c0ffee00".repeat(8));
            fs::create_dir_all(&container).unwrap();
            fs::write(container.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        frozen.set("FROZEN");
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
        frozen
    }

    fn set(&self, state: &str) {
        let file = self.groups[1].join("freezer.state");
        fs::write(&file, state).unwrap();
        // A process that is about to run gets there a moment later.
        while fs::read_to_string(&file).unwrap().trim() != state {
            std::thread::yield_now();
        }
    }
}

impl Drop for FrozenPod {
    fn drop(&mut self) {
        self.set("THAWED");
        self.container.kill().unwrap();
        self.container.wait().unwrap();
        for group in &self.groups {
            let container = group.join("c0ffee00".repeat(8));
            for group in container.ancestors().take(3) {
                let _ = fs::remove_dir(group);
            }
        }
    }
}

/// Only kubelet's log is read here, as where the API server answers no request.
#[test]
fn what_holds_a_frozen_pod_next_is_reported_where_kubelet_got_its_deletion() {
    requires!(freezer());
    for (number, is_logged) in [(21, true), (22, false)] {
        let node = Node::new(number, "");
        let (name, uid) = (node.name(), &node.uid);
        let deletion = format!("\"SyncLoop DELETE\" source=\"api\" pods=[\"shop/{name}\"]");
        let killing = format!(
            "\"Killing container with a grace period\" pod=\"shop/{name}\" podUID=\"{uid}\" gracePeriod=30"
        );
        let lines = [is_logged.then_some(deletion), Some(killing)].into_iter().flatten();
        let log: String = lines.map(|line| klog(600, 'I', &line)).collect();
        fs::write(node.directory.path().join("kubelet.log"), log).unwrap();
        chattr("+i", &node.volume().join("kept"));
        let frozen = FrozenPod::new(uid);
        let (lines, status) = node.diagnose("100s");
        drop(frozen);

        let answer = answer(&lines);
        let ids: Vec<&Value> =
            answer["causes"].as_array().unwrap().iter().map(|cause| &cause["id"]).collect();
        let next = is_logged.then_some("immutable-attribute");
        let expected: Vec<&str> = ["cgroup-v1-frozen"].into_iter().chain(next).collect();
        assert_eq!(ids, expected, "{answer:#}");
        assert_eq!(status, Some(1));
        if is_logged {
            let fact_of_deletion = "kubelet has received the pod's deletion from the API server";
            let evidence = answer["causes"][1]["evidence"].as_array().unwrap();
            let fact = evidence.iter().find(|fact| fact["fact"] == fact_of_deletion).unwrap();
            assert!(fact["source"].as_str().unwrap().starts_with("log of kubelet"), "{fact:#}");
        }
    }
}
