//! Samples of the node's state. They are taken by a thread of their own, because a sample may take very long on a sick
//! node: no other thread waits for it, and a sample may be late.

mod asked_container;
mod block_volumes;
mod bundles;
mod cgroups;
pub mod containers;
mod crowds;
pub mod daemons;
mod descriptors;
mod device_mounts;
mod disks;
mod driver_process;
mod drivers;
mod freezer;
mod halted;
mod hierarchies;
mod late;
mod layers;
mod mounts;
mod namespace_members;
mod out_of_step;
mod pace;
mod pod_mounts;
mod pods;
mod roots_on_disk;
mod runtimes;
mod shims;
mod space;
mod target_roots;
mod tasks;
mod turns;
mod views;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    sync::watch,
    time::{self, Interval},
};

use crate::identity::{
    cgroup::group_of, from_host, kubelet_trees::KubeletTrees, on_host, runtimes::daemons_among,
    target_roots::TargetRoot, trust::Belief,
};
use asked_container::AskedContainer;
use cgroups::CgroupCollector;
use containers::ContainerCollector;
use crowds::Crowds;
use daemons::NewDaemons;
use device_mounts::DeviceMounts;
use halted::Trees;
use hierarchies::Hierarchies;
pub use late::Lateness;
use mounts::MountPoller;
use out_of_step::Dockers;
pub(super) use out_of_step::data_of;
pub use pace::Pace;
use pods::PodCollector;
pub use pods::collisions;
use podstuck_confine::{
    clock, proc,
    role::Role,
    silent::{self, Owner, Reading},
};
use podstuck_model::{
    halted::{Halted, HaltedKubelet},
    node::{NodeSample, VolumeState},
    pod_group::{PodGroup, Task},
};
use shims::NodeShims;
use space::SpaceCollector;
use target_roots::TargetRootFinder;
pub(super) use tasks::{DUMPS, WORKER};

/// How often it is asked whether the thread waits for a process: a read takes microseconds.
const CHECKED: Duration = Duration::from_millis(200);

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where the host's file system is.
    pub host_root: PathBuf,
    /// kubelet's root directories, as the host sees them.
    pub kubelet_roots: Vec<PathBuf>,
    /// Whether the roots of kubelets that are started later are read, too.
    pub takes_new_roots: bool,
    /// kubelets and runtimes that were asked where they keep their things, by id and start.
    pub asked: Vec<(u32, u64)>,
    /// Directories of runtimes that were known before the run.
    pub data_roots: Vec<TargetRoot>,
    /// What the run is about.
    pub only: Only,
}

/// What a run is restricted to. The probes are, too: of any other object it is not known whether
/// a process tried to remove it.
#[derive(Clone, Debug, Default)]
pub enum Only {
    /// Nothing.
    #[default]
    All,
    /// The pod of this UID.
    Pod(String),
    /// What lies at or below this directory.
    Below(PathBuf),
    /// A container, by its id, and the UID of its pod.
    Container {
        /// Its id.
        id: String,
        /// The UID of its pod.
        pod: Option<String>,
    },
}

impl Only {
    /// Whether a pod is of interest.
    fn includes_pod(&self, uid: &str) -> bool {
        match self {
            Self::All | Self::Below(_) => true,
            Self::Pod(wanted) => wanted == uid,
            Self::Container { pod, .. } => pod.as_deref() == Some(uid),
        }
    }
}

/// A look at the node.
#[derive(Clone, Debug)]
pub struct Look {
    /// The sample.
    pub sample: Arc<NodeSample>,
    /// Who has kubelet's directories.
    pub trees: Arc<KubeletTrees>,
    /// Where targets are.
    pub roots: Arc<Vec<TargetRoot>>,
    /// Containers.
    pub containers: containers::All,
}

/// Looks that arrive; the last one counts.
pub struct Sampler {
    places: Places,
    pace: Pace,
    looks: watch::Receiver<Option<Look>>,
    sender: watch::Sender<Option<Look>>,
    thread: JoinHandle<()>,
    /// Of that thread.
    owner: Owner,
    checks: Interval,
}

impl Sampler {
    /// Starts the thread. It ends when the receiver is dropped.
    ///
    /// # Errors
    /// Fails when no thread can be had.
    pub fn start(places: Places, pace: Pace) -> Result<Self> {
        let (sender, looks) = watch::channel(None);
        let mut checks = time::interval(CHECKED);
        checks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let owner = Owner::default();
        let thread = Self::start_thread(places.clone(), pace, sender.clone(), owner.reading())?;
        Ok(Self { places, pace, looks, sender, thread, owner, checks })
    }

