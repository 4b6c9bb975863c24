//! What the node looks like, again and again. A thread of its own looks, because a look may take as
//! long as a sick node makes it take: nobody waits for it, and a sample that is late is simply late.

mod cgroups;
mod freezer;
mod hierarchies;
mod late;
mod mounts;
mod pod_mounts;
mod pods;
mod space;
mod tasks;
mod views;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

pub use cgroups::PodGroup;
pub use late::Looks;
pub use pod_mounts::Mounted;
pub use pods::{CsiState, PodState, Registration, VolumeState};
pub use space::Space;
pub use tasks::Task;

use super::mounts::NodeMounts;
use crate::{identity::on_host, model::time::Monotonic};
use cgroups::CgroupLook;
use hierarchies::Hierarchies;
use mounts::MountPoller;
use pods::PodLook;
use space::SpaceLook;

/// How often, on a node where that is cheap.
const EVERY: Duration = Duration::from_secs(2);
/// How many times longer than it worked the thread rests at least: 2 % of one core, however many
/// mounts and processes there are.
const REST: u32 = 49;

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where the host's file system is.
    pub host_root: PathBuf,
    /// kubelet's root directories, as the host sees them.
    pub kubelet_roots: Vec<PathBuf>,
    /// The pods that the run is about.
    pub only: Only,
}

/// What a run is restricted to. The probes are, too: of anything else it is not known whether
/// somebody tried to remove it.
#[derive(Clone, Debug, Default)]
pub enum Only {
    /// Nothing.
    #[default]
    All,
    /// The pod of this UID.
    Pod(String),
    /// What lies at or below this directory.
    Below(PathBuf),
}

/// The node at one moment.
#[derive(Clone, Debug, Default)]
pub struct NodeSample {
    /// When the look was over.
    pub at: Monotonic,
    /// How long after it the next one is begun.
    pub rest: Duration,
    /// Running kubelets.
    pub kubelets: Vec<u32>,
    /// Pods that have a directory.
    pub pods: Vec<PodState>,
    /// Pods whose processes were looked at this time. Those that give a reason are, every time.
    pub cgroups: Vec<PodGroup>,
    /// File systems that kubelet and the runtimes live on.
    pub spaces: Vec<Space>,
    /// The mounts of all namespaces.
    pub mounts: NodeMounts,
}

impl NodeSample {
    /// A sample of nothing but mounts, for tests.
    #[cfg(test)]
    pub(crate) fn of_mounts(at: Monotonic, mounts: NodeMounts) -> Self {
        Self {
            at,
            rest: Duration::ZERO,
            mounts,
            kubelets: Vec::new(),
            pods: Vec::new(),
            cgroups: Vec::new(),
            spaces: Vec::new(),
        }
    }
}

/// Samples that arrive; the last one counts.
pub struct Sampler {
    samples: watch::Receiver<Option<Arc<NodeSample>>>,
}

impl Sampler {
    /// Starts the thread. It ends when nobody listens any more.
    pub fn start(places: Places) -> Result<Self> {
        let (sender, samples) = watch::channel(None);
        let mut look = Look::new(places);
        thread::Builder::new()
            .name("sampler".into())
            .spawn(move || {
                loop {
                    let sample = look.at_all();
                    let rest = sample.rest;
                    if sender.send(Some(Arc::new(sample))).is_err() {
                        return;
                    }
                    thread::sleep(rest);
                }
            })
            .context("starting the thread that looks at the node")?;
        Ok(Self { samples })
    }

    /// Waits for the next sample; for ever once the thread has ended. Safe to cancel.
    pub async fn next(&mut self) -> Arc<NodeSample> {
        loop {
            if self.samples.changed().await.is_err() {
                return std::future::pending().await;
            }
            if let Some(sample) = self.samples.borrow_and_update().clone() {
                return sample;
            }
        }
    }
}

/// CPU time of this thread.
fn worked() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// What is kept from one sample to the next.
struct Look {
    places: Places,
    mounts: MountPoller,
    pods: PodLook,
    hierarchies: Hierarchies,
    cgroups: CgroupLook,
    spaces: SpaceLook,
}

impl Look {
    fn new(places: Places) -> Self {
        Self {
            places,
            mounts: MountPoller::default(),
            pods: PodLook::default(),
            hierarchies: Hierarchies::default(),
            cgroups: CgroupLook::default(),
            spaces: SpaceLook::default(),
        }
    }

    fn at_all(&mut self) -> NodeSample {
        let before = worked();
        let mounts = self.mounts.sample();
        let (views, kubelets) = views::all(&mounts);
        self.hierarchies.refresh(&on_host(&self.places.host_root, Path::new("/sys/fs/cgroup")));
        let pods = self.pods.sample(&self.places, &mounts, &views, &self.hierarchies);
        let cgroups = self.cgroups.sample(&self.places.only, &self.hierarchies, &pods);
        let spaces = self.spaces.sample(&self.places, &views);
        let rest = EVERY.max(worked().saturating_sub(before) * REST);
        NodeSample { at: Monotonic::now(), rest, mounts, kubelets, pods, cgroups, spaces }
    }
}
