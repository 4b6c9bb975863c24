//! What a tenant does in a container, beside a pod that is stuck: it is told of nobody else, and what is true is
//! found and kept.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[allow(dead_code, reason = "not all that the other tests of runtimes need")]
#[path = "common/runtimes.rs"]
mod daemons;

use std::{path::Path, thread, time::Duration};

use daemons::{Runtimes, output};
use podstuck_tests::{Running, lab, of_type, summary, watch};
use serde_json::Value;

/// A stuck pod, and a container whose owner wants it to go unnoticed.
struct Attack {
    runtimes: Runtimes,
    lab: Running,
    ready: Value,
    watch: Running,
}

impl Attack {
    /// With the tenant's work done before the pod's removal begins, and a watch over both.
    fn begin(prepare: &str) -> Option<Self> {
        let runtimes = Runtimes::start()?;
        runtimes.run_docker("tenant");
        let (lab, ready) = lab("immutable-attribute", &[]);
        let watch = watch(&["--kubelet-root", ready["kubelet_root"].as_str().unwrap()]);
        let attack = Self { runtimes, lab, ready, watch };
        attack.tenant(prepare);
        Some(attack)
    }

    /// What the tenant runs, with the paths of its victim.
    fn tenant(&self, script: &str) {
        let text = |key: &str| self.ready[key].as_str().unwrap().to_owned();
        let script = script.replace("$VOLUME", &text("path")).replace("$ROOT", &text("root"));
        output(self.runtimes.docker(&["exec", "tenant", "sh", "-c", &script]));
    }

    /// The pod's removal begins, and its cause is found.
    fn cause_is_found(&mut self) {
        self.lab.resume();
        let uid = self.ready["pod_uid"].clone();
        let found = self.watch.wait_for("the pod's finding", |line| {
            line["type"] == "finding" && line["pod"]["uid"] == uid
        });
        assert_eq!(found["id"], "immutable-attribute", "{found:#}");
    }

    /// The finding stays until the end, there is no other, and the tenant's calls are told as what they are.
    fn end(self, at_least: u64) {
        // Longer than an answer about a directory is believed.
        thread::sleep(Duration::from_secs(2));
        let (lines, _) = self.watch.stop();
        for finding in of_type(&lines, "finding") {
            assert_eq!(finding["id"], "immutable-attribute", "{finding:#}");
            assert_ne!(finding["state"], "cleared", "{finding:#}");
            assert_eq!(finding["actor"]["comm"], "kubelet", "{finding:#}");
        }
        let completeness = &summary(&lines)["completeness"];
        let told = completeness["look_alikes"].as_u64().unwrap();
        assert!(told >= at_least, "{completeness:#}");
        let example = completeness["look_alike"].as_str();
        assert_eq!(example.is_some(), told > 0, "{completeness:#}");
        drop(self.lab);
        drop(self.runtimes);
    }
}

#[test]
fn a_look_alike_of_the_victims_volume_is_nobodys() {
    let make = "mkdir -p $VOLUME/d && touch $VOLUME/d/f";
    let Some(mut attack) = Attack::begin(make) else { return };
    attack.cause_is_found();
    // The same object succeeds, the volume goes, and comes again: none of it is the victim's.
    attack.tenant(
        "for n in 1 2 3 4 5; do mkdir -p $VOLUME/d; touch $VOLUME/d/f; rm $VOLUME/d/f; rm -r $ROOT; done",
    );
    attack.end(5);
}

#[test]
fn a_renamed_directory_blinds_nobody() {
    // By text, all that lies below the new place were the tenant's volume from then on.
    let top = |path: &str| {
        let path = Path::new(path);
        path.components().take(2).collect::<std::path::PathBuf>().display().to_string()
    };
    let Some(mut attack) = Attack::begin("true") else { return };
    let place = top(attack.ready["root"].as_str().unwrap());
    attack.tenant(&format!("rm -rf {place}; mkdir -p /volumes/b && mv /volumes/b {place}"));
    attack.cause_is_found();
    attack.end(0);
}
