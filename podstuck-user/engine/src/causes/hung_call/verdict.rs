//! The finding about a call that does not return, once its cause is decided.

use std::{path::Path, time::Duration};

use crate::{
    causes::{
        hung_call::{
            fanotify,
            judge::{Judged, Waits},
        },
        network_storage,
        shared::{fuse, kernel_lock, stalled::Silent, thaw::thaw},
    },
    command::{Step, View},
    ids,
    kernel_lock::words,
    model::{
        call::Call,
        evidence::Source,
        file_system::is_fuse,
        finding::Severity,
        hung::{PATIENCE, Phase, Since, WaitProgress},
        path::{safe, safe_path},
        said::Said,
        stuck::StuckThread,
        time::Monotonic,
    },
    query::{Fanotify, Listening, NoAnswer},
    tracker::Context,
    verdict::{Draft, times},
    wait_channel::{self, WaitsFor, functions, waits_for},
};

/// An established connection needs no listener.
const STILL_CONNECTED: &str = "whether the client is still connected, and the real server behind the connection does \
    not answer";

/// Facts from other sources than the thread.
#[derive(Clone, Copy, Default)]
pub(crate) struct Around<'a> {
    /// Whether a process listens at the address of the NFS mount's server.
    pub(crate) listening: Option<&'a Listening>,
    /// What the kernel's log says of the server or the device.
    pub(crate) kernel: Option<&'a Said>,
    /// The listeners that must permit accesses to the object.
    pub(crate) fanotify: Option<&'a Result<Fanotify, NoAnswer>>,
    /// A block device that does not answer, and whether it is that of the object's file system.
    pub(crate) silent: Option<(Silent<'a>, bool)>,
}

/// Fills in the finding; `sharers` names the others that have the same file system, if they are known.
pub(crate) fn fill(
    context: &Context<'_>,
    draft: &mut Draft,
    seen: &StuckThread,
    judged: &Judged,
    around: Around<'_>,
    sharers: impl FnOnce() -> Option<Vec<String>>,
) {
    draft.call = Call::ALL.into_iter().find(|call| call.name() == seen.syscall);
    draft.blocks_deletion = draft.target.pod.is_some().then_some(true);
    facts(draft, seen);
    if judged.waits != Waits::Lock {
        kernel_lock::tell(draft, &seen.lock);
    }
    match judged.waits {
        Waits::Fanotify => fanotify::fill(draft, view(context, seen), around.fanotify),
        Waits::Fuse => unanswered(context, draft, seen, sharers()),
        Waits::Frozen => frozen(context, draft, seen),
        Waits::Nfs => {
            nfs(context, draft, seen, sharers());
            not_a_tunnel(draft, seen, around.listening);
        }
        Waits::Tunnel => tunnel(context, draft, seen, around.listening, sharers()),
        Waits::Smb | Waits::Ceph => other_server(context, draft, seen, around.kernel, sharers()),
        Waits::Flush => flush(draft),
        Waits::Shutdown => shutdown(draft, around.silent),
        Waits::Disk => disk(draft, around.silent),
        Waits::Lock => locked(draft, seen),
        Waits::Unknown => unknown(draft),
    }
    if !matches!(judged.waits, Waits::Smb | Waits::Ceph) {
        around.kernel.into_iter().for_each(|said| draft.quote("the kernel", said));
    }
    // Without a kernel function, no wait can be ruled out.
    let has_functions = functions(&seen.stack, seen.wait_channel.as_deref()).next().is_some();
    // A thread that sleeps for a lock waits for what its holder waits for.
    let has_functions = has_functions && seen.lock.is_empty();
    if has_functions && judged.waits != Waits::Fuse {
        let fact = "the thread does not wait for the answer of a FUSE server";
        draft.rule_out(ids::FUSE_DAEMON_HUNG, fact);
    }
    if has_functions && !matches!(judged.waits, Waits::Fanotify | Waits::Unknown) {
        let fact = "the thread does not wait for the permission of a fanotify listener";
        draft.rule_out(ids::FANOTIFY_LISTENER_HUNG, fact);
    }
    if has_functions && !matches!(judged.waits, Waits::Frozen | Waits::Unknown) {
        let fact = "the thread does not wait for a freeze to end";
        draft.rule_out(ids::FILESYSTEM_FROZEN, fact);
    }
    if let Some(doubt) = judged.doubt {
        draft.doubt(doubt);
    }
}

