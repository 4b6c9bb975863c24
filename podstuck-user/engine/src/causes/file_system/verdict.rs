//! Findings about an error of the file system, and about a read-only mount over a volume that a log names.

use crate::{
    cause::Cause,
    causes::{
        busy_mount::nested,
        disk_full,
        file_system::{
            causes::{
                DELETE_RISK, DEVICE_ERROR, READ_ONLY, READ_ONLY_SUBVOLUME,
                REMOVAL_FAILED_UNEXPLAINED, STALE_HANDLE, WRITABLE_RISK,
            },
            tracker::Failing,
        },
        network_storage,
        shared::{claim::UNSEEN_DEVICE, kernel_says::KernelSays, sharers},
    },
    command::{Step, View},
    ids,
    model::{
        chain::Who,
        errno::Errno,
        evidence::Source,
        file_system::{FileSystem, Subvolume, is_fuse},
        finding::Severity,
        identity::TargetKind,
        mountinfo::EMERGENCY,
        path::{safe, safe_path},
        said::Level,
    },
    tracker::{Context, TrackerId},
    verdict::{Draft, times},
};

/// The finding; `None` if another tracker explains the error.
pub(crate) fn draft(
    context: &Context<'_>,
    failing: &Failing,
    (found, subvolume): (Option<&FileSystem>, Option<&Subvolume>),
    kernel: &KernelSays,
) -> Option<Draft> {
    let op = &failing.op;
    let errno = op.outcome.errno()?;
    let of_network = found.and_then(|fs| network_storage::judge(errno, &fs.fs_type));
    if errno == Errno::ENOTCONN && of_network.is_none() {
        return None;
    }
    let own = found.is_some_and(|fs| is_in_the_pod(failing, fs));
    let subvolume = subvolume.filter(|it| errno == Errno::EROFS && it.read_only);
    let is_read_only = found.is_some_and(|fs| fs.read_only || fs.mount_read_only);
    if errno == Errno::EROFS && own && is_read_only {
        // A process has mounted something read-only in the pod's directory. In the end, the removal of
        // the mount point fails, with EBUSY.
        return found.and_then(|fs| read_only_in_volume(context, failing, fs));
    }
    let cause = match subvolume {
        Some(_) => &READ_ONLY_SUBVOLUME,
        None => of_network.unwrap_or_else(|| judge(errno, found, own)),
    };
    let mut draft = Draft::about(TrackerId::FileSystem, cause, op);
    draft.severity = if cause.is_admission() { Severity::Warning } else { Severity::Critical };
    draft.blocks_deletion = blocks(op.target.kind);
    draft.count = failing.count;
    draft.first = failing.first;
    draft.fact(
        format!(
            "{} failed with {} {}, in {} attempts",
            op.call.name(),
            op.outcome.name(),
            times(failing.count),
            failing.attempts.count()
        ),
        op.source(),
    );
    match found {
        Some(fs) => describe(&mut draft, fs),
        None => draft.fact(
            "its file system could not be looked up: the caller's mounts could not be read, or \
             its namespace is gone",
            Source::mountinfo("mountinfo"),
        ),
    }
    let point = found.map_or("the file system".into(), |fs| safe_path(&fs.point).into_owned());
    draft.explanation = match found {
        Some(_) => explanation(cause, errno, &point),
        None => unseen(errno),
    };
    if let Some(fs) = found.filter(|_| of_network.is_some()) {
        let kernel = kernel.of(&fs.fs_type, &fs.source);
        network_storage::tell(&mut draft, Some(errno), kernel);
        let own = op.target.pod.as_ref().map(|pod| pod.uid.as_str());
        let others = || sharers::of(context.sample?, fs.device.parse().ok()?, own);
        network_storage::unmount(&mut draft, View::of(context, op), &fs.point, fs.id, others());
        return Some(draft);
    }
    if let Some((fs, subvolume)) = found.zip(subvolume) {
        make_writable(&mut draft, View::of(context, op), fs, subvolume);
        return Some(draft);
    }
    remedies(context, &mut draft, errno, failing, found);
    let fails = found.is_some_and(|fs| quote_kernel(&mut draft, context, fs, kernel));
    tell_apart(&mut draft, errno, found, fails);
    Some(draft)
}

