//! Paths as another process sees them: the helper's side, since to follow one may wait for ever.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

/// A path as a process sees it, or as we do.
pub(super) type Place = (Option<u32>, OsString);

/// The path of a place, as it is opened from here.
pub(super) fn path_of((pid, path): &Place) -> PathBuf {
    pid.map_or_else(|| path.into(), |pid| seen_by(pid, path))
}

/// The path of a directory of another process, or our own if that process is gone.
pub(super) fn seen_by(pid: u32, path: &OsStr) -> PathBuf {
    let path = Path::new(path);
    let relative = path.strip_prefix("/").unwrap_or(path);
    if has_root(pid) { root_of(pid).join(relative) } else { path.into() }
}

/// Looks, and looks again if the process ended meanwhile: a directory may just have seemed empty.
pub(super) fn while_it_lives<T>(pid: u32, look: impl Fn() -> T) -> T {
    let had_root = has_root(pid);
    let found = look();
    if had_root && !has_root(pid) { look() } else { found }
}

/// Followed, since that of a process which has ended and was not waited for is a link to nothing. One
/// that must not be followed is there.
fn has_root(pid: u32) -> bool {
    !fs::metadata(root_of(pid)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn root_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/root").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_that_was_not_waited_for_is_no_way_to_look() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let wait = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::Pid::from_child(&ended);
        rustix::process::waitid(rustix::process::WaitId::Pid(id), wait).unwrap();
        assert_eq!(seen_by(ended.id(), OsStr::new("/tmp")), Path::new("/tmp"));
        ended.wait().unwrap();
        assert_eq!(seen_by(ended.id(), OsStr::new("/tmp")), Path::new("/tmp"));
    }
}