/// Describes a call that has no cause yet.
pub(crate) fn waits(seen: &StuckThread, slow: Duration, now: Monotonic, is_asked: bool) -> String {
    let path = seen.path.as_deref().unwrap_or_else(|| Path::new("(unknown)"));
    let of_pod = seen.target.pod.as_ref().filter(|_| !is_asked);
    let look = of_pod.map(|pod| {
        let uid = safe(pod.uid.as_bytes());
        format!(", or run podstuck diagnose --pod-uid {uid}, which waits for it")
    });
    let by_channel = |channel: &String| wait_channel::words(&seen.stack, channel);
    let by_lock = seen.lock.first().map(words);
    let waits = by_lock.or_else(|| seen.wait_channel.as_ref().map(by_channel));
    let waits = waits.map(|what| format!(", and waits for {what}"));
    format!(
        "{} of {} by {} (pid {}) has not returned for {:.0} s: it is {}{}. A slow device takes up to {} s, so it is \
         too early to name the cause: keep watching{}",
        safe(seen.syscall.as_bytes()),
        safe_path(path),
        safe(seen.actor.comm.as_bytes()),
        seen.thread.pid,
        now.max(seen.at).since(seen.began).as_secs_f64(),
        seen.phase.meaning(),
        waits.unwrap_or_default(),
        (slow * PATIENCE[2]).as_secs(),
        look.unwrap_or_default()
    )
}

/// Adds the facts that do not depend on the cause.
fn facts(draft: &mut Draft, seen: &StuckThread) {
    let of = format!("/proc/{}/task/{}", seen.thread.pid, seen.thread.tid);
    let seconds = seen.at.since(seen.began).as_secs_f64();
    let since = match seen.since {
        Since::Probe => "for",
        Since::ProcessStart => "for at most",
        Since::FirstLook => "for at least",
    };
    let call = safe(seen.syscall.as_bytes());
    let source = if seen.since == Since::Probe { Source::Probe } else { Source::proc(of.as_str()) };
    draft.fact_since(
        format!("{call} has not returned {since} {seconds:.1} s ({})", seen.phase.meaning()),
        source,
        seen.began,
    );
    if let Some(times) = seen.times {
        let channel = seen.wait_channel.as_deref().map(|f| format!(" in {f}")).unwrap_or_default();
        draft.fact(
            format!("its thread is in state {}{channel}", times.state),
            Source::proc(format!("{of}/wchan")),
        );
    }
    if !seen.stack.is_empty() {
        draft.fact(
            format!("kernel stack: {}", seen.stack.join(" < ")),
            Source::proc(format!("{of}/stack")),
        );
    }
    if let Some(WaitProgress { woken, milliseconds, quiet_ms, seen_woken }) = seen.progress {
        let (window, quiet) = (milliseconds as f64 / 1000.0, quiet_ms as f64 / 1000.0);
        let woken = if woken == 0 { "not woken".into() } else { format!("woken {}", times(woken)) };
        let fact = if seen_woken {
            format!(
                "its thread was {woken} in the last {window:.1} s, and has slept for {quiet:.1} s"
            )
        } else {
            format!("its thread was not woken in the {quiet:.1} s since it was first seen")
        };
        draft.fact(fact, Source::proc(format!("{of}/status")));
    }
    if let Some(mount) = &seen.mount {
        let unanswered = mount.unanswered.map(|n| format!(", {n} requests unanswered"));
        draft.fact(
            format!(
                "the object is on {} of type {}, mounted on {}{}",
                safe(mount.source.as_bytes()),
                safe(mount.fs_type.as_bytes()),
                safe_path(&mount.point),
                unanswered.unwrap_or_default()
            ),
            Source::mountinfo(format!("/proc/{}/mountinfo", seen.thread.pid)),
        );
    }
}

