use std::{
    os::unix::fs::{MetadataExt, symlink},
    process::Command,
    sync::mpsc::{Sender, channel},
    thread::JoinHandle,
};

use nix::sched::{CloneFlags, unshare};

use super::*;

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn found(root: &Root, path: &str) -> io::Result<u64> {
    let stat = root.open(Path::new(path), OFlags::empty())?.statx(StatxFlags::INO)?;
    Ok(file_id(&stat).inode)
}

#[test]
fn an_ended_process_that_was_not_waited_for_is_no_way_to_look() {
    let mut ended = Command::new("true").spawn().unwrap();
    let wait = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    let id = rustix::process::Pid::from_child(&ended);
    rustix::process::waitid(rustix::process::WaitId::Pid(id), wait).unwrap();
    let own = |pid| found(&Root::of(pid).unwrap(), "/tmp").unwrap();
    assert_eq!(own(ended.id()), inode(Path::new("/tmp")));
    ended.wait().unwrap();
    assert_eq!(own(ended.id()), inode(Path::new("/tmp")));
}

/// A thread with a root directory of its own, as a process in a container has; it has a number as well.
struct Rooted {
    tid: u32,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Rooted {
    /// `None` where that may not be done.
    fn at(root: &Path) -> Option<Self> {
        let root = root.to_owned();
        let ((ready, is_ready), (end, is_over)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            let entered = unshare(CloneFlags::CLONE_FS).is_ok()
                && std::os::unix::fs::chroot(&root).is_ok()
                && std::env::set_current_dir("/").is_ok();
            ready.send(entered.then(|| nix::unistd::gettid().as_raw().cast_unsigned())).unwrap();
            let _ = is_over.recv();
        });
        let tid = is_ready.recv().unwrap()?;
        Some(Self { tid, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Rooted {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A container's links, and where they would lead below `/proc/PID/root`.
#[test]
fn a_link_in_a_container_leads_to_no_file_of_the_node() {
    let top = tempfile::tempdir().unwrap();
    let (root, host) = (top.path().join("root"), top.path().join("host"));
    fs::create_dir_all(root.join("d/real")).unwrap();
    fs::create_dir(&host).unwrap();
    fs::write(host.join("secret"), "the node's").unwrap();
    fs::write(root.join("d/real/f"), "the container's").unwrap();
    for (link, target) in [
        ("absolute", host.as_path()),
        ("upwards", Path::new("../../../../../../../..")),
        ("inside", Path::new("/d/real")),
        ("procfs", Path::new("/proc/self/root")),
        ("loop", Path::new("/d/loop")),
    ] {
        symlink(target, root.join("d").join(link)).unwrap();
    }
    let Some(there) = Rooted::at(&root) else {
        podstuck_testing::skip("no other root directory can be had here");
        return;
    };
    // What the kernel does without further ado.
    let naive = |path: &str| fs::read_to_string(format!("/proc/{}/root/{path}", there.tid));
    assert_eq!(naive("d/absolute/secret").unwrap(), "the node's");
    assert!(fs::metadata(format!("/proc/{}/root/d/procfs/etc", there.tid)).is_ok());

    let seen = Root::of(there.tid).unwrap();
    for outside in ["/d/absolute", "/d/absolute/secret", "/d/procfs", "/d/procfs/etc", "/d/loop"] {
        let found = found(&seen, outside);
        assert!(found.is_err(), "{outside}: {found:?}");
    }
    assert_eq!(found(&seen, "/d/upwards").unwrap(), inode(&root));
    assert_eq!(found(&seen, "/../../d").unwrap(), inode(&root.join("d")));
    assert_eq!(found(&seen, "/d/inside").unwrap(), inode(&root.join("d/real")));
    assert_eq!(found(&seen, "/").unwrap(), inode(&root));
    assert!(seen.directory(Path::new("/d/inside")).is_err(), "a link is no directory");

    // What is held stays what it is.
    let held = seen.directory(Path::new("/d/real")).unwrap();
    fs::rename(root.join("d/real"), root.join("d/moved")).unwrap();
    symlink(&host, root.join("d/real")).unwrap();
    assert_eq!(fs::read_to_string(held.path().join("f")).unwrap(), "the container's");
}
