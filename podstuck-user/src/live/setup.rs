//! The preparation of tracing: the target, the kernel's features, and the probes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use aya_log::EbpfLogger;
use podstuck_common::config::Config;
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    api_reader::ApiReader,
    known_roots::{apart, known_roots},
    log_reader::{LogHistory, LogReader},
    rooting::Rooting,
    starting::{Hurry, Starting, Step},
    wanted::{Wanted, wanted},
};
use crate::outcome::Failure;
use crate::{
    cli::{Backend, Node, Tracing},
    model::{
        container::ContainerName, degraded::Feed, identity::Pod, node_record::NodeRecord,
        path::safe_path, pod_record::PodRecord, summary::Start,
    },
};
use podstuck_confine::{facts, pins::Pins};
pub(crate) use podstuck_node::identity::on_host;
use podstuck_node::{
    identity::{
        PodNames, WantedError, kubelet_roots, log_dirs_for,
        roots::USUAL,
        runtimes::running_daemons,
        target_names,
        target_roots::{Holds, TargetRoots},
        trust::Belief,
        wanted::PodTraces,
    },
    scope::Scope,
    state::{
        kubelet::{self, Kubelet},
        kubelet_unit::configured,
        listing::list,
        pod_logs::PodLogs,
        reach::is_missing,
        sample::{
            self,
            containers::{self, OnNode},
            daemons::known,
        },
        traces,
    },
};
use podstuck_probe::kernel::{
    attach::by_reason,
    directories::Directories,
    hooks::Form,
    layout::{self, BTF_PATH},
    load::{self, Probes},
    obstacle,
    roots::RootTables,
};

/// How long after its start a watch waits for the node's logs: long ones take seconds on a busy machine. Later lines
/// are taken in during the run.
const LOGS: Duration = Duration::from_secs(1);
/// How long it waits when they name the pod in question, or are a part of its answer.
const LOGS_THAT_NAME: Duration = Duration::from_secs(10);

/// How long a start waits for the end of the podstuck that it follows.
const PATIENCE: Duration = Duration::from_secs(10);

/// Everything that a run needs.
pub(super) struct Prepared {
    /// The loaded probes; `None` when calls are not watched.
    pub probes: Option<Probes>,
    /// Names of this node's pods.
    pub names: PodNames,
    /// The first line of output.
    pub start: Start,
    /// The pod that the run is restricted to.
    pub pod: Option<Pod>,
    /// The container that the run is restricted to.
    pub container: Option<ContainerName>,
    /// Containers known before the first sample.
    pub containers: containers::All,
    /// The places that samples read.
    pub places: sample::Places,
    /// The restriction of the output.
    pub scope: Scope,
    /// The logs from before the run.
    pub log_history: LogHistory,
    /// The API record of the pod that the run is restricted to.
    pub record: Option<PodRecord>,
    /// The API records of this node's pods that are to be deleted.
    pub deleted: Vec<PodRecord>,
    /// The API records of this node, or of several on this machine.
    pub nodes: Vec<NodeRecord>,
    /// The roots of targets.
    pub roots: TargetRoots,
    /// The probes' tables of the roots.
    pub rooting: Rooting,
}