/// Adds what the kernel has logged of the file system's device, and whether it is an error of the last minutes.
pub(super) fn quote_kernel(
    draft: &mut Draft,
    context: &Context<'_>,
    fs: &FileSystem,
    kernel: &KernelSays,
) -> bool {
    let Some(said) = kernel.recent(context, &fs.device) else { return false };
    draft.quote("the kernel", said);
    said.level == Level::Error
}

/// A subvolume that is read-only by its property.
fn make_writable(draft: &mut Draft, view: View, fs: &FileSystem, subvolume: &Subvolume) {
    let Subvolume { path, file, .. } = subvolume;
    let shown = safe_path(path);
    let whole = "neither the mount nor the file system is read-only";
    draft.fact(whole, Source::mountinfo(&fs.table));
    draft.fact(format!("it lies in the btrfs subvolume {shown}"), Source::Look("statx"));
    let refused = "access(2) for writing fails with EROFS in its directory, where statfs(2) shows no read-only flag";
    draft.fact(refused, Source::Look("access(2)"));
    draft.held_by(Who::object(format!("the read-only subvolume {shown}")));
    draft.explanation = format!(
        "The btrfs subvolume {shown} is read-only by its property `ro`, as a snapshot for `btrfs send` is. Nothing in it \
         can be removed, and every attempt fails at the same place; the rest of the file system can be written."
    );
    let set = |it: &str| format!("btrfs property set -ts {it} ro false");
    draft.remedy(
        view.on_file("clear the read-only property of the subvolume", path, Some(*file), set)
            .so(": kubelet's next attempt then removes it"),
        WRITABLE_RISK,
    );
    let delete = |it: &str| format!("btrfs subvolume delete {it}");
    draft.remedy(view.on_file("delete the subvolume", path, Some(*file), delete), DELETE_RISK);
    draft.rule_out(ids::NODE_FS_READONLY, whole);
}

/// Whether the mount is below the pod's own directory, and so not the node's file system.
fn is_in_the_pod(failing: &Failing, fs: &FileSystem) -> bool {
    let Some(pod) = &failing.op.target.pod else { return false };
    fs.point.components().any(|name| name.as_os_str() == pod.uid.as_str())
}

/// Whether a server on the network has the file system.
pub(super) fn is_served(fs: &FileSystem) -> bool {
    ["nfs", "cifs", "smb", "9p", "ceph"].iter().any(|server| fs.fs_type.starts_with(server))
}

/// Whether the device is gone, the kernel has counted errors, or the file system is shut down.
pub(super) fn has_failed(fs: &FileSystem) -> bool {
    has_failed_now(fs) || !fs.errors.is_empty()
}

/// The same, without counted errors, which may be old: ext4 keeps their number in its superblock until a check.
pub(super) fn has_failed_now(fs: &FileSystem) -> bool {
    let shut_down = fs.options.iter().any(|option| option == "shutdown");
    fs.device_exists == Some(false) || shut_down
}

/// The cause, by the error and whether the file system is the pod's own.
fn judge(errno: Errno, found: Option<&FileSystem>, own: bool) -> &'static Cause {
    let served = found.is_some_and(|fs| is_fuse(&fs.fs_type) || is_served(fs));
    let is_nfs = found.is_some_and(|fs| fs.fs_type.starts_with("nfs"));
    match errno {
        Errno::EROFS if found.is_some_and(|fs| fs.read_only || fs.mount_read_only) => &READ_ONLY,
        // A server's error and not a device's. Without the mount, it may be either.
        Errno::EIO if served || found.is_none() => &REMOVAL_FAILED_UNEXPLAINED,
        Errno::EIO | Errno::EUCLEAN | Errno::ENODEV | Errno::ENXIO | Errno::ESHUTDOWN => {
            &DEVICE_ERROR
        }
        Errno::ESTALE if is_nfs => &STALE_HANDLE,
        // A volume's own quota says nothing about the node's disks.
        Errno::ENOSPC | Errno::EDQUOT if found.is_some() && !own => disk_full::by_errno(),
        _ => &REMOVAL_FAILED_UNEXPLAINED,
    }
}

fn blocks(kind: TargetKind) -> Option<bool> {
    matches!(kind, TargetKind::PodVolume | TargetKind::PodDirectory).then_some(true)
}