    fn start_thread(
        places: Places,
        pace: Pace,
        sender: watch::Sender<Option<Look>>,
        reading: Arc<Reading>,
    ) -> Result<JoinHandle<()>> {
        let mut collector = Collector::new(places, pace);
        let look = move || {
            Role::Look.assume();
            reading.of_this_thread();
            while !sender.is_closed() {
                let look = collector.look();
                let rest = look.sample.rest;
                // Another thread looks, and this one's look is an old one.
                if reading.is_left_behind() {
                    return;
                }
                sender.send_replace(Some(look));
                thread::park_timeout(rest);
            }
        };
        let started = thread::Builder::new().name("sampler".into()).spawn(look);
        started.context("starting the thread that scans the node")
    }

    /// Whether the thread has ended, as none does that works.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Requests the next sample at once.
    pub fn hurry(&self) {
        self.thread.thread().unpark();
    }

    /// Waits for the next sample. Safe to cancel.
    pub async fn next(&mut self) -> Look {
        loop {
            tokio::select! {
                // The sender is our own: it does not end before us.
                _ = self.looks.changed() => {
                    if let Some(look) = self.looks.borrow_and_update().clone() {
                        return look;
                    }
                }
                _ = self.checks.tick() => self.check(),
            }
        }
    }

    /// Has another thread look, when this one waits for a process.
    fn check(&mut self) {
        if !self.owner.has_to_leave() {
            return;
        }
        let (places, sender) = (self.places.clone(), self.sender.clone());
        match Self::start_thread(places, self.pace, sender, self.owner.reading()) {
            Ok(thread) => self.thread = thread,
            Err(error) => tracing::warn!("{error:#}: podstuck no longer scans the node"),
        }
    }
}

/// CPU time of this thread.
fn worked() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// What is kept from one sample to the next.
struct Collector {
    places: Places,
    pace: Pace,
    mounts: MountPoller,
    device_mounts: DeviceMounts,
    crowds: Crowds,
    pods: PodCollector,
    hierarchies: Hierarchies,
    cgroups: CgroupCollector,
    containers: ContainerCollector,
    asked: AskedContainer,
    shims: NodeShims,
    spaces: SpaceCollector,
    roots: TargetRootFinder,
    names: proc::Names,
    daemons: NewDaemons,
    dockers: Dockers,
}

impl Collector {
    fn new(places: Places, pace: Pace) -> Self {
        Self {
            places,
            pace,
            mounts: MountPoller::default(),
            device_mounts: DeviceMounts::default(),
            crowds: Crowds::default(),
            pods: PodCollector::default(),
            hierarchies: Hierarchies::default(),
            cgroups: CgroupCollector::default(),
            containers: ContainerCollector::default(),
            asked: AskedContainer::default(),
            shims: NodeShims::default(),
            spaces: SpaceCollector::default(),
            roots: TargetRootFinder::default(),
            names: proc::Names::default(),
            daemons: NewDaemons::default(),
            dockers: Dockers::default(),
        }
    }

