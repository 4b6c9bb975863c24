//! Whose container a bundle of containerd's is: the helper's side.
//!
//! A shim keeps a directory for each task, `<state>/io.containerd.runtime.v2.task/<namespace>/<id>`, with
//! the OCI runtime's `config.json`, whose `linux.cgroupsPath` is in the pod's control group, and with
//! `init.pid`, the first process (containerd pkg/process/init.go, `InitPidFile`).

use std::{fs, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    helper::{Budget, Question, Teller},
    seen_by::{Place, Root, Seen},
};
use crate::{
    identity::cgroup::pod_of_cgroup,
    kernel::role::{self, Role},
    model::degraded::Feed,
};

/// containerd writes some tens of kilobytes.
const CONFIG_SIZE: u64 = 1 << 20;

/// The containers of these bundles: for each one answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadBundles {
    pub(super) bundles: Vec<Place>,
}

/// What a bundle says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bundle {
    /// UID of the container's pod.
    pub(super) pod: Option<String>,
    /// Its first process, as the runtime's namespace of process ids has it.
    pub(super) init: Option<u32>,
}

impl Question for ReadBundles {
    const BUDGET: Budget = Budget::Pods;
    const FEEDS: Option<Feed> = Some(Feed::Node);
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = ();
    type Answer = Vec<Bundle>;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Vec<Bundle>> {
        let held = |bundle: &Place| Root::of_place(bundle)?.directory(Path::new(&bundle.1));
        let held: Vec<_> = self.bundles.iter().map(|bundle| held(bundle).ok()).collect();
        role::open_no_more_unseen();
        let read = |held: Option<Seen>| held.map(|held| read(&held.path())).unwrap_or_default();
        Ok(held.into_iter().map(read).collect())
    }
}

/// The part of `config.json` that is wanted.
#[derive(Deserialize)]
struct Config {
    linux: Linux,
}

#[derive(Deserialize)]
struct Linux {
    #[serde(rename = "cgroupsPath", default)]
    cgroups_path: String,
}

fn read(bundle: &Path) -> Bundle {
    let config = bundle.join("config.json");
    // Whatever else has this name is none of containerd's making.
    let is_small = |found: fs::Metadata| found.is_file() && found.len() <= CONFIG_SIZE;
    let small = fs::symlink_metadata(&config).is_ok_and(is_small);
    let text = if small { fs::read(&config) } else { Ok(Vec::new()) };
    // It is asked again.
    let Ok(text) = text else { return Bundle::default() };
    let config = serde_json::from_slice::<Config>(&text).ok();
    let pod = config.and_then(|config| pod_of_cgroup(&config.linux.cgroups_path));
    let init = fs::read_to_string(bundle.join("init.pid")).ok();
    Bundle { pod: pod.map(|(uid, _)| uid), init: init.and_then(|text| text.trim().parse().ok()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_says_whose_it_is() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(read(top.path()), Bundle::default());
        let uid = "0f0e0d0c-1111-2222-3333-444455556666";
        let config = format!(
            "{{\"ociVersion\":\"1.0.2\",\"linux\":{{\"cgroupsPath\":\"/kubepods/pod{uid}/aa\"}}}}"
        );
        fs::write(top.path().join("config.json"), config).unwrap();
        fs::write(top.path().join("init.pid"), "77").unwrap();
        assert_eq!(read(top.path()), Bundle { pod: Some(uid.into()), init: Some(77) });
        fs::write(top.path().join("config.json"), "{\"linux\":").unwrap();
        assert_eq!(read(top.path()).pod, None);
    }
}
