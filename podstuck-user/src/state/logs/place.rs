//! Where a process's standard error goes.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    identity::{cgroup::group_of, on_host},
    model::path::safe_path,
    proc::{COMMAND_LINE, command_line},
    state::{
        alive::{self, Occasion},
        helper::NotEntered,
    },
};

/// Most that is read of a log: an hour and more of a kubelet in trouble, at its usual level.
const TAIL: u64 = 8 << 20;
/// The same, in entries of the journal.
const ENTRIES: &str = "40000";

/// A log that can be read.
pub(super) struct Place {
    /// For people.
    pub(super) name: String,
    /// Its end.
    pub(super) text: Box<dyn Read>,
}

/// The log of a process; a journal's by the unit that the process runs in. Where it may wait from then on is told
/// first, and nothing is asked of a file system that does not live.
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
    if let Some(why) = alive::why_not_open(&process, pid, 2) {
        bail!(NotEntered(why));
    }
    // Not opened before it is known to be a file: opening a pipe would wait, or wake its other end.
    let kind =
        fs::metadata(&descriptor).with_context(|| safe_path(&link).into_owned())?.file_type();
    if kind.is_file() {
        return file(&descriptor, &link);
    }
    if kind.is_socket() {
        return journal(host_root, &process, pid);
    }
    if link == Path::new("/dev/null") {
        bail!("its standard error is /dev/null");
    }
    if kind.is_fifo()
        && let Some(log) = beside_its_root(&process).map(|log| on_host(host_root, &log))
        && lives(&log, at)?.is_file()
    {
        return of_file(&log);
    }
    bail!("its standard error is {}, which cannot be read again", safe_path(&link))
}

/// k3s and its like hand their containerd a pipe, and write what comes out to a file
/// (pkg/containerd, `cfg.Containerd.Log`).
fn beside_its_root(process: &Path) -> Option<PathBuf> {
    let words = command_line(process, COMMAND_LINE).ok()?;
    let mut words = words.split(|byte| *byte == 0).skip_while(|word| *word != b"--root");
    let root = Path::new(OsStr::from_bytes(words.nth(1)?));
    root.is_absolute().then(|| root.join("containerd.log"))
}

/// A path, where its file system lives.
///
/// # Errors
/// Fails where it does not, or when nobody listens any more.
pub(super) fn lives(path: &Path, mut at: impl FnMut(&Path) -> Result<()>) -> Result<&Path> {
    at(path)?;
    match alive::why_not(std::process::id(), path, Occasion::Unknown) {
        Some(why) => bail!(NotEntered(why)),
        None => Ok(path),
    }
}

/// The log that is this file.
pub(super) fn of_file(log: &Path) -> Result<Place> {
    file(log, log)
}

fn file(descriptor: &Path, link: &Path) -> Result<Place> {
    let name = safe_path(link).into_owned();
    let mut file = File::open(descriptor).with_context(|| name.clone())?;
    let size = file.metadata().with_context(|| name.clone())?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL))).with_context(|| name.clone())?;
    // It may grow meanwhile.
    Ok(Place { name, text: Box::new(file.take(TAIL)) })
}

fn journal(host_root: &Path, process: &Path, pid: u32) -> Result<Place> {
    let group = group_of(process).context("reading its control group")?;
    let unit = unit_of(Path::new(&group));
    let only = unit.map_or_else(|| format!("_PID={pid}"), |unit| format!("--unit={unit}"));
    let mut command = Command::new("journalctl");
    command.args(["--quiet", "--no-pager", "--output=cat", "--lines", ENTRIES, &only]);
    if host_root != Path::new("/") {
        command.arg("--root").arg(host_root);
    }
    // A helper's own standard error is /dev/null, which it may not open to write.
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.context("its log is the journal, and journalctl cannot be run")?;
    let output = child.stdout.take().context("journalctl has no output")?;
    // It ends when it has written all, or when nobody reads any more.
    Ok(Place { name: format!("journal, {only}"), text: Box::new(output.take(TAIL)) })
}

/// The service that a control group belongs to.
fn unit_of(group: &Path) -> Option<String> {
    let mut names = group.iter().rev().filter_map(|part| part.to_str());
    let is_service = |name: &&str| Path::new(name).extension().is_some_and(|end| end == "service");
    names.find(is_service).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::AsFd};

    use super::*;

    #[test]
    fn a_service_is_told_by_its_group() {
        let unit = |group: &str| unit_of(Path::new(group));
        assert_eq!(unit("/system.slice/kubelet.service").as_deref(), Some("kubelet.service"));
        assert_eq!(unit("/system.slice/k3s.service/kubelet").as_deref(), Some("k3s.service"));
        assert_eq!(unit("/user.slice"), None);
    }

    #[test]
    fn the_end_of_a_file_is_read_and_what_is_no_log_is_named() {
        let mut log = tempfile::tempfile().unwrap();
        log.write_all(&vec![b'x'; TAIL as usize]).unwrap();
        log.write_all(b"end").unwrap();
        let spawn = |stderr: Stdio| Command::new("sleep").arg("60").stderr(stderr).spawn().unwrap();
        let read = |child: &mut std::process::Child| {
            let place = of_process(Path::new("/"), child.id(), |_| Ok(()));
            child.kill().unwrap();
            child.wait().unwrap();
            place
        };
        let mut child = spawn(log.as_fd().try_clone_to_owned().unwrap().into());
        let mut text = Vec::new();
        read(&mut child).unwrap().text.read_to_end(&mut text).unwrap();
        assert_eq!(text.len() as u64, TAIL);
        assert!(text.ends_with(b"xend"));
        let error = read(&mut spawn(Stdio::null())).err().unwrap().to_string();
        assert!(error.contains("/dev/null"), "{error}");
        let error = read(&mut spawn(Stdio::piped())).err().unwrap().to_string();
        assert!(error.contains("pipe:"), "{error}");
    }

    #[test]
    fn a_log_that_somebody_else_writes_is_found_beside_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("containerd.log"), "said").unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line", "containerd", "--root"])
            .arg(root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Before it says something, its command line may not be there yet.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let place = of_process(Path::new("/"), child.id(), |_| Ok(()));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut text = String::new();
        place.unwrap().text.read_to_string(&mut text).unwrap();
        assert_eq!(text, "said");
    }
}
