//! Finds where a process's standard error goes: a file, or the journal.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::{
        linux::fs::MetadataExt,
        unix::{ffi::OsStrExt, fs::FileTypeExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::mark::{self, Mark, News, last_of};
use crate::{
    identity::{cgroup::group_of, on_host, trust::is_roots_alone},
    program,
    state::kubelet_unit,
};
use podstuck_confine::{
    alive::{self, Occasion},
    given_file,
    helper::{NotEntered, Teller},
    proc::{COMMAND_LINE, command_line},
};
use podstuck_model::{path::safe_path, said::NOT_ROOTS};

/// A log that can be read.
pub(super) struct Place {
    /// Name in reports.
    pub(super) name: String,
    source: Source,
}

enum Source {
    File(File, PathBuf),
    /// The journalctl command that prints it, and the service whose log it is.
    Journal(Command, Option<String>),
}

/// The log of a component that does not run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::state) enum Left {
    /// The file that its last process wrote to.
    File(PathBuf),
    /// The journal of these services; none: of those that are there and may contain a kubelet.
    Journal(Vec<String>),
}

impl Place {
    /// Reads its end, or what is new since a mark.
    pub(super) fn news<P: Serialize>(
        self,
        after: Option<&Mark>,
        tell: &mut Teller<OsString, P>,
    ) -> Result<News> {
        let name = OsString::from(&self.name);
        let mut read =
            |text: &mut dyn std::io::Read| last_of(&mut tell.reading(name.clone(), text));
        let news = match self.source {
            Source::File(file, path) => mark::of_file(&file, &path, after, &mut read),
            Source::Journal(command, _) => mark::of_journal(command, after, &mut read),
        };
        news.with_context(|| self.name)
    }

    /// The same file, by a path that this process can resolve.
    fn beside(self, path: PathBuf) -> Self {
        match self.source {
            Source::File(file, _) => Self { source: Source::File(file, path), ..self },
            Source::Journal(..) => self,
        }
    }

    /// Where the log still is when its process has ended.
    pub(super) fn left(&self) -> Option<Left> {
        match &self.source {
            Source::File(_, path) => Some(Left::File(path.clone())),
            Source::Journal(_, unit) => Some(Left::Journal(vec![unit.clone()?])),
        }
    }
}

/// The log of a process; the journal's by the unit that the process runs in. `at` gets each path before an access that
/// may hang, and file systems that do not answer are not accessed.
pub(super) fn of_process(
    host_root: &Path,
    pid: u32,
    mut at: impl FnMut(&Path) -> Result<()>,
) -> Result<Place> {
    let process = on_host(host_root, Path::new("/proc")).join(pid.to_string());
    let descriptor = process.join("fd/2");
    at(&descriptor)?;
    let link = fs::read_link(&descriptor).context("reading where its standard error goes")?;
    at(&link)?;
    if link == Path::new("/dev/null") {
        bail!("its standard error is /dev/null");
    }
    // A pipe or a socket, as of the journal, is on no file system that could hang: the table of mounts is not read for it.
    if link.is_absolute()
        && let Some(why) = alive::why_not_open(&process, pid, 2)
    {
        bail!(NotEntered(why));
    }
    // Opened only if it is a file: opening a pipe would block, or wake its other end.
    let kind =
        fs::metadata(&descriptor).with_context(|| safe_path(&link).into_owned())?.file_type();
    if kind.is_file() {
        let place = file(&descriptor, &link)?;
        // The rotated log is in the same directory.
        return Ok(place.beside(on_host(host_root, &link)));
    }
    if kind.is_socket() {
        return journal(host_root, &process, pid);
    }
    if kind.is_fifo()
        && let Some(log) = beside_its_root(&process).map(|log| on_host(host_root, &log))
        && lives(&log, at)?.is_file()
    {
        return of_file(&log);
    }
    bail!("its standard error is {}, which cannot be read again", safe_path(&link))
}

/// k3s and its like give their containerd a pipe, and copy it to a file (pkg/containerd, `cfg.Containerd.Log`).
fn beside_its_root(process: &Path) -> Option<PathBuf> {
    let words = command_line(process, COMMAND_LINE).ok()?;
    let mut words = words.split(|byte| *byte == 0).skip_while(|word| *word != b"--root");
    let root = Path::new(OsStr::from_bytes(words.nth(1)?));
    root.is_absolute().then(|| root.join("containerd.log"))
}

/// Returns the path if its file system answers.
///
/// # Errors
/// Fails where it does not answer, or where `at` fails.
pub(super) fn lives(path: &Path, mut at: impl FnMut(&Path) -> Result<()>) -> Result<&Path> {
    at(path)?;
    match alive::why_not(std::process::id(), path, Occasion::Unknown) {
        Some(why) => bail!(NotEntered(why)),
        None => Ok(path),
    }
}

/// A log by its path.
pub(super) fn of_file(log: &Path) -> Result<Place> {
    file(log, log)
}

fn file(descriptor: &Path, link: &Path) -> Result<Place> {
    let mut name = safe_path(link).into_owned();
    let file = given_file::open(descriptor).with_context(|| name.clone())?;
    let metadata = file.metadata().with_context(|| name.clone())?;
    if !is_roots_alone(metadata.st_uid(), metadata.st_mode()) {
        name = format!("{name}, {NOT_ROOTS}");
    }
    Ok(Place { name, source: Source::File(file, link.to_owned()) })
}