fn unanswered(
    context: &Context<'_>,
    draft: &mut Draft,
    seen: &StuckThread,
    sharers: Option<Vec<String>>,
) {
    draft.severity = Severity::Critical;
    draft.explanation = "A process (the FUSE server) serves the file system and does not answer a request. Every \
        process that accesses the file system waits: kubelet before it deletes anything, umount before it unmounts, \
        and the other users of the volume. The waiting thread is in state S at first, so a search for state D misses \
        it."
        .into();
    let mount = seen.mount.as_ref().filter(|mount| is_fuse(&mount.fs_type));
    // A `fuseblk` mount has a real device, whose minor number is not the connection's.
    if let Some(mount) = mount.filter(|mount| mount.fs_type != "fuseblk") {
        // systemd mounts the control file system at boot; without systemd it may be missing. A file system
        // without a server is still a mount point, which no removal by kubelet takes away.
        let view = view(context, seen);
        let (control, abort) = (fuse::control(), fuse::abort(mount.minor));
        let step = view
            .on_mount("umount", &mount.point, mount.id)
            .after(&format!("{control} && {abort} && sleep 1"));
        let is_its = fuse::is_its(view, mount.id.unwrap_or_default(), mount.minor);
        let words = format!("connection {} belongs to the mount", mount.minor);
        draft.remedy(
            step.only_if(is_its, words).called(format!("to abort the connection of {}", safe_path(&mount.point)))
                .does(view.says("abort and unmount", &mount.point))
                .so(", whose FUSE server does not answer")
                .forced(sharers.clone()),
            "ends all waiting at once: every request fails with ECONNABORTED, and what the server had not written is \
             lost. First check whether its process is only slow, stopped or overloaded",
        );
    }
    if let Some(mount) = mount {
        // If the abort command is withheld, this one would only wait, so it is withheld, too.
        let known = sharers.map(|_| Vec::new());
        draft.remedy(
            view(context, seen)
                .on_mount("umount", &mount.point, mount.id)
                .called(format!("to unmount {}", safe_path(&mount.point)))
                .so(", once its connection is aborted")
                .forced(known),
            "low once the connection is aborted; before that, it waits like the other calls",
        );
    }
    draft.rule_out(
        ids::FUSE_DAEMON_DEAD,
        "calls would fail with ENOTCONN at once, and this one waits",
    );
    if waits_for(functions(&seen.stack, seen.wait_channel.as_deref())) == WaitsFor::Fuse {
        for other in [ids::NFS_SERVER_UNREACHABLE, ids::EFS_STUNNEL_DEAD] {
            draft.rule_out(other, "no function of NFS is in the stack");
        }
        for other in [
            ids::FILESYSTEM_FROZEN,
            ids::DEVICE_NOT_RESPONDING,
            ids::UMOUNT_KERNEL_HANG,
            ids::UMOUNT_FLUSH_SLOW,
        ] {
            draft.rule_out(other, "the thread waits for the answer of a FUSE server");
        }
    } else {
        // Only the mount shows the server.
        for other in [ids::NFS_SERVER_UNREACHABLE, ids::EFS_STUNNEL_DEAD] {
            draft.rule_out(other, "the file system of the call is FUSE, not NFS");
        }
    }
}

fn frozen(context: &Context<'_>, draft: &mut Draft, seen: &StuckThread) {
    draft.severity = Severity::Critical;
    draft.explanation =
        "A freeze stopped all changes to the file system, as backups and snapshots do for a moment (fsfreeze, a \
         snapshot agent, a suspended device-mapper device), and the file system has not been thawed. Every call that \
         would change something waits, even one that would fail. No waiting thread can be killed, and all calls \
         resume when the file system is thawed."
            .into();
    if let Some(mount) = &seen.mount {
        draft.remedy(
            thaw(view(context, seen), &mount.point, mount.id).so(", so that all calls on it continue"),
            "low, unless a snapshot or a backup is in progress, which becomes inconsistent: first find out what \
             froze it. Resume a suspended device-mapper device (`dmsetup info`) with `dmsetup resume` instead",
        );
    }
    for other in [ids::DEVICE_NOT_RESPONDING, ids::UMOUNT_KERNEL_HANG, ids::UMOUNT_FLUSH_SLOW] {
        draft.rule_out(
            other,
            "the thread waits for the file system to be thawed, not for its device",
        );
    }
    draft.rule_out(ids::NFS_SERVER_UNREACHABLE, "no function of NFS is in the stack");
}

