//! Containers that are out of step: dockerd or CRI-O has written something else of one than its processes show, or the
//! shim that looks after one cannot run.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    Only,
    bundles::is_process_of,
    shims::{NodeShims, parent},
};
use crate::{
    identity::{
        containers::{Container, DockerState},
        uid::is_long_id,
    },
    state::thread::since_boot,
};
use podstuck_confine::{clock, proc, silent};
use podstuck_model::{
    identity::Component,
    runtime::{Differs, HaltedShim, OutOfStep, Shim},
};

/// A database that dockerd keeps open in its data root (moby volume/service/store.go).
const DATABASE: &str = "volumes/metadata.db";
/// Most containers reported of each.
const MOST: usize = 64;

/// Shims that cannot run, with what is known of their containers.
pub(super) fn halted(only: &Only, all: &[Arc<Container>], shims: &NodeShims) -> Vec<HaltedShim> {
    let of = |(id, shim): (String, _)| {
        let known = all.iter().find(|container| container.id == id)?;
        let to_go = known.described.state.is_some_and(DockerState::is_to_go);
        includes(only, known).then(|| HaltedShim { container: known.name(), to_go, shim })
    };
    shims.halted().into_iter().filter_map(of).take(MOST).collect()
}

/// Whether a run is about a container. What is below a directory is not known to be a container's.
fn includes(only: &Only, container: &Container) -> bool {
    let pod = container.described.pod.as_ref();
    match only {
        Only::All => true,
        Only::Pod(uid) => pod.is_some_and(|pod| pod.uid == *uid),
        Only::Below(directory) => container.parts.iter().any(|part| part.starts_with(directory)),
        Only::Container { id, .. } => *id == container.id,
    }
}

/// dockerds that run, and where each keeps its data.
#[derive(Debug, Default)]
pub(super) struct Dockers {
    /// By id and start; what one has open does not move.
    data: HashMap<(u32, u64), PathBuf>,
}

impl Dockers {
    /// The containers whose state in dockerd's files differs from the actual state. Files of a dockerd that does not run
    /// do not count.
    pub(super) fn out_of_step(
        &mut self,
        (only, runtimes): (&Only, &[(u32, Component)]),
        written: Vec<(PathBuf, &Container)>,
        shims: &NodeShims,
    ) -> Vec<OutOfStep> {
        self.refresh(runtimes);
        let of = |(file, container): (PathBuf, &Container)| {
            let directory = file.parent()?;
            let data = directory.parent()?.parent()?;
            let own = self.data.iter().find(|(_, own)| *own == data);
            let ((dockerd, _), _) = own.filter(|_| includes(only, container))?;
            let state = container.described.state?;
            // The id becomes part of a command: only a long one is used.
            is_long_id(container.id.as_bytes()).then_some(())?;
            let (what, shim) = differs(&container.id, state, shims)?;
            let log_driver = container.described.log_driver.clone();
            let (container, directory) = (container.name(), directory.into());
            let (daemon, started_at, runtime) = (*dockerd, state.started_at, Component::Dockerd);
            Some(OutOfStep {
                container,
                runtime,
                directory,
                daemon,
                what,
                shim,
                log_driver,
                started_at,
            })
        };
        written.into_iter().filter_map(of).take(MOST).collect()
    }

    fn refresh(&mut self, runtimes: &[(u32, Component)]) {
        let mut before = std::mem::take(&mut self.data);
        for (pid, _) in runtimes.iter().filter(|(_, it)| *it == Component::Dockerd) {
            let Some(started) = proc::started(*pid) else { continue };
            let key = (*pid, started);
            let data =
                before.remove(&key).or_else(|| data_of(&PathBuf::from(format!("/proc/{pid}"))));
            self.data.extend(data.map(|data| (key, data)));
        }
    }
}