/// Checks and loads. Leaves nothing behind when it fails. If one question is to be answered and no probe can be
/// loaded, the state of the node, records and logs may still answer it.
pub(super) fn prepare(
    options: &Tracing,
    one_answer: bool,
    verbose: u8,
    starting: &Starting,
) -> Result<Prepared, Failure> {
    let mut without = options.no_trace.then(|| "--no-trace was given".to_owned());
    if without.is_none()
        && let Err(why) = obstacle::any()
    {
        without = Some(excuse(why, one_answer)?);
    }
    let host_root = &options.node.host_root;
    // Below a root that is not there, no pod is stuck: that would be said of the node.
    let given = options.node.kubelet_root.iter();
    if let Some(root) = given.map(|root| on_host(host_root, root)).find(|root| is_missing(root)) {
        return Err(Failure::Usage(anyhow!(
            "--kubelet-root: no such directory: {}",
            safe_path(&root)
        )));
    }
    // A daemon that is started meanwhile is asked during the run, and so is one whose settings are incomplete.
    let mut asked = known(&running_daemons(&on_host(host_root, Path::new("/proc"))));
    let (kubelets, mut silent) = kubelet::running(host_root, &options.node.kubelet_root);
    silent.extend(kubelets.iter().filter(|it| !it.unread.is_empty()).map(|it| it.pid));
    let roots = roots(&options.node, &kubelets);
    // On the whole node also kubelets with other roots than the given ones: mounts there are found, and belong to
    // pods.
    let mut named = roots.clone();
    if options.target.is_whole_node() {
        let all = Node { kubelet_root: Vec::new(), host_root: host_root.clone() };
        named.extend(self::roots(&all, &kubelets));
    }
    starting.next(Step::Pods);
    let mut names = pod_names(log_dirs(host_root, &named, &kubelets));
    let directories = list(&PodTraces::of_pods(host_root, &roots), Feed::Node);
    let places = PodTraces { host_root, kubelet_roots: &roots, directories };
    let apart = apart(host_root, &kubelets, &roots);
    let mut api = ApiReader::start(host_root.clone(), &options.api, kubelets, &options.target);
    let mut logs = LogReader::start(host_root.clone());
    if options.target.pod.is_some() {
        // The name may have been another pod's before, whose traces are still here.
        api.name_pods(&mut names);
    }
    // For the whole node, the first sample reads them: there are many.
    let containers = match options.target.container {
        Some(_) => {
            let (known, _) = known_roots(host_root, &roots, apart.clone(), None);
            containers::of_node(host_root, known.all())
        }
        None => OnNode::default(),
    };
    let mut found = wanted(&options.target, &places, &mut names, &containers);
    // For a pod whose containers are gone, kubelet has removed the directory of logs that names it.
    let others: [&mut dyn FnMut(&mut PodNames); 3] = [
        &mut |names| api.name_pods(names),
        &mut |names| logs.name_pods(&places, names, LOGS_THAT_NAME),
        &mut |names| read_traces(&places, names),
    ];
    for name_pods in others {
        // Only a pod can be found by its name.
        if found.is_err() && options.target.is_pod() {
            name_pods(&mut names);
            found = wanted(&options.target, &places, &mut names, &containers);
        }
    }
    let mut wanted = found.map_err(|error| match error.downcast::<WantedError>() {
        Ok(error) => Failure::Usage(api.explain(error).into()),
        Err(error) => Failure::Usage(error),
    })?;

    starting.next(Step::Daemons);
    let (mut target_roots, runtimes) =
        known_roots(host_root, &roots, apart, wanted.scope.path.as_deref());
    silent.extend(runtimes);
    asked.retain(|(pid, _)| !silent.contains(pid));
    starting.next(Step::Probes);
    let (secret, mut tables) = (secret(), None);
    let mut probes = match without {
        Some(_) => None,
        None => match load_probes(options, &wanted, secret, verbose) {
            Ok(mut probes) => {
                tables = Some(RootTables::take(&mut probes.ebpf).map_err(Failure::CannotRun)?);
                Some(probes)
            }
            Err(error) => {
                without = Some(excuse(error, one_answer)?);
                None
            }
        },
    };
    target_roots.believe_text(probes.as_ref().is_some_and(|probes| probes.by_text));
    starting.next(Step::Roots);
    let rooting = Rooting::start(host_root, secret, tables, &mut target_roots);
    if let Some(probes) = &mut probes {
        probes.take_over().map_err(Failure::CannotRun)?;
        if let Some(why) = &probes.not_kept {
            tracing::warn!("the counts begin again with each start: {why}");
        }
    }
    starting.next(Step::Logs);
    api.name_pods(&mut names);
    logs.name_pods(&places, &mut names, if one_answer { LOGS_THAT_NAME } else { LOGS });
    if wanted.needs_names(&places, &mut names) {
        read_traces(&places, &mut names);
    }
    for (source, count) in names.by_source() {
        tracing::info!("names of pods by {source}: {count}");
    }
    wanted.name(&mut names);
    let mut searched: Vec<String> =
        roots.iter().map(|root| safe_path(&root.join("pods")).into_owned()).collect();
    searched.extend(names.log_dirs().iter().map(|dir| safe_path(dir).into_owned()));
    let start = Start {
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: facts::release(),
        target: wanted.text,
        roots_searched: searched,
        api: api.place(),
        ..covered(probes.as_ref(), without)
    };
    let only = match (&wanted.who, &wanted.container, &wanted.scope.path) {
        (Some(pod), ..) => sample::Only::Pod(pod.uid.clone()),
        (None, Some(container), _) => sample::Only::Container {
            id: container.id.clone(),
            pod: container.pod.as_ref().map(|pod| pod.uid.clone()),
        },
        (None, None, Some(path)) => sample::Only::Below(path.clone()),
        (None, None, None) => sample::Only::All,
    };
    let pods_root = wanted.who.as_ref().and_then(|pod| places.root_of(&pod.uid));
    let pods_root = pods_root.map(Path::to_owned);
    let data = target_roots.all().iter().filter(|root| root.holds != Holds::Pods);
    let places = sample::Places {
        data_roots: data.cloned().collect(),
        host_root: host_root.clone(),
        kubelet_roots: roots,
        takes_new_roots: options.node.kubelet_root.is_empty(),
        asked,
        only,
    };
    let log_history = logs.into_history();
    let record = wanted.who.as_ref().and_then(|pod| api.record(&pod.uid)).cloned();
    let (nodes, deleted) =
        (api.nodes_about(wanted.who.as_ref(), pods_root.as_deref()), api.deleted());
    let (pod, container, scope) = (wanted.who, wanted.container, wanted.scope);
    let (roots, containers) = (target_roots, containers.all);
    Ok(Prepared {
        probes,
        names,
        start,
        pod,
        container,
        containers,
        places,
        scope,
        log_history,
        record,
        deleted,
        nodes,
        roots,
        rooting,
    })
}