fn nfs(context: &Context<'_>, draft: &mut Draft, seen: &StuckThread, sharers: Option<Vec<String>>) {
    draft.severity = Severity::Critical;
    draft.explanation = "The call waits for an NFS server that does not answer. Mounts are `hard` by default: the \
        client retries for ever. kubelet, umount and the containers' processes that access the volume all wait."
        .into();
    if seen.phase == Phase::AfterExit {
        draft.explanation = "umount2 has unmounted the volume, and its thread waits for the NFS server, which does not \
            answer: the kernel ends the session with it, because no other mount of that server is left. The wait ends by \
            itself after some minutes (with the default options of NFS 4.2, after 2), and kubelet waits for it."
            .into();
    }
    // A mount point above the path by its text need not be the mount that the path is on.
    let Some(mount) = seen.mount.as_ref().filter(|mount| mount.fs_type.starts_with("nfs")) else {
        let view = view(context, seen);
        let does = format!("list the NFS mounts and their servers{}", view.place_name());
        draft.remedy(Step::new(does, format!("grep ' nfs' {}", view.table())), "none");
        return;
    };
    draft.advice("restore the server, or the network path to it: then everything resumes", "none");
    draft.remedy(
        view(context, seen)
            .on_mount("umount -f", &mount.point, mount.id)
            .so(", whose server does not answer")
            .repeated()
            .forced(sharers),
        network_storage::FORCED,
    );
}

/// Rules out a dead tunnel by the mount's options and the node's listeners.
fn not_a_tunnel(draft: &mut Draft, seen: &StuckThread, listening: Option<&Listening>) {
    let Some(server) = seen.mount.as_ref().and_then(|mount| mount.server.as_ref()) else { return };
    let address = safe(server.address.as_bytes());
    match (server.local_port(), listening) {
        (None, _) if server.is_elsewhere() => {
            let fact = format!("the server is at {address}, not on this node");
            draft.rule_out(ids::EFS_STUNNEL_DEAD, fact);
        }
        (Some(port), Some(Listening { somebody: true, .. })) => {
            let fact = format!("a process listens on port {port} of the node");
            draft.rule_out(ids::EFS_STUNNEL_DEAD, fact);
        }
        _ => {}
    }
}

fn tunnel(
    context: &Context<'_>,
    draft: &mut Draft,
    seen: &StuckThread,
    listening: Option<&Listening>,
    sharers: Option<Vec<String>>,
) {
    draft.severity = Severity::Critical;
    draft.explanation = "The NFS mount's server is an address of the node itself, where a program accepts the \
        connections and forwards them to the real server (stunnel or efs-proxy of the EFS driver). No process \
        listens there any more, usually because the driver's container was replaced. The client retries for ever; \
        kubelet, umount and the containers' processes that access the volume all wait. When a process listens there \
        again, everything resumes."
        .into();
    let Some(mount) = &seen.mount else { return };
    if let Some((server, listening)) = mount.server.as_ref().zip(listening) {
        let (address, port) = (safe(server.address.as_bytes()), server.port.unwrap_or_default());
        draft.fact(
            format!("the mount's options say addr={address}, port={port}"),
            Source::mountinfo(format!("/proc/{}/mountinfo", seen.thread.pid)),
        );
        let namespaces = listening.namespaces;
        draft.fact(
            format!(
                "no process listens on TCP port {port} at {address}, in {namespaces} network namespaces of the node"
            ),
            Source::proc("/proc/PID/net/tcp and tcp6"),
        );
        draft.rule_out(
            ids::NFS_SERVER_UNREACHABLE,
            format!(
                "the server's address is port {port} of the node, and no process listens there"
            ),
        );
    }
    draft.doubt(STILL_CONNECTED);
    draft.advice(
        "restart the EFS driver's pod on this node (delete it with `kubectl delete pod`: its DaemonSet creates it \
         again): the driver's watchdog restarts the tunnels of all mounts",
        "low: mounts of other pods wait for a moment until their tunnel is back",
    );
    draft.remedy(
        view(context, seen)
            .on_mount("umount -f", &mount.point, mount.id)
            .so(", whose tunnel has ended")
            .repeated()
            .forced(sharers),
        network_storage::FORCED,
    );
}