/// The containers that CRI-O has recorded as running, and of which neither the process nor conmon exists: CRI-O learns of
/// the end from conmon. Not with several, since the record does not say whose it is.
pub(super) fn of_crio(
    (only, runtimes): (&Only, &[(u32, Component)]),
    written: &[(PathBuf, &Container)],
    all: &[Arc<Container>],
    shims: &NodeShims,
) -> Vec<OutOfStep> {
    let mut own = runtimes.iter().filter(|(_, it)| *it == Component::CriO);
    let (Some((crio, runtime)), None) = (own.next(), own.next()) else { return Vec::new() };
    let of = |(file, container): &(PathBuf, &Container)| {
        let state = container.described.state.filter(|it| it.running && it.pid != 0)?;
        let known = all.iter().find(|known| known.id == container.id)?;
        let lives = proc::exists(state.pid, state.pid)
            || shims.all().any(|shim| shim.container.as_ref() == Some(&container.id));
        let is_meant = is_long_id(container.id.as_bytes()) && includes(only, known);
        (is_meant && !lives).then(|| OutOfStep {
            container: known.name(),
            runtime: *runtime,
            directory: file.parent().unwrap_or(file).into(),
            daemon: *crio,
            what: Differs::SaysUp(state.pid),
            shim: None,
            log_driver: None,
            started_at: None,
        })
    };
    let crios = written.iter().filter(|(_, it)| it.runtime == Component::CriO);
    crios.filter_map(of).take(MOST).collect()
}

/// Where a dockerd keeps its data, by what it has open.
pub(in crate::state) fn data_of(process: &Path) -> Option<PathBuf> {
    let find = |process: &Path| {
        let all = fs::read_dir(process.join("fd")).ok()?.flatten();
        let mut links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.find(|link| link.ends_with(DATABASE))
    };
    let database = silent::read(process, find)?;
    Some(database.parent()?.parent()?.to_owned())
}

fn differs(id: &str, state: DockerState, shims: &NodeShims) -> Option<(Differs, Option<Shim>)> {
    if state.restarting {
        return None;
    }
    if state.running {
        if state.pid == 0 || is_process_of(state.pid, id, None) {
            return None;
        }
        let shim = shims.of_docker(id);
        let is_known = shim.as_ref().is_some_and(|shim| runs_below(shim, state.pid));
        return (!is_known).then_some((Differs::SaysUp(state.pid), shim));
    }
    let shim = shims.of_docker(id).filter(|shim| !shim.is_halted())?;
    // A younger one is that of a start that goes on.
    let is_older = began(shim.started) < state.finished_at?;
    let first = is_older.then(|| child_in(&shim, id))?;
    Some((Differs::SaysEnded(first), Some(shim)))
}

/// Whether a container may run as a process that is not in its group: one that has left it is its shim's child still, and
/// that of a container with a kernel of its own is its virtual machine, in a group that its shim has named.
fn runs_below(shim: &Shim, pid: u32) -> bool {
    let is_machine = || shim.has_own_kernel() && proc::exists(pid, pid);
    shim.is_halted() || parent(pid) == Some(shim.pid) || is_machine()
}

/// The shim's first child that is the container's.
fn child_in(shim: &Shim, id: &str) -> Option<u32> {
    proc::children(shim.pid)?.into_iter().find(|child| is_process_of(*child, id, None))
}

