//! Before tracing: what is wanted, what this kernel allows, and the probes in.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use aya_log::EbpfLogger;
use podstuck_common::{
    component::{name_hash, path_hash},
    config::Config,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{Failure, log_reader::LogReader};
pub(super) use crate::identity::on_host;
use crate::{
    cli::{Backend, Target, Tracing},
    identity::{
        PodNames, kubelet_roots, layout::normalise, log_dirs_for, markers, wanted::PodTraces,
    },
    kernel::{
        attach::by_reason,
        facts,
        hooks::Form,
        layout::{self, BTF_PATH},
        load::{self, Probes},
        privilege,
    },
    model::{identity::Pod, path::safe_path, summary::Start},
    scope::Scope,
    state::{logs::Attempt, sample},
};

/// All that a run needs.
pub(super) struct Prepared {
    /// In the kernel.
    pub probes: Probes,
    /// Pods of this node.
    pub names: PodNames,
    /// What is told first.
    pub start: Start,
    /// The pod that the run is restricted to.
    pub pod: Option<Pod>,
    /// Where to look at the node.
    pub places: sample::Places,
    /// What is told.
    pub scope: Scope,
    /// What kubelet's log tells of before.
    pub attempts: Vec<Attempt>,
}

/// Checks and loads. Nothing is left behind when it fails.
pub(super) fn prepare(options: &Tracing, verbose: u8) -> Result<Prepared, Failure> {
    privilege::check().map_err(|missing| Failure::CannotRun(missing.into()))?;
    let host_root = &options.node.host_root;
    let roots = kubelet_roots(host_root, &options.node.kubelet_root);
    let mut log_dirs: Vec<PathBuf> = roots.iter().flat_map(|root| log_dirs_for(root)).collect();
    log_dirs.iter_mut().for_each(|dir| *dir = on_host(host_root, dir));
    log_dirs.dedup();
    let mut names = PodNames::new(log_dirs);
    let places = PodTraces { host_root, kubelet_roots: &roots };
    let mut logs = LogReader::start(host_root.clone());
    let mut found = wanted(&options.target, &places, &mut names);
    if found.is_err() {
        // Of a pod whose containers are gone, kubelet has removed the directory of logs that names it.
        logs.name_pods(&places, &mut names);
        found = wanted(&options.target, &places, &mut names);
    }
    let mut wanted = found.map_err(Failure::Usage)?;

    let layout = layout::read(Path::new(BTF_PATH));
    layout.problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    let slow_ns = u64::try_from(options.hung_after.as_nanos()).unwrap_or(u64::MAX);
    let config = config(slow_ns, wanted.pod, wanted.path);
    let probes = load::load(&layout, &config, forms(options.backend), verbose > 1)
        .context("loading the probes")
        .map_err(Failure::CannotRun)?;
    let missing = by_reason(&probes.attached.missing);
    if probes.attached.calls.is_empty() {
        let error = anyhow!("no probe could be attached: {}", missing.join("; "));
        return Err(Failure::CannotRun(error));
    }
    for why in by_reason(&probes.attached.fallbacks) {
        tracing::info!("by tracepoint and not by fentry: {why}");
    }
    logs.name_pods(&places, &mut names);
    wanted.name(&mut names);
    let mut searched: Vec<String> =
        roots.iter().map(|root| safe_path(&root.join("pods")).into_owned()).collect();
    searched.extend(names.log_dirs().iter().map(|dir| safe_path(dir).into_owned()));
    let start = Start {
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: facts::release(),
        backend: probes.attached.backend().into(),
        probes_attached: probes.attached.hooks.clone(),
        probes_missing: missing,
        not_covered: probes.attached.not_covered.clone(),
        target: wanted.text,
        roots_searched: searched,
    };
    let only = match (&wanted.who, &options.target.path) {
        (Some(pod), _) => sample::Only::Pod(pod.uid.clone()),
        (None, Some(path)) => sample::Only::Below(normalise(path)),
        (None, None) => sample::Only::All,
    };
    let places = sample::Places { host_root: host_root.clone(), kubelet_roots: roots, only };
    let attempts = logs.attempts();
    Ok(Prepared { probes, names, start, places, pod: wanted.who, scope: wanted.scope, attempts })
}

/// The forms of hooks that may be used, the best one first.
pub(super) fn forms(backend: Backend) -> &'static [Form] {
    match backend {
        Backend::Auto => &[Form::Function, Form::Tracepoint],
        Backend::Fentry => &[Form::Function],
        Backend::Tracepoint => &[Form::Tracepoint],
    }
}

/// Switches of the probes; zero means no restriction.
pub(super) fn config(slow_ns: u64, only_pod: u64, only_path: u64) -> Config {
    Config {
        slow_ns,
        only_pod,
        only_path,
        own_tgid: std::process::id(),
        reserved: 0,
        markers: markers(),
    }
}

/// What the run is restricted to, as the probes compare it.
#[derive(Default)]
struct Wanted {
    pod: u64,
    path: u64,
    text: Option<String>,
    who: Option<Pod>,
    scope: Scope,
}

impl Wanted {
    /// Says who the pod is, as far as that is known.
    fn name(&mut self, names: &mut PodNames) {
        let Some(who) = &mut self.who else { return };
        (who.namespace, who.name) = names.lookup(&who.uid).unzip();
        let uid = &who.uid;
        self.text = Some(match (&who.namespace, &who.name) {
            (Some(namespace), Some(name)) => format!("pod {namespace}/{name} ({uid})"),
            _ => format!("pod {uid}"),
        });
    }
}

fn wanted(target: &Target, places: &PodTraces<'_>, names: &mut PodNames) -> anyhow::Result<Wanted> {
    let uid = match (&target.pod_uid, &target.pod) {
        (Some(uid), _) => Some(places.by_uid(uid, names)?),
        (None, Some(name)) => Some(places.by_name(name, names)?),
        (None, None) => None,
    };
    if let Some(uid) = uid {
        let pod = name_hash(uid.as_bytes());
        let scope = Scope { pod: Some(uid.clone()), path: None };
        let who = Some(Pod { uid, namespace: None, name: None });
        let mut wanted = Wanted { pod, path: 0, text: None, who, scope };
        wanted.name(names);
        return Ok(wanted);
    }
    let Some(path) = &target.path else { return Ok(Wanted::default()) };
    if !path.is_absolute() {
        return Err(anyhow!("--path {}: must be absolute", safe_path(path)));
    }
    let path = normalise(path);
    let hash = path_hash(path.as_os_str().as_encoded_bytes());
    let text = Some(format!("directory {}", safe_path(&path)));
    let scope = Scope { pod: None, path: Some(path) };
    Ok(Wanted { path: hash, pod: 0, text, who: None, scope })
}

/// Shows the probes' own debug lines, if they were loaded with them. Call it inside the runtime.
pub(super) fn log_probe_lines(probes: &mut Probes) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let logger = match EbpfLogger::init(&mut probes.ebpf) {
        Ok(logger) => logger,
        Err(error) => {
            tracing::warn!("no debug lines of the probes: {error}");
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
