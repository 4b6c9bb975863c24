//! What is said about a call that does not return, once its cause is decided.

use crate::{
    cause::id,
    command::View,
    model::{
        call::Call,
        evidence::Source,
        file_system::is_fuse,
        finding::Severity,
        hung::{Since, WaitProgress},
        path::{safe, safe_path},
        stuck::StuckThread,
    },
    rules::hung_call_cause::{Judged, Waits},
    tracker::Context,
    verdict::{Draft, times},
};

/// Where the control file system of FUSE is (Documentation/filesystems/fuse.rst).
const FUSE_CONTROL: &str = "/sys/fs/fuse/connections";

/// Writes the verdict out; `sharers` says who else has the same file system, where that matters.
pub(crate) fn fill(
    context: &Context<'_>,
    draft: &mut Draft,
    seen: &StuckThread,
    judged: &Judged,
    sharers: impl FnOnce() -> Option<Vec<String>>,
) {
    draft.call = Call::ALL.into_iter().find(|call| call.name() == seen.syscall);
    draft.blocks_deletion = draft.target.pod.is_some().then_some(true);
    facts(draft, seen);
    match judged.waits {
        Waits::Fuse => fuse(context, draft, seen, sharers()),
        Waits::Frozen => frozen(context, draft, seen),
        Waits::Nfs => nfs(context, draft, seen, sharers()),
        Waits::Flush => flush(draft),
        Waits::Shutdown => shutdown(draft),
        Waits::Unknown => unknown(draft),
    }
    if judged.waits != Waits::Fuse {
        let fact = "the thread does not wait for the answer of a FUSE server";
        draft.rule_out(id!("fuse-daemon-hung"), fact);
    }
    if !matches!(judged.waits, Waits::Frozen | Waits::Unknown) {
        let fact = "the thread does not wait for a freeze to end";
        draft.rule_out(id!("filesystem-frozen"), fact);
    }
    if let Some(doubt) = judged.doubt {
        draft.doubt(doubt);
    }
}