/// When a process was started, by the calendar.
fn began(ticks: u64) -> Timestamp {
    let ago = clock::now().since(since_boot(ticks));
    Timestamp::now().checked_sub(ago).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::identity::containers::Described;

    /// This process plays a dockerd: it has a database open, and no other one meanwhile.
    fn found(database: &str, state: DockerState, only: &Only) -> Vec<(PathBuf, Differs)> {
        static PLAYS: Mutex<()> = Mutex::new(());
        let _alone = PLAYS.lock();
        let (top, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = top.path().join(database);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _open = fs::File::create(path).unwrap();
        let described = Described { state: Some(state), ..Described::default() };
        let id = "a1".repeat(32);
        let one = Container { described, ..Container::new(id.clone(), Component::Dockerd) };
        // What a dockerd has left that kept its data elsewhere says the same.
        let files = [&top, &other]
            .map(|top| top.path().join("containers").join(&id).join("config.v2.json"));
        let written = files.into_iter().map(|file| (file, &one)).collect();
        let daemons = [(std::process::id(), Component::Dockerd)];
        let shims = NodeShims::default();
        let all = Dockers::default().out_of_step((only, &daemons), written, &shims);
        let below = |path: &Path| path.strip_prefix(top.path()).unwrap().to_owned();
        all.iter().map(|it| (below(&it.directory), it.what)).collect()
    }

    #[test]
    fn what_a_running_dockerd_has_written_is_held_against_what_is_there() {
        let gone = u32::MAX >> 1;
        let up = DockerState { running: true, pid: gone, ..DockerState::default() };
        let directory = Path::new("containers").join("a1".repeat(32));
        let of = |state| found(DATABASE, state, &Only::All);
        assert_eq!(of(up), [(directory.clone(), Differs::SaysUp(gone))]);
        let other = DockerState { pid: std::process::id(), ..up };
        assert_eq!(
            of(other),
            [(directory, Differs::SaysUp(std::process::id()))],
            "not its process"
        );
        assert_eq!(of(DockerState { restarting: true, ..up }), []);
        assert_eq!(of(DockerState { pid: 0, ..up }), [], "it is being started");
        let ended = DockerState { finished_at: Some(Timestamp::MAX), ..DockerState::default() };
        assert_eq!(of(ended), [], "nothing of it lives");
        assert_eq!(
            found("local-kv.db", up, &Only::All),
            [],
            "it is not known where it keeps its data"
        );
    }

    #[test]
    fn a_virtual_machine_is_its_containers_process_whatever_its_group_is() {
        let shim = |comm: &str| Shim {
            pid: u32::MAX >> 1,
            comm: comm.into(),
            state: 'S',
            started: 1,
            group: None,
            wait_channel: None,
            of: None,
            container: None,
            unreaped: Vec::new(),
            lost_directory: false,
        };
        let (own, gone) = (std::process::id(), u32::MAX >> 2);
        let (kata, runc) = (shim("containerd-shim-kata-v2"), shim("containerd-shim-runc-v2"));
        assert!(runs_below(&kata, own) && !runs_below(&kata, gone), "it is there, or is not");
        assert!(!runs_below(&runc, own), "another's");
        assert!(runs_below(&Shim { pid: parent(own).unwrap(), ..runc }, own));
    }

    #[test]
    fn a_container_of_crio_whose_process_and_conmon_are_gone_is_out_of_step() {
        let of = |runtimes: &[(u32, Component)], running, pid| {
            let state = DockerState { running, pid, ..DockerState::default() };
            let id = "a1".repeat(32);
            let described = Described { state: Some(state), ..Described::default() };
            let one = Container { described, ..Container::new(id.clone(), Component::CriO) };
            let all = [Arc::new(Container::new(id, Component::CriO))];
            let written = [("/c/userdata/state.json".into(), &one)];
            let found = of_crio((&Only::All, runtimes), &written, &all, &NodeShims::default());
            let found = found.into_iter().map(|it| (it.daemon, it.what, it.directory));
            found.collect::<Vec<_>>()
        };
        let (crio, gone, own) = ((7, Component::CriO), u32::MAX >> 1, std::process::id());
        assert_eq!(of(&[crio], true, gone), [(7, Differs::SaysUp(gone), "/c/userdata".into())]);
        assert_eq!(of(&[crio], true, own), [], "a process with this id exists");
        assert_eq!(of(&[crio], false, gone), [], "its end is recorded");
        assert_eq!(of(&[crio], true, 0), [], "it was not started yet");
        assert_eq!(of(&[crio, (8, Component::CriO)], true, gone), [], "whose it is is not known");
        assert_eq!(of(&[(7, Component::Dockerd)], true, gone), []);
    }

    #[test]
    fn a_run_about_another_object_gets_nothing() {
        let up = DockerState { running: true, pid: u32::MAX >> 1, ..DockerState::default() };
        let of = |only: &Only| found(DATABASE, up, only).len();
        let container = |id: String| Only::Container { id, pod: None };
        assert_eq!(of(&container("a1".repeat(32))), 1);
        assert_eq!(of(&container("b2".repeat(32))), 0);
        assert_eq!(of(&Only::Pod("u".into())), 0);
        assert_eq!(of(&Only::Below("/srv".into())), 0);
    }

    #[test]
    fn when_a_process_was_started_is_known_by_the_calendar() {
        let own = began(proc::started(std::process::id()).unwrap());
        let ago = Timestamp::now().duration_since(own).as_secs();
        assert!((0..3600).contains(&ago), "{ago} s");
    }
}