pub(super) fn describe(draft: &mut Draft, fs: &FileSystem) {
    let FileSystem { fs_type, device, table, .. } = fs;
    let (point, source) = (safe_path(&fs.point), safe(fs.source.as_bytes()));
    let fs_type = safe(fs_type.as_bytes());
    let table = || Source::mountinfo(table);
    draft.fact(format!("it lies on {point}: {source} of type {fs_type}, device {device}"), table());
    match (fs.mount_read_only, fs.read_only) {
        (_, true) => draft.fact(format!("the file system at {point} is read-only (ro)"), table()),
        (true, false) => draft.fact(format!("the mount at {point} is read-only (ro)"), table()),
        (false, false) => {}
    }
    for option in &fs.options {
        draft.fact(format!("mount option {}", safe(option.as_bytes())), table());
    }
    if fs.device_exists == Some(false) {
        draft.fact(
            format!("no block device {device} exists any more"),
            Source::file("/sys/dev/block"),
        );
    }
    for counted in &fs.errors {
        let value = safe(counted.value.as_bytes()).into_owned();
        draft.fact(format!("the kernel has counted errors: {value}"), Source::file(&counted.file));
    }
}

/// The explanation by the error alone, if the file system could not be looked up.
fn unseen(errno: Errno) -> String {
    let says = match errno {
        Errno::EROFS => {
            "something on the path is read-only: a mount, a file system or a layer below it"
        }
        Errno::EUCLEAN | Errno::ENODEV | Errno::ENXIO | Errno::ESHUTDOWN => {
            "a file system returns this error when it is damaged or shut down, or when its device \
             is gone"
        }
        Errno::EIO => {
            "a device returns this error, and so does a server on the network or in a process \
             (FUSE)"
        }
        Errno::ENOSPC | Errno::EDQUOT => {
            "there is no space for the change, or a quota of the volume or of the node is used up"
        }
        Errno::ESTALE => "the server of a file system no longer knows the object",
        errno => return explanation(&REMOVAL_FAILED_UNEXPLAINED, errno, ""),
    };
    format!(
        "The removal fails with {errno:?}: {says}. The file system could not be looked up, so \
         nothing more is known."
    )
}

pub(super) fn explanation(cause: &Cause, errno: Errno, point: &str) -> String {
    match (cause, errno) {
        (cause, _) if *cause == READ_ONLY => format!(
            "{point} is read-only, so nothing on it can be removed, and no pod on it can be \
             deleted. The file system was mounted read-only, or the kernel made it read-only \
             after a disk error (`errors=remount-ro`). The kernel checks this before anything \
             else, so there may be further reasons."
        ),
        (cause, _) if *cause == DEVICE_ERROR => format!(
            "The device below {point} fails, or is gone, or the file system has shut itself down \
             because of that. What cannot be read cannot be removed; the unmount usually still works."
        ),
        (cause, _) if *cause == STALE_HANDLE => format!(
            "The NFS server no longer knows what was mounted at {point}: the exported directory \
             was removed or replaced, or the server lost its state. The mount does not recover by \
             itself."
        ),
        (cause, _) if cause == disk_full::by_errno() => disk_full::refused(errno, point),
        (_, Errno::ENOSPC | Errno::EDQUOT) => "The volume has no space left, or its quota is used \
            up. A copy-on-write file system needs space even to remove something. The node's own \
            disks are not concerned."
            .into(),
        (_, Errno::EIO) => {
            "The server of the file system refuses the removal with EIO, or it did not \
            answer in time. Its own log says why."
                .into()
        }
        (_, Errno::EOVERFLOW) => "The object's owner has no ID in the mount's ID mapping: an \
            idmapped mount returns this error on a removal."
            .into(),
        (_, Errno::EACCES) => "Root is refused: by a security module (SELinux, AppArmor), or by a \
            server that gives root no special rights (NFS with root_squash, an SMB share or a \
            CephFS client that was locked out). Which one is not known."
            .into(),
        (_, Errno::ENAMETOOLONG) => "A path is longer than a system call accepts (4,096 bytes). A \
            program that descends directory by directory can remove it."
            .into(),
        (_, Errno::ESTALE) => "The server of the file system no longer knows the object. Which \
            server it is cannot be determined."
            .into(),
        (_, Errno::EHOSTDOWN | Errno::ETIMEDOUT) => "The server of the file system is \
            unreachable, or did not answer in time. Its own log, and the kernel's, say why."
            .into(),
        (_, Errno::EROFS) => "The call failed because something is read-only, and the mount table \
            does not show what: it was remounted meanwhile, an overlay has a read-only lower \
            layer, or it is a btrfs subvolume with the property `ro`, such as a snapshot."
            .into(),
        _ => "The file system refuses the removal, and the reason is not known.".into(),
    }
}