fn other_server(
    context: &Context<'_>,
    draft: &mut Draft,
    seen: &StuckThread,
    kernel: Option<&Said>,
    sharers: Option<Vec<String>>,
) {
    network_storage::tell(draft, None, kernel);
    if let Some(mount) = &seen.mount {
        let view = view(context, seen);
        network_storage::unmount(draft, view, &mount.point, mount.id, sharers);
    }
}

fn flush(draft: &mut Draft) {
    draft.severity = Severity::Info;
    draft.explanation =
        "The mount is gone from every mount table, and the kernel still writes cached data to the device before the \
         call returns. The writeback makes progress: the thread is woken as parts of it complete. How long that \
         takes depends on the device."
            .into();
    draft.remedy(
        Step::new(
            "show how much data the whole node still has to write",
            "grep -E '^(Dirty|Writeback):' /proc/meminfo",
        ),
        "none; wait for it",
    );
    draft.rule_out(ids::UMOUNT_KERNEL_HANG, "the thread makes progress");
}

/// Adds a block device that does not answer, and what brings it back.
fn silent_device(draft: &mut Draft, silent: Option<(Silent<'_>, bool)>) {
    let Some((silent, is_its)) = silent else { return };
    draft.held_by(silent.who());
    draft.must = Some("complete its requests");
    silent.tell(draft);
    let doubt = ", if the thread waits for it: the kernel no longer shows on which device the file system is";
    silent.release(draft, if is_its { "" } else { doubt });
}

fn shutdown(draft: &mut Draft, silent: Option<(Silent<'_>, bool)>) {
    silent_device(draft, silent);
    draft.severity = Severity::Critical;
    draft.explanation = "The mount is gone from every mount table, and the kernel shuts the file system down. The \
        shutdown waits for the device or server, and makes no progress. The thread cannot be killed, and unmounting \
        again does nothing, because nothing is mounted any more."
        .into();
    draft.remedy(
        Step::new(
            "show the kernel's last messages, for errors of the device",
            "dmesg --ctime | tail -n 100",
        ),
        "none: look for I/O errors, lost paths and hung tasks of the device. When the device comes \
         back, or fails for good, the call ends; if it never does, only a reboot helps",
    );
    let written = match silent {
        Some(_) => "the device completes no request: nothing that the thread waits for is written",
        None => "the thread has slept for a long time: nothing that it waits for was written",
    };
    draft.rule_out(ids::UMOUNT_FLUSH_SLOW, written);
}

fn disk(draft: &mut Draft, silent: Option<(Silent<'_>, bool)>) {
    silent_device(draft, silent);
    draft.severity = Severity::Critical;
    draft.explanation = "The call waits for a block device that completes no request. Every call on the file system that \
        needs the disk waits and cannot be killed. When the device comes back, or fails for good, they end."
        .into();
}

fn locked(draft: &mut Draft, seen: &StuckThread) {
    draft.severity = Severity::Critical;
    kernel_lock::tell(draft, &seen.lock);
    kernel_lock::release(draft, &seen.lock);
    draft.rule_out(ids::CALL_HUNG_UNEXPLAINED, "the holder of the lock is known");
}

fn unknown(draft: &mut Draft) {
    draft.explanation = "The call does not return, and the kernel functions that it is in do not show the cause. The \
        stack shows what it waits for."
        .into();
    draft.remedy(
        Step::new(
            "show the kernel's last messages, for the device or server of this file system",
            "dmesg --ctime | tail -n 100",
        ),
        "none",
    );
}

/// The view of the stuck thread's mount namespace.
fn view(context: &Context<'_>, seen: &StuckThread) -> View {
    View::in_namespace(context, seen.mnt_ns, seen.thread.pid)
}
