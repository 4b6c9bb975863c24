//! The network's configurations on the node, for a runtime that says that it has none.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    causes::runtime::network,
    model::{identity::Component, node::NodeSample, runtime::Runtime, said::Said, time::Monotonic},
    query::{Contents, Query, ReadDirectory},
    tracker::TrackerId,
};

/// The directory of the network's configurations, unless a runtime is configured otherwise (CNI_CONF_DIR of the plugins'
/// installers).
pub(super) const DIRECTORY: &str = "/etc/cni/net.d";
/// The names that libcni takes for configurations (containernetworking/cni, libcni/conf.go, `ConfFiles`).
const TAKEN: [&str; 3] = ["conf", "conflist", "json"];
/// Time between two questions.
const AGAIN: Duration = Duration::from_secs(10);

/// What lies in that directory, by the process of the runtime whose view counts.
#[derive(Default)]
pub(super) struct NetworkFiles(BTreeMap<u32, Look>);

/// The last answer, and when the question was asked.
struct Look {
    asked: Monotonic,
    /// The configurations, and since when each has been there at least.
    found: Vec<(PathBuf, Monotonic)>,
}

impl NetworkFiles {
    /// Asks what is there, if the runtime says that it has no configuration.
    pub(super) fn ask(
        &mut self,
        tracker: TrackerId,
        (target_id, said): (u64, &Said),
        sample: &NodeSample,
    ) -> Option<Query> {
        let runtime = without_network(said, sample)?;
        let (pid, namespace) = (runtime.pid, runtime.mnt_ns?);
        let last = self.0.get(&pid);
        if last.is_some_and(|last| sample.at.since(last.asked) < AGAIN) {
            return None;
        }
        let found = self.0.remove(&pid).map(|last| last.found).unwrap_or_default();
        self.0.insert(pid, Look { asked: sample.at, found });
        let path = PathBuf::from(DIRECTORY);
        let wants = ReadDirectory { pid, namespace, directory: path.clone() }.into();
        Some(Query { tracker, target_id, path, wants })
    }

    pub(super) fn answered(&mut self, now: Monotonic, asked: &ReadDirectory, found: &Contents) {
        let Some(look) = self.0.get_mut(&asked.pid) else { return };
        let Ok(entries) = &found.entries else { return };
        let is_taken = |name: &OsStr| {
            let suffix = Path::new(name).extension();
            suffix.is_some_and(|suffix| TAKEN.iter().any(|it| suffix == *it))
        };
        let files = entries.listed.iter().filter(|it| !it.is_directory && is_taken(&it.name));
        let since = |age: Duration| {
            let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
            Monotonic(now.0.saturating_sub(nanos))
        };
        look.found = files.map(|it| (Path::new(DIRECTORY).join(&it.name), since(it.age))).collect();
    }

    /// A configuration that was there when the runtime last said that it has none.
    pub(super) fn unread(
        &self,
        said: &Said,
        last: Monotonic,
        sample: &NodeSample,
    ) -> Option<&(PathBuf, Monotonic)> {
        let look = self.0.get(&without_network(said, sample)?.pid)?;
        look.found.iter().find(|(_, since)| *since < last)
    }
}

/// The runtime that says so: the one that logs it, or the node's only one.
fn without_network<'a>(said: &Said, sample: &'a NodeSample) -> Option<&'a Runtime> {
    if !network::has_no_configuration(&said.text) {
        return None;
    }
    let is_its =
        |it: &&Runtime| said.component == Component::Kubelet || it.component == said.component;
    let mut all = sample.runtimes.iter().filter(is_its);
    all.next().filter(|_| all.next().is_none())
}