pub(super) fn show_disk(draft: &mut Draft) {
    let words = "dmesg | grep -iE 'i/o error|remounting|shut(ting)? ?down|corrupt'";
    draft.remedy(Step::new("show what happened to the disk", words), "none");
}

fn remedies(
    context: &Context<'_>,
    draft: &mut Draft,
    errno: Errno,
    failing: &Failing,
    found: Option<&FileSystem>,
) {
    let op = &failing.op;
    let on_mount =
        |words: &str| found.map(|fs| View::of(context, op).on_mount(words, &fs.point, fs.id));
    let look = |verb: &str, words: &str| {
        found.map(|fs| View::of(context, op).look(verb, &fs.point, |it| format!("{words} {it}")))
    };
    let others = || {
        let own = op.target.pod.as_ref().map(|pod| pod.uid.as_str());
        sharers::of(context.sample?, found?.device.parse().ok()?, own)
    };
    let cause = draft.cause;
    if [&READ_ONLY, &DEVICE_ERROR].contains(&cause) {
        show_disk(draft);
    }
    let is_emergency = found.is_some_and(|fs| fs.options.iter().any(|option| option == EMERGENCY));
    if *cause == READ_ONLY && is_emergency {
        draft.advice(
            "drain the node, check the file system (`fsck`) while it is not mounted, and mount it again: a remount does \
             not end this state",
            "every pod of the node is moved",
        );
        return;
    }
    let more = match cause {
        cause if *cause == READ_ONLY => on_mount("mount -o remount,rw").zip(Some(
            "only if no disk error made it read-only: writing to a damaged file system damages it \
             further. After an error, drain the node, check the file system offline, and replace \
             the disk",
        )),
        cause if *cause == DEVICE_ERROR && found.is_some_and(|fs| is_in_the_pod(failing, fs)) => {
            on_mount("umount")
                .zip(Some("if the device is gone, what was not yet written is lost anyway"))
        }
        cause if *cause == STALE_HANDLE => on_mount("umount -f")
            .map(|step| step.forced(others()))
            .zip(Some("low: the mount is of no use any more; what was not yet written is lost")),
        cause if cause == disk_full::by_errno() => look(
            "show what fills",
            "du --one-file-system --max-depth=2 --human-readable",
        )
        .zip(Some("none, but reads much; free space outside the runtime's own directories first")),
        _ if errno == Errno::EROFS && found.is_some_and(|fs| fs.fs_type == "btrfs") => {
            draft.advice(
                "if it is a read-only subvolume, make it writable (`btrfs property set -ts \
                 SUBVOLUME ro false`): kubelet's next attempt then succeeds",
                "a snapshot that is the parent of an incremental `btrfs send` can no longer serve \
                 as such",
            );
            let directory = op.path.parent().unwrap_or(&op.path);
            let step = View::of(context, op).look(
                "show the property of the subvolume at",
                directory,
                |it| format!("btrfs property get -ts {it} ro"),
            );
            Some(step).zip(Some("none"))
        }
        _ if errno == Errno::EACCES => {
            let denied = "ausearch -m avc,apparmor_denied -ts recent";
            Some(Step::new("show what SELinux or AppArmor has refused", denied)).zip(Some("none"))
        }
        _ => None,
    };
    if let Some((command, risk)) = more {
        draft.remedy(command, risk);
    }
}