/// What is known whatever the cause.
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
        format!("{call} has not come back {since} {seconds:.1} s ({})", seen.phase.meaning()),
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
    if let Some(WaitProgress { woken, milliseconds, quiet_ms }) = seen.progress {
        let (window, quiet) = (milliseconds as f64 / 1000.0, quiet_ms as f64 / 1000.0);
        let times = if woken == 0 { "not".into() } else { times(woken) };
        let fact = format!(
            "it was {times} woken in the last {window:.1} s, and has slept for {quiet:.1} s"
        );
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

fn fuse(
    context: &Context<'_>,
    draft: &mut Draft,
    seen: &StuckThread,
    sharers: Option<Vec<String>>,
) {
    draft.severity = Severity::Critical;
    draft.explanation = "The file system is served by a process (FUSE) that was asked and does not \
        answer. Whoever looks at it waits: kubelet before it comes to delete, and umount before it \
        comes to unmount. The waiting thread is in state S at first, so a search for state D misses \
        it. Other processes that use the volume wait as well."
        .into();
    let mount = seen.mount.as_ref().filter(|mount| is_fuse(&mount.fs_type));
    // A `fuseblk` mount has a real device, whose minor number is not the connection's.
    if let Some(mount) = mount.filter(|mount| mount.fs_type != "fuseblk") {
        // systemd mounts the control file system at boot, and nobody where there is none. A file system
        // without a server still is a mount point, which no removal of kubelet's takes away.
        let view = view(context, seen);
        let step = view.on_mount("umount", &mount.point, mount.id).after(&format!(
            "{{ mountpoint -q {FUSE_CONTROL} || mount -t fusectl fusectl {FUSE_CONTROL}; }} && \
             echo 1 > {FUSE_CONTROL}/{}/abort && sleep 1",
            mount.minor
        ));
        let numbers = format!("{} 0:{}", mount.id.unwrap_or_default(), mount.minor);
        let is_its = format!("cut -d' ' -f1,3 {} | grep -qx '{numbers}'", view.table());
        let words = format!("connection {} is that of the mount", mount.minor);
        draft.remedy(
            step.only_if(is_its, words).called(format!("to abort the connection of {}", safe_path(&mount.point)))
                .forced(sharers),
            "ends all waiting at once: every request fails with ECONNABORTED, what the server had not \
             written is lost. First look whether its process is only slow, stopped or overloaded",
        );
    }
    if let Some(mount) = mount {
        draft.remedy(
            view(context, seen).on_mount("umount", &mount.point, mount.id),
            "low once the connection is aborted; before, it waits like the others",
        );
    }
    draft.rule_out(
        id!("fuse-daemon-dead"),
        "calls would fail with ENOTCONN at once, and this one waits",
    );
    draft.rule_out(id!("nfs-server-unreachable"), "no function of NFS is in the stack");
    for other in [id!("filesystem-frozen"), id!("umount-kernel-hang"), id!("umount-flush-slow")] {
        draft.rule_out(other, "the thread waits for the answer of a FUSE server");
    }
}

fn frozen(context: &Context<'_>, draft: &mut Draft, seen: &StuckThread) {
    draft.severity = Severity::Critical;
    draft.explanation =
        "The file system is frozen: somebody stopped all changes to it, as backups \
        and snapshots do for a moment (fsfreeze, a snapshot agent, a suspended device-mapper \
        device), and has not thawed it. Every call that would change something waits, also one \
        that would fail; none can be killed, and all of them resume when it is thawed."
            .into();
    if let Some(mount) = &seen.mount {
        draft.remedy(
            view(context, seen)
                .on_mounted(&mount.point, mount.id, |it| format!("fsfreeze --unfreeze {it}")),
            "low, unless a snapshot or a backup is being taken just now, which then is not \
             consistent: ask who froze it. A suspended device-mapper device (`dmsetup info`) is \
             released by `dmsetup resume` instead",
        );
    }
    for other in [id!("umount-kernel-hang"), id!("umount-flush-slow")] {
        draft.rule_out(
            other,
            "the thread waits for the file system to be thawed, not for its device",
        );
    }
    draft.rule_out(id!("nfs-server-unreachable"), "no function of NFS is in the stack");
}

fn nfs(context: &Context<'_>, draft: &mut Draft, seen: &StuckThread, sharers: Option<Vec<String>>) {
    draft.severity = Severity::Critical;
    draft.explanation = "The call waits for an NFS server that does not answer. Mounts are `hard` \
        by default: the client asks for ever. kubelet, umount and the containers' processes that \
        touch the volume all wait."
        .into();
    // What lies textually above a path need not be what it is on.
    let Some(mount) = seen.mount.as_ref().filter(|mount| mount.fs_type.starts_with("nfs")) else {
        let table = view(context, seen).table();
        draft.remedy(format!("grep ' nfs' {table}"), "none; shows what is mounted from where");
        return;
    };
    draft.advice("bring the server, or the way to it, back: then everything resumes", "none");
    draft.remedy(
        view(context, seen).on_mount("umount -f -l", &mount.point, mount.id).forced(sharers),
        "what was not written to the server is lost, and processes that have files open on it keep \
         waiting",
    );
}

fn flush(draft: &mut Draft) {
    draft.severity = Severity::Info;
    draft.explanation =
        "The mount is gone from every table, and the kernel still writes what was in \
        memory to the device before the call returns. Writeback makes progress: the thread is \
        woken as parts of it complete. How long it takes depends on the device."
            .into();
    draft.remedy(
        "grep -E '^(Dirty|Writeback):' /proc/meminfo",
        "none: shows how much is still to be written on the whole node; wait for it",
    );
    draft.rule_out(id!("umount-kernel-hang"), "the thread makes progress");
}

fn shutdown(draft: &mut Draft) {
    draft.severity = Severity::Critical;
    draft.explanation = "The mount is gone from every table, and the kernel shuts the file system \
        down. It waits there for its device or server, and makes no progress. The thread cannot be \
        killed, and unmounting again does nothing, because nothing is mounted any more."
        .into();
    draft.remedy(
        "dmesg --ctime | tail -n 100",
        "none: look for I/O errors, lost paths and hung tasks of the device. When the device comes \
         back, or fails for good, the call ends; if it never does, only a reboot helps",
    );
    draft.rule_out(
        id!("umount-flush-slow"),
        "the thread has slept for long, so nothing it waits for was written",
    );
}

fn unknown(draft: &mut Draft) {
    draft.explanation = "The call does not come back, and the functions that it is in do not tell \
        the cause. The stack says what it waits for."
        .into();
    draft.remedy(
        "dmesg --ctime | tail -n 100",
        "none: look for messages about the device or server of this file system",
    );
}

/// Where the stuck thread sees its paths.
fn view(context: &Context<'_>, seen: &StuckThread) -> View {
    View::in_namespace(context, seen.mnt_ns, seen.thread.pid)
}
