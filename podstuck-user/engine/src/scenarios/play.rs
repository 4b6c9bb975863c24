//! A simulated run: events on the node, the node's answers, and the lines of output.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    cause::Kind,
    engine::{Engine, Output},
    event::{Count, Event, Run, What},
    model::{
        call::{Call, Outcome},
        client::Client,
        cluster::{KubeletsList, NotRead},
        csi::CsiState,
        evidence::Certainty,
        file_system::{FileSystem, Subvolume},
        finding::{Finding, FindingState},
        holder::Holder,
        hung::MountPoint,
        identity::{Pod, Target, TargetKind, Volume},
        mounted::Mounted,
        mounts::{Mounts, NodeMounts},
        node::{NodeSample, VolumeState},
        node_record::NodeRecord,
        object::{Attributes, Entries, Entry, Protected, User},
        operation::Operation,
        path::JsonPath,
        pod_group::{PodGroup, Task},
        pod_record::PodRecord,
        remaining::Remaining,
        said::{Heard, Said},
        stuck::StuckThread,
        time::Monotonic,
        waiting::Waiting,
    },
    query::{
        Answer, Contents, Fanotify, Listening, NoAnswer, ObjectAttributes, Query, ReadMountsOn,
        SocketPath, Wants,
    },
    scenarios::check_sentences,
    testing::{self, FILE, attributes, mounts, pod_group, run, snapshot},
};

/// UID of the pod of all scenarios.
pub(super) const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

/// The node's answers. The default is that nothing exists.
#[derive(Clone, Default)]
pub(super) struct Node {
    /// The caller's mount table; `None` when its namespace is gone.
    pub(super) mounts: Option<String>,
    /// The holders of the mount or device.
    pub(super) holders: Vec<Holder>,
    /// The file system of a path.
    pub(super) file_system: Option<FileSystem>,
    /// The btrfs subvolume of a path.
    pub(super) subvolume: Option<Subvolume>,
    /// FUSE mounts, each with the errno of a `stat`.
    pub(super) fuse: Vec<(MountPoint, i32)>,
    /// Attributes of an object and of its directory, and whether the object is a swap file.
    pub(super) attributes: (Attributes, Attributes, bool),
    /// The remaining entries of a deletion.
    pub(super) left: Remaining,
    /// The entries of a directory.
    pub(super) listed: Vec<Entry>,
    /// The users of the directory.
    pub(super) users: Vec<User>,
    /// The objects of a volume with attributes that forbid removal.
    pub(super) protected: Protected,
    /// Whether checks of files hang.
    pub(super) is_hung: bool,
    pub(super) clients: Vec<Client>,
    /// The waits of the processes that must act for the pod: only a run about one pod asks for them.
    pub(super) waits: Vec<Waiting>,
    /// Whether a process listens at the address of an NFS mount's server.
    pub(super) listening: Listening,
    /// The fanotify groups that must permit accesses.
    pub(super) fanotify: Fanotify,
    /// kubelet's own list of its pods, if it can be read.
    pub(super) kubelets_pods: Option<Result<KubeletsList, NotRead>>,
}

impl Node {
    pub(super) fn answer(&self, query: &Query) -> Answer {
        let node = self.clone();
        let table = node.mounts.as_deref().map(mounts);
        let unread = || Err(NotRead::Other("the scenario has none".into()));
        let hung = || NoAnswer::Deadline(std::time::Duration::from_secs(2));
        match query.wants.clone() {
            Wants::Mounts(_) => Answer::Mounts(table),
            Wants::MountsOn(ReadMountsOn { path, .. }) => {
                let on = |mut table: Mounts| {
                    table.all = table.on_file(&path).into_iter().cloned().collect();
                    table
                };
                Answer::Mounts(table.map(on))
            }
            Wants::FileSystem(_) => Answer::FileSystem(node.file_system),
            Wants::Subvolume(_) => Answer::Subvolume(Ok(node.subvolume)),
            Wants::FuseMounts(_) => Answer::FuseMounts(node.fuse),
            Wants::Attributes(_) if node.is_hung => Answer::Attributes(Err(hung())),
            Wants::Attributes(_) => {
                let (object, directory, swap) = node.attributes;
                let seen = ObjectAttributes { swap, ..attributes(object, directory) };
                Answer::Attributes(Ok(seen))
            }
            Wants::Protected(_) => Answer::Protected(Ok(node.protected)),
            Wants::Remaining(_) if node.is_hung => Answer::Remaining(Err(hung())),
            Wants::Remaining(_) => Answer::Remaining(Ok(node.left)),
            Wants::Directory(_) => {
                let count = node.listed.len() as u64;
                let entries = Entries { listed: node.listed, count, directory: Some(FILE) };
                let entries = if node.is_hung { Err(hung()) } else { Ok(entries) };
                Answer::Directory(Contents { mounts: table, entries, users: node.users })
            }
            Wants::Listener(_) => Answer::Listener(Ok(node.listening)),
            Wants::SocketPath(_) => Answer::SocketPath(Ok(SocketPath::Missing)),
            Wants::Fanotify(_) => Answer::Fanotify(Ok(node.fanotify)),
            Wants::Clients(_) => Answer::Clients(Ok(node.clients)),
            Wants::Waits(_) => Answer::Waits(Ok(node.waits)),
            Wants::KubeletsPods(_) => {
                Answer::KubeletsPods(node.kubelets_pods.unwrap_or_else(unread))
            }
            Wants::Holders(_) if node.is_hung => Answer::Holders(Err(hung())),
            Wants::Holders(_) => Answer::Holders(Ok(snapshot(node.holders))),
        }
    }
}

