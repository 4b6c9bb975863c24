//! Incidents whose error has a reason: the object's attributes, or its file system.

use podstuck_common::record::reason;

use super::{
    play::{Node, Play, on, sample},
    removals::{EMPTY_DIR, Plays, in_volume, ok, settle, tries},
    states::shared,
};
use crate::{
    model::{
        call::Call,
        errno::Errno,
        file_system::{Counted, FileSystem, Subvolume},
        node::NodeSample,
        object::{Attributes, FileId},
    },
    testing::file_system,
};

pub(super) fn refused_and_failed() -> Plays {
    let plain = Attributes { known: true, ..Attributes::default() };
    let fixed = Attributes { immutable: true, ..plain };
    let append = Attributes { append_only: true, ..plain };
    let mut plays = Vec::new();
    for (title, attributes, is_hung) in [
        ("an immutable file", (fixed, plain, false), false),
        ("an immutable directory", (plain, fixed, false), false),
        ("an append-only file", (append, plain, false), false),
        ("a swap file", (plain, plain, true), false),
        ("no attribute", (plain, plain, false), false),
        ("a look that does not come back", (plain, plain, false), true),
    ] {
        let mut play = Play::new(Node { attributes, is_hung, ..Node::default() });
        tries(&mut play, EMPTY_DIR, Call::Unlinkat, Errno::EPERM, "d/f");
        play.op(ok(on(EMPTY_DIR, Call::Unlinkat, 0, "d/f", 20.0), reason::RECOVERED));
        plays.push((title, play));
    }
    let node = file_system("/k");
    let read_only = FileSystem { read_only: true, mount_read_only: true, ..node.clone() };
    let inside = FileSystem { point: in_volume(EMPTY_DIR, "").into(), ..node.clone() };
    let counted = Counted { value: "7".into(), file: "/sys/fs/ext4/sda1/errors_count".into() };
    let broken = FileSystem { errors: vec![counted], ..node.clone() };
    let gone = FileSystem { device_exists: Some(false), ..node.clone() };
    let btrfs = FileSystem { fs_type: "btrfs".into(), device_exists: None, ..node.clone() };
    let device = "0:45".into();
    let nfs = FileSystem { fs_type: "nfs4".into(), device, device_exists: None, ..node.clone() };
    for (title, errno, found) in [
        ("a read-only node", Errno::EROFS, Some(read_only)),
        ("no longer read-only", Errno::EROFS, Some(node.clone())),
        ("a read-only subvolume", Errno::EROFS, Some(btrfs)),
        ("a full disk of the node", Errno::ENOSPC, Some(node.clone())),
        ("a full volume", Errno::EDQUOT, Some(inside)),
        ("a disk with errors", Errno::EIO, Some(broken)),
        ("a disk without counted errors", Errno::EIO, Some(node.clone())),
        ("a disk that is gone", Errno::ENODEV, Some(gone)),
        ("a stale handle", Errno::ESTALE, Some(nfs)),
        ("access denied", Errno::EACCES, Some(node)),
        ("a namespace that is gone", Errno::EUCLEAN, None),
    ] {
        let subvolume = Subvolume {
            path: in_volume(EMPTY_DIR, "d").into(),
            file: FileId { device: 7, inode: 256 },
            read_only: true,
        };
        let subvolume = Some(subvolume);
        let mut play = Play::new(Node { file_system: found, subvolume, ..Node::default() });
        if title == "a stale handle" {
            play.sample(NodeSample { mounts: shared(), ..sample(0.5) });
        }
        tries(&mut play, EMPTY_DIR, Call::Unlinkat, errno, "f");
        play.op(ok(on(EMPTY_DIR, Call::UnlinkatDir, 0, "", 20.0), reason::ROOT_GONE));
        settle(&mut play, EMPTY_DIR, 21.0);
        plays.push((title, play));
    }
    plays
}