    fn look(&mut self) -> Look {
        let (before, begun) = (worked(), Some(clock::now()));
        let mounts = self.mounts.sample();
        let daemons = daemons_among(Path::new("/proc"), &mut self.names);
        if self.daemons.learn(&daemons, &mut self.places) {
            self.roots = TargetRootFinder::default();
        }
        let kubelets = daemons.kubelets.clone();
        let views = views::all(&mounts, &daemons);
        self.hierarchies.refresh(&on_host(&self.places.host_root, Path::new("/sys/fs/cgroup")));
        let mut roots = self.roots.sample(&self.places.kubelet_roots, &views, mounts.host);
        roots.extend_from_slice(self.daemons.found());
        let roots = Arc::new(roots);
        let kubelet_since = views::since(&kubelets);
        let (by_turns, seen) = (self.pace == Pace::Days, (&mounts, views.as_slice()));
        let mut pods = self.pods.sample(&self.places, by_turns, seen, &self.hierarchies);
        self.shims.refresh(&daemons.shims);
        let whose = (&self.places.only, self.pace.processes());
        let mut cgroups = self.cgroups.sample(whose, &self.hierarchies, &pods, &self.shims);
        cgroups::populate(&mut pods, &cgroups);
        let hierarchies = Trees::among(self.hierarchies.trees());
        let (mut runtimes, gone) = runtimes::look(&daemons.runtimes, &self.shims, &hierarchies);
        let of_pods = pods.iter_mut().flat_map(|pod| &mut pod.volumes).filter_map(frozen_by);
        let of_daemons = runtimes.iter_mut().filter_map(|it| halting_group(it.halted.as_mut()?));
        let frozen = of_pods.chain(of_daemons);
        for group in frozen.chain(cgroups.iter_mut().flat_map(groups)) {
            *group = from_host(&self.places.host_root, group);
        }
        let data = [self.places.data_roots.as_slice(), &roots].concat();
        let containers = self.containers.sample(&self.places.host_root, &data, &views);
        let asked = &self.places.only;
        let rootfs =
            bundles::sample(asked, &self.places.host_root, &views, mounts.host, &self.containers);
        let state =
            self.asked.state(&self.places.host_root, asked, &containers, &views, &self.shims);
        let halted_shims = out_of_step::halted(asked, &containers, &self.shims);
        let written = self.containers.written(&self.places.host_root);
        let runtimes_of = (asked, daemons.runtimes.as_slice());
        let of_crio = out_of_step::of_crio(runtimes_of, &written, &containers, &self.shims);
        let mut out_of_step = self.dockers.out_of_step(runtimes_of, written, &self.shims);
        out_of_step.extend(of_crio);
        let spaces = self.spaces.sample(&self.places, &data, &views);
        let volumes = pods.iter().flat_map(|pod| &pod.volumes).flat_map(|volume| &volume.mounts);
        // A busy node has many at work: they are asked for where a process cannot be killed, and in a run about one
        // object, whose calls may wait for them.
        let waits = !matches!(self.places.only, Only::All)
            || cgroups.iter().flat_map(|group| &group.tasks).any(Task::is_unkillable);
        let of_volumes = volumes.clone().map(|mount| mount.device);
        let disks = if waits { disks::sample(&views, of_volumes) } else { Vec::new() };
        let trees = KubeletTrees::new(
            mounts.clone(),
            views.iter().map(|view| view.namespace).collect(),
            &self.places.kubelet_roots,
            volumes.map(|mount| mount.point.as_path()),
        );
        let crowded = self.crowds.of(&views);
        let mounts = self.device_mounts.of(&mounts);
        let halted = |pid: &u32| {
            let (state, started) = proc::stat(*pid, *pid)?;
            let halted = hierarchies.halted(*pid, state)?;
            Some(HaltedKubelet { pid: *pid, started: Some(started), halted })
        };
        let mut halted_kubelets: Vec<HaltedKubelet> = kubelets.iter().filter_map(halted).collect();
        for group in halted_kubelets.iter_mut().filter_map(|it| halting_group(&mut it.halted)) {
            *group = from_host(&self.places.host_root, group);
        }
        let is_stopped = |it: &&HaltedKubelet| it.halted == Halted::Stopped;
        let stopped = halted_kubelets.iter().filter(is_stopped).map(|it| it.pid).collect();
        // Daemons that an administrator has started are not the node's services.
        let services = kubelets.iter().filter(|pid| daemons.belief(**pid) == Belief::Service);
        let services: Vec<u32> = services.copied().collect();
        let kubelet_group = match services.as_slice() {
            [only] => group_of(Path::new(&format!("/proc/{only}"))),
            _ => None,
        };
        let at = clock::now();
        let rest = self.pace.rest(worked().saturating_sub(before), at);
        let sample = NodeSample {
            at,
            begun,
            rest,
            mounts,
            kubelets,
            stopped,
            halted_kubelets,
            kubelet_since,
            kubelet_group,
            pods,
            unread: self.pods.unread(&self.places),
            linked: self.pods.linked(),
            crowded,
            cgroups,
            rootfs,
            runtimes,
            gone,
            shims: halted_shims,
            out_of_step,
            containers: state,
            disks,
            spaces,
            silent: silent::all(),
        };
        Look { sample: sample.into(), trees: trees.into(), roots, containers }
    }
}

/// The group that keeps a volume's driver from running.
fn frozen_by(volume: &mut VolumeState) -> Option<&mut PathBuf> {
    halting_group(volume.csi.as_mut()?.driver.as_mut()?.process.as_mut()?.halted.as_mut()?)
}

fn halting_group(halted: &mut Halted) -> Option<&mut PathBuf> {
    match halted {
        Halted::Frozen { group } | Halted::NoTasks { group, .. } => Some(group),
        Halted::Stopped | Halted::NoDescriptors { .. } | Halted::Waits { .. } => None,
    }
}

/// The directories that are reported of a pod's groups.
fn groups(of: &mut PodGroup) -> impl Iterator<Item = &mut PathBuf> {
    let of_tasks = of.tasks.iter_mut().map(|task| &mut task.group);
    [&mut of.path].into_iter().chain(&mut of.frozen).chain(of_tasks)
}