fn journal(host_root: &Path, process: &Path, pid: u32) -> Result<Place> {
    let group = group_of(process).context("reading its control group")?;
    let unit = unit_of(Path::new(&group));
    let only = unit.as_ref().map_or_else(|| format!("_PID={pid}"), |unit| format!("--unit={unit}"));
    let mut command = journalctl(host_root)?;
    command.args(["--output=cat", &only]).args(own(process));
    Ok(Place { name: format!("journal, {only}"), source: Source::Journal(command, unit) })
}

/// The log of a component that does not run.
pub(super) fn of_left(host_root: &Path, left: &Left) -> Result<Place> {
    let units = match left {
        Left::File(log) => return of_file(log),
        Left::Journal(units) if units.is_empty() => kubelet_unit::present(host_root),
        Left::Journal(units) => units.clone(),
    };
    if units.is_empty() {
        bail!("no service of a kubelet is there");
    }
    let units: Vec<String> = units.iter().map(|unit| format!("--unit={unit}")).collect();
    let mut command = journalctl(host_root)?;
    // systemd's own messages about the services are there as well; each line has its time and its program.
    command.arg("--output=short-iso-precise").args(&units).args([
        "_TRANSPORT=stdout",
        "+",
        "_PID=1",
    ]);
    let name = format!("journal, {}", units.join(" "));
    Ok(Place { name, source: Source::Journal(command, None) })
}

fn journalctl(host_root: &Path) -> Result<Command> {
    let program = program::find(Path::new("/"), "journalctl");
    let program = program.context("its log is the journal, but journalctl was not found")?;
    let mut command = Command::new(program);
    command.args(["--quiet", "--no-pager"]);
    if host_root != Path::new("/") {
        command.arg("--root").arg(host_root);
    }
    Ok(command)
}

/// Journal fields that select the records of the component, this process or an earlier one. Other processes of the
/// service write, too: shims and plugins. And dockerd sends the output of containers with the `journald` logging driver
/// to the journal, not to standard error.
fn own(process: &Path) -> Vec<OsString> {
    let mut all = vec![OsString::from("_TRANSPORT=stdout")];
    let program = fs::read_link(process.join("exe")).ok();
    // A program that was replaced since its start has lost its name.
    let named = program.filter(|it| !it.as_os_str().as_bytes().ends_with(b" (deleted)"));
    all.extend(named.map(|program| {
        let mut field = OsString::from("_EXE=");
        field.push(program);
        field
    }));
    all
}

/// The service that a control group belongs to.
fn unit_of(group: &Path) -> Option<String> {
    let mut names = group.iter().rev().filter_map(|part| part.to_str());
    let is_service = |name: &&str| Path::new(name).extension().is_some_and(|end| end == "service");
    names.find(is_service).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::{fd::AsFd, unix::fs::PermissionsExt},
        process::Stdio,
    };

    use super::{super::mark::TAIL, *};

    fn text(place: Place) -> Vec<u8> {
        place.news(None, &mut Teller::<OsString, ()>::new()).unwrap().text
    }

    #[test]
    fn a_service_is_known_by_its_control_group() {
        let unit = |group: &str| unit_of(Path::new(group));
        assert_eq!(unit("/system.slice/kubelet.service").as_deref(), Some("kubelet.service"));
        assert_eq!(unit("/system.slice/k3s.service/kubelet").as_deref(), Some("k3s.service"));
        assert_eq!(unit("/user.slice"), None);
    }

    #[test]
    fn the_journals_own_fields_tell_who_wrote_a_record() {
        let process = PathBuf::from(format!("/proc/{}", std::process::id()));
        let program = std::env::current_exe().unwrap();
        let field = format!("_EXE={}", program.display());
        assert_eq!(own(&process), ["_TRANSPORT=stdout", &field].map(OsString::from));
        assert_eq!(own(Path::new("/proc/0")), ["_TRANSPORT=stdout"]);
    }

    #[test]
    fn the_end_of_a_file_is_read_and_other_targets_are_errors() {
        let mut log = tempfile::tempfile().unwrap();
        log.write_all(&vec![b'x'; TAIL as usize]).unwrap();
        log.write_all(b"end\n").unwrap();
        let spawn = |stderr: Stdio| Command::new("sleep").arg("60").stderr(stderr).spawn().unwrap();
        let read = |child: &mut std::process::Child| {
            let place = of_process(Path::new("/"), child.id(), |_| Ok(()));
            child.kill().unwrap();
            child.wait().unwrap();
            place
        };
        log.set_permissions(PermissionsExt::from_mode(0o666)).unwrap();
        let mut child = spawn(log.as_fd().try_clone_to_owned().unwrap().into());
        let named = read(&mut child).unwrap().name;
        assert!(named.ends_with(NOT_ROOTS), "{named}");
        let mut child = spawn(log.as_fd().try_clone_to_owned().unwrap().into());
        let text = text(read(&mut child).unwrap());
        assert_eq!(text.len() as u64, TAIL);
        assert!(text.ends_with(b"xend\n"));
        let error = read(&mut spawn(Stdio::null())).err().unwrap().to_string();
        assert!(error.contains("/dev/null"), "{error}");
        let error = read(&mut spawn(Stdio::piped())).err().unwrap().to_string();
        assert!(error.contains("pipe:"), "{error}");
    }

    #[test]
    fn the_log_that_k3s_writes_for_containerd_is_found_in_its_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("containerd.log"), "said\n").unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line", "containerd", "--root"])
            .arg(root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Its command line is there once it has written something.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let place = of_process(Path::new("/"), child.id(), |_| Ok(()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(text(place.unwrap()), b"said\n");
    }
}