/// An event, with the node that answers its queries.
pub(super) struct Step {
    pub(super) node: Node,
    pub(super) at: Monotonic,
    pub(super) what: What,
}

/// A run and its output.
pub(super) struct Play {
    engine: Engine,
    /// The current node.
    pub(super) node: Node,
    /// Findings as JSON in the order of output: a new one in full, later only the changes.
    pub(super) lines: Vec<String>,
    /// Its events, without answers.
    pub(super) steps: Vec<Step>,
    /// The last state of each cause.
    last: BTreeMap<&'static str, Value>,
}

/// An engine without events, for such a run.
pub(super) fn engine(steps: &[Step]) -> Engine {
    of(steps.first().is_some_and(|first| !first.node.waits.is_empty()))
}

fn of(is_asked: bool) -> Engine {
    Engine::new(Run { one_answer: is_asked, pod: is_asked.then(pod), ..run() })
}

/// A time in seconds after the start.
pub(super) fn at(seconds: f64) -> Monotonic {
    Monotonic((seconds * 1e9) as u64)
}

impl Play {
    pub(super) fn new(node: Node) -> Self {
        let (lines, steps) = (Vec::new(), Vec::new());
        Self { engine: of(!node.waits.is_empty()), node, lines, steps, last: BTreeMap::new() }
    }

    fn show(&mut self, at: Monotonic, what: What) {
        self.steps.push(Step { node: self.node.clone(), at, what: what.clone() });
        self.take(at, what);
    }

    fn take(&mut self, at: Monotonic, what: What) {
        for output in self.engine.take(&Event { at, what }) {
            match output {
                Output::Finding(finding) => self.report(&finding),
                Output::Query(query) => {
                    let answer = Box::new(self.node.answer(&query));
                    self.take(at, What::Answer { query, answer });
                }
                Output::Hung(_) | Output::Progress(_) | Output::Gone(_) => {}
            }
        }
    }

    fn report(&mut self, finding: &Finding) {
        check_sentences(finding);
        // A reader who acts on it needs to know why it is not firm.
        let is_cause = finding.kind == Kind::Cause;
        let firm = finding.certainty == Certainty::Firm;
        assert!(!is_cause || firm == finding.not_known.is_empty(), "{finding:#?}");
        let now = serde_json::to_value(finding).unwrap();
        let before = self.last.insert(finding.id.as_str(), now.clone());
        if finding.state == FindingState::New {
            return self.lines.push(serde_json::to_string(finding).unwrap());
        }
        let before = before.unwrap_or_default();
        let mut news = now.as_object().unwrap().clone();
        news.retain(|name, value| name == "id" || before.get(name) != Some(value));
        self.lines.push(serde_json::to_string(&news).unwrap());
    }

    pub(super) fn op(&mut self, op: Operation) {
        self.show(op.end, What::Operation(Box::new(op)));
    }

    /// A second's counts of kubelet on one target: call, outcome, number.
    pub(super) fn counts(&mut self, second: f64, target_id: u64, of: &[(Call, Outcome, u64)]) {
        let count =
            |&(call, outcome, calls)| Count { target_id, ..testing::count(call, outcome, calls) };
        self.show(at(second), What::Counts(of.iter().map(count).collect()));
    }