/// Rules out the look-alikes, most of them by the error itself.
/// `fails` is whether the kernel reports errors of the device.
pub(super) fn tell_apart(draft: &mut Draft, errno: Errno, found: Option<&FileSystem>, fails: bool) {
    let read_write = found.filter(|fs| !fs.read_only && !fs.mount_read_only);
    match errno {
        Errno::EROFS => {
            if found.is_some() {
                let inside = "the read-only mount is not inside the pod's directory";
                draft.rule_out(ids::NESTED_MOUNT_UNDER_VOLUME, inside);
                draft.rule_out(ids::MOUNT_OVER_VOLUME, inside);
            }
            let error = "the error is EROFS, which the kernel returns before it checks anything \
                else";
            draft.rule_out(ids::DEVICE_IO_ERROR, error);
            draft.rule_out(ids::NFS_STALE_HANDLE, error);
            draft.rule_out(ids::DISK_FULL_RUNTIME, error);
            if *draft.cause == READ_ONLY {
                draft.rule_out(ids::SUBVOLUME_READONLY, "mountinfo shows what is read-only");
            }
        }
        Errno::ESTALE => {
            let error = "the error is ESTALE, which no device and no read-only mount returns";
            draft.rule_out(ids::NODE_FS_READONLY, error);
            draft.rule_out(ids::DEVICE_IO_ERROR, error);
            if *draft.cause == STALE_HANDLE {
                draft.rule_out(ids::CEPHFS_EVICTED, "the file system is of type nfs");
            }
        }
        _ => {
            if let Some(fs) = read_write {
                let fact = format!("{} is mounted read-write", safe_path(&fs.point));
                draft.rule_out(ids::NODE_FS_READONLY, fact);
            }
            draft.rule_out(ids::NFS_STALE_HANDLE, "the error is not ESTALE");
            // The caller is not blocked by a full disk; whether the disk is full was not checked.
            if draft.cause == disk_full::by_errno() {
                draft.rule_out(ids::RUNTIME_HANG, "the caller runs, and its call is refused");
                draft.doubt("whether the file system is full, or only a quota or a snapshot");
            }
        }
    }
    let Some(fs) = found else {
        if *draft.cause == DEVICE_ERROR {
            draft.doubt("what the kernel knows about the device");
        }
        return;
    };
    if *draft.cause == DEVICE_ERROR {
        draft.rule_out(
            ids::CEPHFS_EVICTED,
            format!("the file system is of type {}, not ceph", safe(fs.fs_type.as_bytes())),
        );
    }
    if fs.device_exists == Some(true) && fs.errors.is_empty() && !fails {
        draft.rule_out(
            ids::DEVICE_IO_ERROR,
            "the device exists, and the kernel has counted no error on it",
        );
    }
    if *draft.cause == DEVICE_ERROR && !has_failed(fs) && !fails {
        draft.doubt(UNSEEN_DEVICE);
    }
}

/// The finding about a read-only mount over a volume or inside one, from a log: the attempt failed before it came to the
/// mount point.
pub(super) fn read_only_in_volume(
    context: &Context<'_>,
    failing: &Failing,
    fs: &FileSystem,
) -> Option<Draft> {
    let op = &failing.op;
    op.logged_in.as_ref()?;
    let may_be_kubelets = nested::in_memory(&fs.fs_type) && fs.is_whole;
    let over = nested::over_volume(op, &fs.point, may_be_kubelets);
    let cause = over.or_else(|| nested::inside_volume(op, &fs.point))?;
    let mut draft = Draft::about(TrackerId::FileSystem, cause, op);
    let point = safe_path(&fs.point);
    draft.path.clone_from(&fs.point);
    draft.blocks_deletion = Some(true);
    (draft.count, draft.first) = (failing.count, failing.first);
    let (call, outcome) = (op.call.name(), op.outcome.name());
    let said = format!("{call} of {} failed with {outcome}", safe_path(&op.path));
    draft.fact(format!("{said} {}", times(failing.count)), op.source());
    let (source, fs_type) = (safe(fs.source.as_bytes()), safe(fs.fs_type.as_bytes()));
    draft.fact(
        format!("{point} is a mount point for the caller: {source} of type {fs_type}, read-only"),
        Source::mountinfo(&fs.table),
    );
    let view = View::of(context, op);
    let step = view.on_mount("umount", &fs.point, fs.id);
    if over.is_some() {
        nested::tell_apart_over_volume(&mut draft);
        draft.explanation = nested::words(cause).unwrap_or_default().into();
        draft.remedy(step.so(", which is mounted over the volume"), nested::LEFT_RISK);
    } else {
        nested::tell_directory(&mut draft);
        nested::tell_apart_inside(&mut draft, &fs.fs_type);
        draft.explanation = "There is a read-only mount inside the emptyDir, and kubelet does not unmount it: its removal \
            goes through the mount and fails at what lies behind it. The mount does not show its maker: a container of \
            the pod with mountPropagation Bidirectional, or a process on the node."
            .into();
        draft.remedy(step.so(", which is mounted inside the volume"), nested::LEFT_RISK);
    }
    Some(draft)
}