/// Why there are no probes, if the run continues without them.
fn excuse(error: anyhow::Error, one_answer: bool) -> Result<String, Failure> {
    if one_answer { Ok(format!("{error:#}")) } else { Err(Failure::CannotRun(error)) }
}

fn load_probes(
    options: &Tracing,
    wanted: &Wanted,
    secret: u64,
    verbose: u8,
) -> anyhow::Result<Probes> {
    let _hurry = Hurry::begin();
    let layout = layout::read(Path::new(BTF_PATH));
    layout.problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    let slow_ns = u64::try_from(options.hung_after.as_nanos()).unwrap_or(u64::MAX);
    let stop_after = options.stop_after.map_or(0, |step| step as u32);
    let config = Config { secret, stop_after, ..config(slow_ns, wanted.pod, wanted.path) };
    let pins = options
        .pin
        .as_deref()
        .map(|top| Pins::open(top, PATIENCE).with_context(|| format!("--pin {}", safe_path(top))));
    let (pins, not_kept) = match pins.transpose() {
        Ok(pins) => (pins, None),
        Err(why) => (None, Some(format!("{why:#}"))),
    };
    let forms = forms(options.backend);
    let mut probes = load::load_kept(&layout, &config, forms, verbose > 1, pins)
        .context("loading the probes")?;
    probes.not_kept = not_kept.or(probes.not_kept);
    if let Some(step) = options.stop_after {
        let what = format!("all calls: for a benchmark, the programs stop after {step:?}");
        probes.attached.not_covered.push(what);
    }
    if probes.attached.calls.is_empty() {
        let missing = by_reason(&probes.attached.missing).join("; ");
        return Err(anyhow!("no probe could be attached: {missing}"));
    }
    for form in Form::ALL {
        for why in probes.attached.in_vain(form) {
            tracing::info!("{} is not used: {why}", form.name());
        }
    }
    if let Directories::Unknown(why) = &probes.attached.directories {
        tracing::info!("the kernel does not report the directories of deletions: {why}");
    }
    Ok(probes)
}

/// The description of the probes, and of what they do not see.
fn covered(probes: Option<&Probes>, without: Option<String>) -> Start {
    let Some(Probes { attached, .. }) = probes else {
        let why = without.unwrap_or_default();
        let not_covered =
            vec![format!("all calls: {why}; podstuck uses only state, records and logs")];
        return Start { backend: "none".into(), not_covered, ..Start::default() };
    };
    Start {
        backend: attached.backend(),
        probes_attached: attached.hooks.clone(),
        probes_missing: by_reason(&attached.missing),
        not_covered: attached.not_covered.clone(),
        ..Start::default()
    }
}

