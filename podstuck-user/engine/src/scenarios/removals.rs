//! Incidents that show in failing calls.

use std::{sync::Arc, time::Duration};

use podstuck_common::record::reason;

use super::play::{Node, Play, UID, on, sample, target};
use crate::{
    model::{
        call::{Call, Outcome},
        errno::Errno,
        holder::{How, Through},
        hung::MountPoint,
        identity::{Component, Target, TargetKind},
        object::{Entry, User},
        operation::Operation,
        remaining::{Remaining, Sample},
    },
    testing::holder,
};

pub(super) const CSI: &str = "kubernetes.io~csi/pv";
pub(super) const EMPTY_DIR: &str = "kubernetes.io~empty-dir/data";
const TRIES: [f64; 6] = [1.0, 1.5, 2.5, 4.5, 8.5, 16.5];

pub(super) type Plays = Vec<(&'static str, Play)>;

pub(super) fn ok(mut op: Operation, why: u32) -> Operation {
    (op.outcome, op.reason) = (Outcome::OK, why);
    op
}

/// Attempts at growing intervals, as kubelet makes them.
pub(super) fn tries(play: &mut Play, name: &str, call: Call, errno: Errno, object: &str) {
    for second in TRIES {
        play.op(on(name, call, errno as i32, object, second));
    }
}

/// Adds counts until a target that is gone is reported as over.
pub(super) fn settle(play: &mut Play, name: &str, second: f64) {
    for later in [0.0, 1.0, 2.0] {
        play.counts(second + later, target(name).0, &[]);
    }
}

fn table(point: &str, times: usize) -> Option<String> {
    let line = |n| format!("{} {} 8:16 / {point} rw - ext4 /dev/sdb rw\n", 9 + n, 8 + n);
    Some((0..times).map(line).collect())
}

pub(super) fn in_volume(name: &str, object: &str) -> String {
    on(name, Call::Unlinkat, 1, object, 1.0).path.to_str().unwrap().into()
}

fn of_mounts(name: &str, object: &str, times: usize) -> Node {
    Node { mounts: table(&in_volume(name, object), times), ..Node::default() }
}

pub(super) fn busy() -> Plays {
    use Call::{Umount2, Unlinkat, UnlinkatDir};
    let mut plays = Vec::new();
    for (title, name, call, object, times) in [
        ("a CSI driver forgot what it published", CSI, UnlinkatDir, "mount", 1),
        ("two mounts on one path", CSI, UnlinkatDir, "mount", 2),
        ("a mount inside a CSI volume", CSI, UnlinkatDir, "mount/a/b", 1),
        ("a mount inside an emptyDir", EMPTY_DIR, UnlinkatDir, "m", 1),
        ("a file that is a mount point", EMPTY_DIR, Unlinkat, "log", 1),
        ("no mount point any more", EMPTY_DIR, UnlinkatDir, "m", 0),
    ] {
        let mut play = Play::new(of_mounts(name, object, times));
        tries(&mut play, name, call, Errno::EBUSY, object);
        // The object is removed, then the volume, and two seconds later the finding is over.
        play.op(ok(on(name, call, 0, object, 20.0), reason::RECOVERED));
        plays.push((title, play));
    }
    let mut subpath = Play::new(of_mounts(EMPTY_DIR, "0", 1));
    for second in TRIES {
        let mut op = on(EMPTY_DIR, UnlinkatDir, Errno::EBUSY as i32, "0", second);
        if let Some(volume) = &mut Arc::make_mut(&mut op.target).volume {
            volume.plugin = "subpath".into();
        }
        subpath.op(op);
    }
    plays.push(("a subpath that is mounted", subpath));
    let mut gone = Play::new(Node::default());
    tries(&mut gone, CSI, UnlinkatDir, Errno::EBUSY, "mount");
    plays.push(("the caller's namespace is gone", gone));
    for (title, namespace) in [("unmounted here", 1), ("unmounted in another namespace", 2)] {
        let mut play = Play::new(of_mounts(CSI, "mount", 1));
        let mut unmount = ok(on(CSI, Umount2, 0, "mount", 0.5), 0);
        unmount.mnt_ns = namespace;
        play.op(unmount);
        tries(&mut play, CSI, UnlinkatDir, Errno::EBUSY, "mount");
        plays.push((title, play));
    }
    for (title, how, through) in [
        ("held by a process of the node", How::Cwd, Through::Itself),
        ("held through a copy", How::Fd, Through::PropagatedCopy),
        ("a swap file on it", How::Swap, Through::Itself),
        ("another mount on it", How::NestedMount, Through::Itself),
        ("a loop device from it", How::Loop, Through::Itself),
    ] {
        let holders = vec![holder(how, through, Some(true))];
        let mut play = Play::new(Node { holders, ..of_mounts(CSI, "mount", 1) });
        tries(&mut play, CSI, Umount2, Errno::EBUSY, "mount");
        play.op(on(CSI, UnlinkatDir, Errno::EBUSY as i32, "mount", 17.0));
        play.node.holders.clear();
        play.op(on(CSI, Umount2, Errno::EBUSY as i32, "mount", 32.5));
        play.op(ok(on(CSI, UnlinkatDir, 0, "", 40.0), reason::ROOT_GONE));
        settle(&mut play, CSI, 41.0);
        plays.push((title, play));
    }
    let private = holder(How::Fd, Through::OtherMount, Some(false));
    let mut play = Play::new(Node { holders: vec![private], ..Node::default() });
    tries(&mut play, CSI, Umount2, Errno::EBUSY, "mount");
    plays.push(("only a private copy", play));
    let mut play = Play::new(Node { is_hung: true, ..Node::default() });
    tries(&mut play, CSI, Umount2, Errno::EBUSY, "mount");
    plays.push(("who holds it cannot be looked at", play));
    let mut play = Play::new(Node {
        holders: vec![holder(How::Fd, Through::Itself, Some(true))],
        ..Node::default()
    });
    for n in 0..40 {
        let mut op = on(CSI, Umount2, Errno::EBUSY as i32, "rootfs", 1.0 + 0.05 * f64::from(n));
        Arc::make_mut(&mut op.target).kind = TargetKind::ContainerBundle;
        Arc::make_mut(&mut op.target).volume = None;
        Arc::make_mut(&mut op.actor).component = Component::ContainerdShim;
        play.op(op);
    }
    plays.push(("a shim's root file system", play));
    plays
}

pub(super) fn crossed_and_dead_mounts() -> Plays {
    use Call::{Unlinkat, UnlinkatDir};
    let mut crossed = Play::new(of_mounts(EMPTY_DIR, "m", 1));
    for second in [1.0, 1.1, 7.0] {
        let mut op = ok(on(EMPTY_DIR, Unlinkat, 0, "m/x", second), reason::CROSSED);
        op.mount_depth = 1;
        crossed.op(op);
        // The mount point is busy, which is the same fault.
        crossed.op(on(EMPTY_DIR, UnlinkatDir, Errno::EBUSY as i32, "m", second));
    }
    crossed.op(ok(on(EMPTY_DIR, UnlinkatDir, 0, "", 9.0), reason::ROOT_GONE));
    settle(&mut crossed, EMPTY_DIR, 10.0);

    let point = in_volume(EMPTY_DIR, "m").into();
    let source = "s3".into();
    let fs_type = "fuse.s3".into();
    let mount = MountPoint { id: Some(9), point, fs_type, source, ..MountPoint::default() };
    let fuse = vec![(mount, Errno::ENOTCONN as i32)];
    let ext4 = of_mounts(EMPTY_DIR, "m", 1);
    let mounts = ext4.mounts.clone().map(|table| table.replace(" ext4 ", " fuse.s3 "));
    let mut dead = Play::new(Node { fuse, mounts, ..ext4 });
    for second in TRIES {
        dead.op(on(EMPTY_DIR, UnlinkatDir, Errno::EBUSY as i32, "m", second));
        dead.op(on(EMPTY_DIR, UnlinkatDir, Errno::ENOTEMPTY as i32, "", second + 0.01));
    }
    dead.op(ok(on(EMPTY_DIR, UnlinkatDir, 0, "m", 20.0), reason::RECOVERED));
    vec![("a removal through a mount", crossed), ("a FUSE mount without its server", dead)]
}

pub(super) fn not_empty() -> Plays {
    let entry = |name: &str, age| Entry {
        name: name.into(),
        is_directory: false,
        age: Duration::from_secs(age),
    };
    let user = |comm: &str, writes| User {
        pid: 7,
        started: Some(3),
        comm: comm.into(),
        how: "an open file".into(),
        writes,
    };
    let mut plays = Vec::new();
    for (title, name, object, listed, users) in [
        ("a writer", EMPTY_DIR, "d", vec![entry("new", 1)], vec![user("backup", true)]),
        ("a reader", EMPTY_DIR, "d", vec![entry("new", 1)], vec![user("tail", false)]),
        ("a writer who is not found", EMPTY_DIR, "d", vec![entry("new", 1)], vec![]),
        ("old files", EMPTY_DIR, "d", vec![entry("old", 3600)], vec![]),
        ("data below a mount point", CSI, "mount", vec![entry("rows.dat", 3600)], vec![]),
        ("nothing in it", CSI, "mount", vec![], vec![]),
    ] {
        let mounts = Some(String::new());
        let mut play = Play::new(Node { mounts, listed, users, ..Node::default() });
        tries(&mut play, name, Call::UnlinkatDir, Errno::ENOTEMPTY, object);
        play.op(ok(on(name, Call::UnlinkatDir, 0, "", 20.0), reason::ROOT_GONE));
        settle(&mut play, name, 21.0);
        plays.push((title, play));
    }
    let point = format!("{}/0", in_volume(EMPTY_DIR, ""));
    let listed = vec![entry("0", 9)];
    let mut play = Play::new(Node { mounts: table(&point, 1), listed, ..Node::default() });
    for second in TRIES {
        let mut op = on(EMPTY_DIR, Call::UnlinkatDir, Errno::ENOTEMPTY as i32, "", second);
        if let Some(volume) = &mut Arc::make_mut(&mut op.target).volume {
            volume.plugin = "subpath".into();
        }
        play.op(op);
    }
    plays.push(("a subpath whose source is gone", play));
    plays
}

pub(super) fn orphan() -> Plays {
    let mut play = Play::new(Node::default());
    for second in [2.0, 4.0, 6.0, 8.0, 13.0] {
        let mut whole = on(CSI, Call::UnlinkatDir, Errno::ENOTEMPTY as i32, "", second);
        whole.path = format!("/k/pods/{UID}/volumes").into();
        play.op(whole);
        let rest = on(CSI, Call::UnlinkatDir, Errno::ENOTDIR as i32, "vol_data.json", second);
        play.op(rest);
        // No pod waits for an orphan, whatever other fault it has.
        play.op(on(CSI, Call::UnlinkatDir, Errno::EBUSY as i32, "mount", second + 0.01));
    }
    play.sample(sample(30.0));
    vec![("the directory of a pod that is gone", play)]
}

pub(super) fn bulk_delete() -> Plays {
    let unlinks = |play: &mut Play, second: f64, files: u64| {
        let of = [
            (Call::Unlinkat, Outcome::OK, files),
            (Call::UnlinkatDir, Outcome::OK, files / 100),
            (Call::Unlinkat, Outcome(Errno::EISDIR as u16), files / 100),
        ];
        play.counts(second, target(EMPTY_DIR).0, &of);
    };
    let node = |complete| {
        let seen = if complete { 9000 } else { 100_000 };
        let (nlink, size, inodes_used) = (1, 2 << 20, 500_000);
        let (entries, error, directories, levels) = (250_000, 15_000, 1_200, 2);
        let sample = Sample { entries, error, directories, levels, linked: false };
        let sample = (!complete).then_some(sample);
        Node {
            left: Remaining {
                seen,
                complete,
                gone: false,
                nlink,
                size,
                inodes_used,
                is_ext: true,
                sample,
            },
            ..Node::default()
        }
    };
    let mut plays = Vec::new();
    for (title, complete) in [("a directory that was counted", true), ("one too large", false)] {
        let mut play = Play::new(node(complete));
        play.op(ok(on(EMPTY_DIR, Call::Unlinkat, 0, "a/1", 0.5), reason::FIRST));
        for second in 1..=12 {
            unlinks(&mut play, f64::from(second), 2000);
        }
        // It stops, is found incomplete, and then completes.
        for second in 13..=26 {
            play.counts(f64::from(second), target(EMPTY_DIR).0, &[]);
        }
        play.op(ok(on(EMPTY_DIR, Call::UnlinkatDir, 0, "", 27.0), reason::ROOT_GONE));
        settle(&mut play, EMPTY_DIR, 28.0);
        plays.push((title, play));
    }
    let mut play = Play::new(node(true));
    let mut op = ok(on(EMPTY_DIR, Call::Unlinkat, 0, "a/1", 0.5), reason::FIRST);
    (Arc::make_mut(&mut op.target).kind, op.target_id) = (TargetKind::DockerVolume, 9);
    Arc::make_mut(&mut op.actor).component = Component::Dockerd;
    play.op(op);
    (1..=4).for_each(|second| {
        play.counts(f64::from(second), 9, &[(Call::Unlinkat, Outcome::OK, 3000)]);
    });
    plays.push(("a volume of Docker", play));
    let mut play = Play::new(node(true));
    let mut op = ok(on(EMPTY_DIR, Call::Unlinkat, 0, "a/1", 0.5), reason::FIRST);
    (op.path, op.target_id) = ("/srv/cache/a/1".into(), 0);
    op.target = Arc::new(Target::unknown());
    play.op(op);
    (1..=7).for_each(|second| {
        play.counts(f64::from(second), 0, &[(Call::Unlinkat, Outcome::OK, 12_000)]);
    });
    plays.push(("a directory of no known pod", play));
    plays
}