    pub(super) fn sample(&mut self, sample: NodeSample) {
        self.show(sample.at, What::Sample(Arc::new(sample)));
    }

    pub(super) fn stuck(&mut self, seen: StuckThread) {
        self.show(seen.at, What::Stuck(Box::new(seen)));
    }

    pub(super) fn said(&mut self, second: f64, said: Said) {
        self.show(at(second), What::Said(Box::new(said)));
    }

    pub(super) fn heard(&mut self, second: f64, heard: Heard) {
        self.show(at(second), What::Heard(Box::new(heard)));
    }

    pub(super) fn node(&mut self, second: f64, name: &str) {
        let (node, read, missing) = (name.into(), Timestamp::UNIX_EPOCH, Vec::new());
        let record = NodeRecord { node, read, ready: None, kubelet: None, drivers: None, missing };
        self.show(at(second), What::Node(Box::new(record)));
    }

    pub(super) fn record(&mut self, second: f64, record: PodRecord) {
        let what = What::Record { record: Box::new(record), node: "here".into() };
        self.show(at(second), what);
    }
}

pub(super) fn pod() -> Pod {
    Pod { uid: UID.into(), namespace: None, name: None }
}

/// A volume of the pod, such as `kubernetes.io~csi/pv`.
pub(super) fn target(name: &str) -> (u64, Target) {
    let root = format!("/k/pods/{UID}/volumes/{name}");
    let (plugin, of) = name.split_once('/').unwrap();
    let path = JsonPath(root.clone().into());
    let volume = Volume { name: of.into(), plugin: plugin.replace('~', "/"), path };
    let id = podstuck_common::component::path_hash(root.as_bytes());
    let target = Target {
        kind: TargetKind::PodVolume,
        root: root.into(),
        pod: Some(pod()),
        volume: Some(volume),
        container: None,
        container_name: None,
    };
    (id, target)
}

/// An operation on an object of a volume; the empty name is the volume itself.
pub(super) fn on(name: &str, call: Call, errno: i32, object: &str, second: f64) -> Operation {
    let mut op = testing::failed(call, crate::model::errno::Errno::EIO, "", second);
    let (id, target) = target(name);
    op.path = if object.is_empty() { target.root.clone() } else { target.root.join(object) };
    op.outcome = Outcome(u16::try_from(errno).unwrap());
    (op.target_id, op.target) = (id, Arc::new(target));
    op
}

pub(super) fn volume_state(name: &str, csi: Option<CsiState>, mounts: Vec<Mounted>) -> VolumeState {
    let (target_id, target) = target(name);
    let path = target.root.clone();
    VolumeState { target_id, target: Arc::new(target), path, file: Some(FILE), csi, mounts }
}

pub(super) fn group(tasks: Vec<Task>, has_containers: bool, frozen: bool) -> PodGroup {
    let kind = TargetKind::PodDirectory;
    let path = std::path::PathBuf::from(format!("/sys/fs/cgroup/kubepods/pod{UID}"));
    let target_id = podstuck_common::component::name_hash(UID.as_bytes());
    let target = Arc::new(Target { kind, pod: Some(pod()), ..Target::unknown() });
    let frozen = frozen.then(|| path.clone());
    PodGroup { target_id, target, has_containers, frozen, path, tasks, ..pod_group(UID) }
}

/// An empty scan.
pub(super) fn sample(second: f64) -> NodeSample {
    let kubelet_group = Some("/system.slice/kubelet.service".into());
    NodeSample { at: at(second), kubelets: vec![1], kubelet_group, ..NodeSample::default() }
}

/// The mount tables by namespace; the node's is 1.
pub(super) fn node_mounts(tables: &[(u32, &str)]) -> NodeMounts {
    let table = |&(namespace, text): &(u32, &str)| (namespace, Arc::new(mounts(text)));
    NodeMounts { tables: tables.iter().map(table).collect::<BTreeMap<_, _>>(), host: Some(1) }
}

/// A thread of kubelet, with this kernel stack, whose call started at second 1.
pub(super) fn stuck(tid: u32, name: &str, stack: &[&str], second: f64) -> StuckThread {
    let mut seen = testing::stuck(stack);
    let (target_id, target) = target(name);
    seen.thread.tid = tid;
    seen.path = Some(target.root.join("m"));
    (seen.target_id, seen.target, seen.at) = (target_id, Arc::new(target), at(second));
    seen
}
