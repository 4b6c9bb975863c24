//! Processes that must permit an access before the kernel continues it: fanotify groups with marks for permission
//! events, by `/proc/PID/fdinfo` (`show_fdinfo` in fs/notify/fdinfo.c). It is answered from memory: no file system is touched.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use podstuck_confine::{
    helper::{Question, Share, Teller},
    proc,
    role::Role,
    silent,
};
use podstuck_model::{
    degraded::Feed,
    holder::{HeldMount, How, Through},
    mounts::{Device, Mount},
    path::JsonPath,
    query::{Fanotify, FindFanotify, NoAnswer},
};

use super::{people, relation::Hit};
use crate::state::{
    asked::{AsWhom, Asked, Helped, in_helper},
    namespaces,
};

/// `FAN_OPEN_PERM`, `FAN_ACCESS_PERM`, `FAN_OPEN_EXEC_PERM` and `FAN_PRE_ACCESS` of include/uapi/linux/fanotify.h.
const PERMISSION: u32 = 0x0001_0000 | 0x0002_0000 | 0x0004_0000 | 0x0010_0000;

impl Asked for FindFanotify {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<Fanotify, NoAnswer> {
        in_helper(share, Helped(self)).await
    }
}

impl Question for Helped<FindFanotify> {
    const FEEDS: Option<Feed> = Some(Feed::Node);
    const ROLE: Role = Role::Helper;
    type Step = ();
    type Part = ();
    type Answer = Fanotify;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Fanotify> {
        let FindFanotify { pid, path } = &self.0;
        let table = proc::mounts(*pid).with_context(|| format!("pid {pid} has ended"))?;
        let mount = table.covering(path).context("the path is on no mount")?;
        let mut found = Fanotify::default();
        for listener in proc::processes() {
            let process = PathBuf::from(format!("/proc/{listener}"));
            let Some(marks) = silent::read(&process, marks) else {
                found.unread += u32::from(proc::exists(listener, listener));
                continue;
            };
            let Some((file, mark)) = marks
                .into_iter()
                .filter(|(_, mark)| mark.covers(mount))
                .min_by_key(|(_, mark)| mark.is_of_file())
            else {
                continue;
            };
            let held = HeldMount {
                id: mount.id,
                namespace: namespaces::of_process(*pid),
                point: JsonPath(mount.point.clone()),
                detached: None,
            };
            let hit = Hit { through: Through::Itself, mount: held, explains: None };
            let object = JsonPath(mount.point.clone());
            let source = file.to_string_lossy().into_owned();
            let mut holder = people::process(listener, How::Fanotify, hit, object, source);
            holder.exact = !mark.is_of_file();
            found.listeners.push(holder);
        }
        Ok(found)
    }
}

/// What a group watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Mount(u32),
    FileSystem(Device),
    /// One file or directory of this file system.
    File(Device),
}

impl Mark {
    fn covers(self, mount: &Mount) -> bool {
        match self {
            Self::Mount(id) => id == mount.id,
            Self::FileSystem(device) | Self::File(device) => device == mount.device,
        }
    }

    fn is_of_file(self) -> bool {
        matches!(self, Self::File(_))
    }
}

/// The marks for permission events of a process, each with the file that says so; `None` where its descriptors could not
/// be listed.
fn marks(process: &Path) -> Option<Vec<(PathBuf, Mark)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(process.join("fd")).ok()?.flatten() {
        let is_fanotify = |link: PathBuf| link.as_os_str() == "anon_inode:[fanotify]";
        if !fs::read_link(entry.path()).is_ok_and(is_fanotify) {
            continue;
        }
        let file = process.join("fdinfo").join(entry.file_name());
        let text = fs::read_to_string(&file).unwrap_or_default();
        found.extend(text.lines().filter_map(mark).map(|mark| (file.clone(), mark)));
    }
    Some(found)
}

/// `fanotify sdev:700000 mflags:0 mask:40010000 ignored_mask:0`; `None` for other lines, and where no permission is asked.
fn mark(line: &str) -> Option<Mark> {
    let rest = line.strip_prefix("fanotify ")?;
    let number = |name: &str| {
        let mut fields = rest.split_ascii_whitespace().filter_map(|field| field.split_once(':'));
        let (_, value) = fields.find(|(key, _)| *key == name)?;
        u32::from_str_radix(value, 16).ok()
    };
    if number("mask")? & PERMISSION == 0 {
        return None;
    }
    if let Some(id) = number("mnt_id") {
        return Some(Mark::Mount(id));
    }
    // As the kernel keeps it (include/linux/kdev_t.h), not as user space sees it.
    let device = number("sdev").map(|raw| Device { major: raw >> 20, minor: raw & 0xf_ffff })?;
    let is_file = rest.starts_with("ino:");
    Some(if is_file { Mark::File(device) } else { Mark::FileSystem(device) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_fanotify() {
        podstuck_fuzz::fuzz("fanotify", |input| {
            let _ = String::from_utf8_lossy(input).lines().filter_map(mark).count();
        });
    }

    #[test]
    fn only_marks_that_ask_for_permission_count() {
        let loop0 = Device { major: 7, minor: 0 };
        for (line, expected) in [
            (
                "fanotify sdev:700000 mflags:0 mask:40010000 ignored_mask:0",
                Some(Mark::FileSystem(loop0)),
            ),
            ("fanotify mnt_id:1d mflags:0 mask:20000 ignored_mask:0", Some(Mark::Mount(29))),
            (
                "fanotify ino:4f969 sdev:700000 mflags:0 mask:10000 ignored_mask:0 fhandle-bytes:8 fhandle-type:1",
                Some(Mark::File(loop0)),
            ),
            ("fanotify sdev:700000 mflags:0 mask:3b ignored_mask:0", None),
            ("fanotify flags:5 event-flags:8000", None),
            ("inotify wd:3 ino:9e7e sdev:800013 mask:10000 ignored_mask:0", None),
        ] {
            assert_eq!(mark(line), expected, "{line}");
        }
    }
}