/// kubelets' root directories: those given, else those of services, the default one, the configured ones of services
/// that are not running, and then those of others. When two of them have a directory of one pod, the first counts.
pub(crate) fn roots(node: &Node, kubelets: &[Kubelet]) -> Vec<PathBuf> {
    let found = kubelet_roots(&node.host_root, &node.kubelet_root);
    if !node.kubelet_root.is_empty() {
        return found;
    }
    let of = |belief| {
        let its = kubelets.iter().filter(move |kubelet| kubelet.standing.belief == belief);
        its.map(|kubelet| kubelet.root().to_owned())
    };
    let configured = configured(&node.host_root).into_iter().filter_map(|it| it.root);
    let of_node = of(Belief::Service).chain([PathBuf::from(USUAL)]).chain(configured);
    let mut roots: Vec<PathBuf> = Vec::new();
    for root in of_node.chain(of(Belief::Administrator)).chain(found) {
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    roots
}

/// Directories with pods' logs: the kubelets' settings, and the defaults of their roots.
pub(crate) fn log_dirs(host_root: &Path, roots: &[PathBuf], kubelets: &[Kubelet]) -> Vec<PathBuf> {
    let configured = kubelets.iter().filter_map(|kubelet| kubelet.settings.pod_logs.clone());
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in configured.chain(roots.iter().flat_map(|root| log_dirs_for(root))) {
        let dir = on_host(host_root, &dir);
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs
}

/// Names of pods, from the directories of their logs.
pub(crate) fn pod_names(log_dirs: Vec<PathBuf>) -> PodNames {
    let mut logs = PodLogs::default();
    PodNames::new(log_dirs, Box::new(move |directories, wait| logs.read(directories, wait)))
}

/// Takes names of pods from other files of the node.
fn read_traces(places: &PodTraces<'_>, names: &mut PodNames) {
    let (found, failed) = traces::read(places.host_root, places.kubelet_roots);
    if let Some(why) = failed {
        tracing::info!("not all traces of pods were read: {why}");
        names.looked_in([format!("mounts of pods, and runtimes' files (not all: {why})")]);
    } else {
        names.looked_in(["mounts of pods, and runtimes' files".into()]);
    }
    for trace in found.into_iter().filter(|trace| places.may_have_directory(&trace.uid)) {
        match trace.namespace {
            Some(namespace) => names.learn(trace.source, [(namespace, trace.name, trace.uid)]),
            None => names.learn_host(trace.name, trace.uid),
        }
    }
}

/// The forms of hooks to try, the best one first.
pub(crate) fn forms(backend: Backend) -> &'static [Form] {
    match backend {
        Backend::Auto => &Form::ALL,
        Backend::Fentry => &[Form::Function],
        Backend::Kprobe => &[Form::Kprobe],
        Backend::Tracepoint => &[Form::Tracepoint],
    }
}

/// Settings of the probes; zero means no restriction.
pub(crate) fn config(slow_ns: u64, only_pod: u64, only_path: u64) -> Config {
    Config { slow_ns, only_pod, only_path, own_tgid: std::process::id(), ..target_names() }
}

/// A random number that no other process can guess. Without randomness, which every kernel has from its first seconds
/// on, nothing is shown to the probes.
fn secret() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

/// Shows the probes' own debug lines, if they were loaded with them. Call it inside the runtime.
pub(super) fn log_probe_lines(probes: &mut Probes) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let logger = match EbpfLogger::init(&mut probes.ebpf) {
        Ok(logger) => logger,
        Err(error) => {
            tracing::warn!("cannot show the probes' debug lines: {error}");
            return;
        }
    };
    // SAFETY: the logger owns its map's descriptor until it is dropped together with the `AsyncFd`.
    let Ok(mut logger) = (unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) })
    else {
        return;
    };
    tokio::spawn(async move {
        while let Ok(mut ready) = logger.readable_mut().await {
            ready.get_inner_mut().flush();
            ready.clear_ready();
        }
    });
}
