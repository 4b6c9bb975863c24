//! A CSI driver that does not serve kubelet's calls: absent, down, halted, or answering with errors.

use std::path::Path;

use crate::{
    cause::Cause,
    causes::{
        csi_volume::{
            causes::{DRIVER_DOWN, DRIVER_ERROR, DRIVER_HANGS, NOT_IDEMPOTENT, NOT_REGISTERED},
            verdict::{Fault, Suspect, UMOUNT_RISK, umount},
        },
        shared::{blamed, forced_deletion, halted},
    },
    command::{Process, Step, THIS_NODE, View, pods_of_node},
    ids,
    model::{
        call::Outcome,
        chain::Who,
        errno::Errno,
        evidence::Source,
        halted::Halted,
        node_record::NodeRecord,
        path::{clip, safe, safe_path},
        said::{self, Complaint},
        shell::word,
        stuck::StuckThread,
    },
    tracker::Context,
    verdict::Draft,
    wait_channel::waits_for,
};

/// Advice for a driver that does not come back. A manual unmount alone is not enough: kubelet keeps calling the driver.
fn without_driver(draft: &mut Draft, suspect: &Suspect<'_>) {
    let directory = &suspect.volume.path;
    let point = suspect.volume.mounts.first().map_or(directory, |mount| &mount.point);
    draft.advice(
        format!(
            "only if the driver cannot come back: unmount {}, remove vol_data.json in {} and the empty \
             directories with `rmdir`, and restart kubelet, which then no longer knows the volume",
            safe_path(point),
            safe_path(directory)
        ),
        "data is lost if another node attaches the volume while it is mounted here; detach it by \
         hand afterwards. Never run `rm -rf`: below a mount it deletes the data behind the mount",
    );
}

/// The cause for a fault of the driver; called for no other fault.
pub(crate) fn cause(fault: Fault) -> &'static Cause {
    match fault {
        Fault::DriverAbsent | Fault::DriverDeaf => &NOT_REGISTERED,
        Fault::DriverDown => &DRIVER_DOWN,
        Fault::DriverHangs => &DRIVER_HANGS,
        Fault::NotIdempotent => &NOT_IDEMPOTENT,
        _ => &DRIVER_ERROR,
    }
}

/// The driver's name.
fn name(suspect: &Suspect<'_>) -> String {
    let csi = suspect.volume.csi.as_ref();
    csi.and_then(|csi| csi.data.driver()).unwrap_or_default()
}

/// The driver as what must act.
fn who(suspect: &Suspect<'_>) -> Who {
    Who::component(format!("the CSI driver {}", name(suspect)), None)
}

fn registration_socket(suspect: &Suspect<'_>) -> String {
    let csi = suspect.volume.csi.as_ref();
    csi.map(|csi| safe_path(&csi.socket).into_owned()).unwrap_or_default()
}

fn find_driver(draft: &mut Draft, then: impl Into<String>, risk: &'static str) {
    draft.advice(then, risk);
    draft.remedy(pods_of_node("list the pods of this node, including the driver's"), "none");
}

fn registrar(draft: &mut Draft, suspect: &Suspect<'_>) {
    let socket = registration_socket(suspect);
    let who = if suspect.is_registered() { "a process" } else { "no process" };
    draft.fact(format!("{who} listens on {socket}"), Source::proc("/proc/*/net/unix"));
}

/// The state of a driver that is not at fault.
pub(crate) fn listens(draft: &mut Draft, suspect: &Suspect<'_>) {
    if let Some(driver) = suspect.driver() {
        draft.fact(driver.words(), Source::proc(driver.source.as_str()));
    }
}

pub(crate) fn does_not_listen(draft: &mut Draft, suspect: &Suspect<'_>) {
    let (name, socket) = (name(suspect), registration_socket(suspect));
    draft.fact(
        format!("the CSI driver {name} does not listen on {socket}"),
        Source::proc("/proc/*/net/unix"),
    );
}

pub(crate) fn not_registered(draft: &mut Draft, suspect: &Suspect<'_>) {
    let (name, socket) = (name(suspect), registration_socket(suspect));
    draft.held_by(who(suspect));
    draft.must = Some("register with kubelet, and unmount the volume");
    if suspect.fault == Fault::DriverAbsent {
        let fact = format!("{socket} does not exist: driver {name} is not registered");
        let source = Source::file("kubelet's directory");
        match suspect.unregistered {
            Some(since) => draft.fact_since(fact, source, since),
            None => draft.fact(fact, source),
        }
    } else {
        draft.fact(format!("no process listens on {socket}"), Source::proc("/proc/*/net/unix"));
    }
    if let Some(node) = suspect.node
        && let Some(listed) = &node.drivers
    {
        let is_listed = listed.iter().any(|known| safe(known.as_bytes()) == name);
        let not = if is_listed { "" } else { "not " };
        let fact = format!("the driver is {not}listed in CSINode {}", safe(node.node.as_bytes()));
        draft.fact(fact, Source::Api(node.read));
        if is_listed && suspect.fault == Fault::DriverAbsent {
            draft.doubt(
                "whether the driver is registered with a socket of another name: kubelet takes a driver that it \
                 unregisters out of the CSINode",
            );
        }
    }
    draft.explanation = format!(
        "kubelet cannot ask the CSI driver {name} to unpublish the volume, because the driver is \
         not registered: its DaemonSet was removed, is failing, or does not tolerate a taint of \
         this node. kubelet fails before it makes any call on the path, so no system call shows \
         the failure."
    );
    // kubernetes#133335: kubelet 1.36 waits up to two minutes before it tries again to register a plugin that failed.
    let pauses = suspect.node.and_then(NodeRecord::kubelet_minor) >= Some(36);
    let when = if pauses { "; kubelet may register it two minutes later" } else { "" };
    draft.advice(
        format!(
            "start the pod of the driver {name} on this node, or restart it: its registrar makes the socket, and kubelet's \
             next attempt then unmounts the volume{when}"
        ),
        "none",
    );
    draft.remedy(
        pods_of_node(
            "list the pods of this node: the driver's is missing among them, or does not run",
        ),
        "none",
    );
    draft.remedy(
        Step::new(
            "list the CSI drivers that kubelet knows",
            format!("kubectl get csinode {THIS_NODE} -o yaml"),
        ),
        "none",
    );
    without_driver(draft, suspect);
    draft.rule_out(
        ids::CSI_DRIVER_LOST_PUBLISH_STATE,
        "a driver that forgot its mounts answers; this driver is absent",
    );
    draft.rule_out(
        ids::VOL_DATA_MISSING_OR_CORRUPT,
        "vol_data.json can be read, and names the driver",
    );
    draft.rule_out(ids::CSI_DRIVER_ERROR, "the driver is absent, so it answers nothing");
    // If only its socket is left, kubelet may still have the driver in its list.
    let is_missed =
        suspect.said.is_some_and(|(_, said)| said.complaint == Some(Complaint::NoDriver));
    if suspect.fault == Fault::DriverAbsent || is_missed {
        draft.rule_out(ids::CSI_DRIVER_DOWN, "the driver's registrar is absent, too");
    }
    if !suspect.is_going() {
        draft.doubt("whether the pod is to be deleted: it may never have had a token volume");
    }
}

pub(crate) fn down(draft: &mut Draft, suspect: &Suspect<'_>) {
    let name = name(suspect);
    registrar(draft, suspect);
    if let Some(driver) = suspect.driver() {
        draft.fact(driver.words(), Source::proc(format!("{}, /proc/*/net/unix", driver.source)));
        if driver.process.is_some() {
            draft.doubt(
                "whether kubelet reaches the driver now: a process listens on the driver's socket",
            );
        }
    }
    let why = if suspect.is_registered() {
        "because its registrar still runs"
    } else {
        "because its registrar, which has also ended, has left its socket behind"
    };
    draft.explanation = format!(
        "The CSI driver {name} is registered, {why}. The driver itself does not run: its \
         container has ended or keeps failing. Each call from kubelet fails at once \
         (Unavailable); kubelet retries with pauses of up to two minutes, and makes no call on \
         the path until the driver succeeds."
    );
    find_driver(
        draft,
        "restore the driver: the states and logs of its containers say why it does not run. \
         kubelet's next attempt then reaches it",
        "none",
    );
    without_driver(draft, suspect);
    let called = if suspect.is_registered() {
        "the driver's registrar listens"
    } else {
        "kubelet calls the driver, so kubelet has it in its list"
    };
    draft.rule_out(ids::CSI_DRIVER_NOT_REGISTERED, called);
    let gone = "no process listens that could answer";
    draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, gone);
    draft.rule_out(ids::CSI_DRIVER_ERROR, gone);
    draft.rule_out(ids::CSI_UNPUBLISH_HUNG_LOCK, "the driver has no process that could hang");
    if !suspect.is_going() {
        draft.doubt("whether the pod is to be deleted: it may never have had a token volume");
    }
}

pub(crate) fn hangs(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let name = name(suspect);
    listens(draft, suspect);
    let process = suspect.volume.driver();
    let task = process.map(|it| context.waits.task(it.pid, "unpublish the volume", context.clock));
    let task = task.unwrap_or_default();
    draft.held_by(match task.links.last() {
        Some(last) => who(suspect).and(&format!(", which waits for {}", last.who)),
        None => who(suspect),
    });
    let started = process.and_then(|process| process.ticks);
    let halted = process.and_then(|process| Some((process.pid, process.halted.as_ref()?)));
    let mut why =
        String::from("What the driver waits for is not visible from here; its log may say it.");
    if let Some(last) = task.links.last() {
        draft.links(&task.links);
        why = format!(
            "The driver has started a command for that call, which waits for {}.",
            last.who
        );
    }
    if let Some((pid, halted)) = halted {
        let of = format!("/proc/{pid}");
        match halted {
            Halted::Stopped
            | Halted::Frozen { .. }
            | Halted::NoDescriptors { .. }
            | Halted::NoTasks { .. } => {
                let comm = process.map(|process| process.comm.as_str());
                let process = Process::new(pid, started, comm);
                why = format!("Its {}.", halted::go_on(draft, process, halted));
            }
            Halted::Waits { tid, state, channel } => {
                let source = Source::proc(format!("{of}/task/{tid}/wchan"));
                let channel = safe(channel.as_bytes());
                draft.fact(
                    format!("the driver's thread {tid} is in state {state} in {channel}"),
                    source,
                );
                let server = waits_for(std::iter::once(&*channel)).words();
                let server = server.unwrap_or("something in the kernel");
                why = format!("One of its threads waits for {server}.");
                draft.doubt("whether that thread works on this volume");
            }
        }
    }
    draft.explanation = format!(
        "The CSI driver {name} does not return from kubelet's call to unpublish the volume. {why} \
         kubelet gives up after at most two minutes and retries; a driver that locks the volume \
         refuses the retries (Aborted) while the first call hangs."
    );
    let is_mounted = !suspect.volume.mounts.is_empty();
    if !is_mounted {
        draft.fact("the volume is no longer mounted", Source::Samples);
        draft.explanation += " The mount has already left the mount table, as it does while the \
            kernel still writes back its data. A restarted driver has nothing to unmount, and \
            answers with success.";
    }
    let is_here = |it: &StuckThread| {
        it.path.as_ref().is_some_and(|path| path.starts_with(&suspect.volume.path))
    };
    let is_known = task.stuck.is_some_and(is_here);
    if !is_mounted && !is_known {
        draft.doubt(
            "what the driver's earlier call waits for: only the driver's answers say that this \
             call still runs",
        );
    }
    if suspect.is_shared && !suspect.timed_out && halted.is_none() && task.links.is_empty() {
        draft.doubt(
            "whether one call hangs: other pods have this volume, too, and the pending call may be \
             another one each time",
        );
    }
    find_driver(
        draft,
        "restart the driver's pod: this clears the driver's own lock, but does not end a thread \
         that waits in the kernel",
        "volumes that a FUSE driver serves from that pod stop working for all pods of the node",
    );
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the driver does not answer");
    draft.rule_out(ids::CSI_DRIVER_DOWN, "a process listens on the driver's socket");
    draft.rule_out(
        ids::CSI_DRIVER_ERROR,
        "the driver does not answer, or answers only that it still works on an earlier call",
    );
    if !suspect.is_going() {
        draft.doubt("whether the pod is to be deleted: it may never have had a token volume");
    }
}

pub(crate) fn error(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let name = name(suspect);
    doubt_after_restart(context, draft, suspect);
    draft.held_by(who(suspect));
    registrar(draft, suspect);
    draft.explanation = format!(
        "The CSI driver {name} answers kubelet's NodeUnpublishVolume with an error at each \
         attempt. kubelet retries with pauses of up to two minutes, and makes no call on the path \
         until the driver succeeds."
    );
    if removes_mount(suspect) {
        draft.explanation += " The error is that of rmdir(2) on a mount point: the driver takes \
            the mount for a directory, as drivers do that compare devices, and removes it without \
            an unmount, so that each attempt fails in the same way.";
        umount(context, draft, suspect, UMOUNT_RISK);
        find_driver(draft, "upgrade the driver to a version that recognises the mount", "none");
    } else if let Some(errno) = failed_look(suspect) {
        draft.explanation += &format!(
            " The driver looks at the mount before it unmounts it, and the file system answers that \
             with {errno}: the driver does not come to the unmount."
        );
        umount(context, draft, suspect, UMOUNT_RISK);
        find_driver(draft, "restore the volume's file system, its disk or its server", "none");
    } else {
        draft.explanation += " The driver's log says more about the error.";
        let act = match (suspect.first_error, desc(suspect)) {
            (Some(_), _) => {
                "fix the error of the first attempt, which may have left what the later ones fail at; the driver's log \
                 says more"
                    .into()
            }
            (None, Some(desc)) => format!("fix what the driver's error names: {desc}"),
            (None, None) => "fix the error that the driver's log reports".into(),
        };
        let way_out = suspect.said.and_then(|(_, said)| blamed::way_out(&said.text));
        if let Some(way_out) = way_out.filter(|_| suspect.first_error.is_none()) {
            draft.advice(way_out, "none");
        }
        find_driver(draft, act, "none");
        umount(context, draft, suspect, UMOUNT_RISK);
    }
    // The failed attempts show that the pod is being deleted.
    answers_with_errors(draft);
    draft.rule_out(
        ids::CSI_UNPUBLISH_HUNG_LOCK,
        "the driver answers, but not that it still works on an earlier call",
    );
    if suspect.volume.mounts.is_empty() {
        draft.fact("the volume is not mounted", Source::Samples);
    } else {
        draft.rule_out(ids::CSI_DRIVER_NOT_IDEMPOTENT, "the volume is still mounted");
    }
}

/// Rules out what a driver that answers with an error cannot have.
fn answers_with_errors(draft: &mut Draft) {
    let answers = "the driver runs and answers";
    draft.rule_out(ids::CSI_DRIVER_NOT_REGISTERED, answers);
    draft.rule_out(ids::CSI_DRIVER_DOWN, answers);
    draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "the driver does not report success");
}

/// A driver that serves one call on a volume at a time, and refuses those of other pods meanwhile.
pub(crate) fn in_turn(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let name = name(suspect);
    draft.held_by(who(suspect));
    draft.waits_for = Some("its calls on the same volume for other pods".into());
    listens(draft, suspect);
    if let Some(said) = suspect.of_another {
        let fact = format!(
            "kubelet says of another pod with this volume, at {:.0}: {}",
            said.at, said.text
        );
        draft.fact(fact, Source::Log(said.source.clone()));
    }
    draft.explanation = format!(
        "The CSI driver {name} serves one call on a volume at a time, and refuses the others \
         (Aborted). Its calls on this volume return: kubelet has unmounted the volume of another \
         pod since. kubelet tries again after a pause of up to two minutes, and may find the \
         driver at work for another pod again. It ends by itself, one pod after the other."
    );
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.advice(
        "wait for kubelet's next attempts; upgrade the driver to a version that locks each pod's \
         mount instead of the volume",
        "none",
    );
    answers_with_errors(draft);
    draft.rule_out(ids::CSI_UNPUBLISH_HUNG_LOCK, "its calls on this volume return");
    draft.rule_out(ids::CSI_DRIVER_NOT_IDEMPOTENT, "the volume is still mounted");
}

/// Longest answer of a driver that is repeated, in bytes.
const DESC: usize = 200;

/// The driver's answer, in its own words: its log, which may have more of it, before kubelet's.
fn desc(suspect: &Suspect<'_>) -> Option<String> {
    let (_, said) = suspect.said?;
    let (_, desc) = said.text.rsplit_once(" desc = ")?;
    Some(clip(&safe(desc.as_bytes()), DESC))
}

/// The error of a stat(2) of the volume's mount point, if that is the driver's error.
fn failed_look(suspect: &Suspect<'_>) -> Option<String> {
    let look = suspect.said?.1.looked.as_ref()?;
    let is_of_mount = suspect.volume.mounts.iter().any(|mount| mount.point == look.path);
    is_of_mount.then(|| look.outcome.name())
}

/// Whether the driver's error is that of the removal of a directory on which a mount of the volume lies.
fn removes_mount(suspect: &Suspect<'_>) -> bool {
    let Some((_, said)) = suspect.said else { return false };
    let is_removed = |point: &Path| {
        let point = safe_path(point);
        let mut words = ["remove", "unlinkat", "rmdir"].into_iter();
        words.any(|call| said.text.contains(&format!("{call} {point}: ")))
    };
    Outcome::named_in(&said.text) == Some(Errno::EBUSY.into())
        && suspect.volume.mounts.iter().any(|mount| is_removed(&mount.point))
}

/// Adds a doubt if the driver was restarted since its answer: the new process may answer otherwise.
fn doubt_after_restart(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let started = suspect.volume.driver().map(|process| process.started);
    let answered = suspect.said.map(|(_, said)| context.when(said.at));
    if started.zip(answered).is_some_and(|(started, answered)| started > answered) {
        draft.doubt("what the driver answers now: its process was started after the last attempt");
    }
}

/// The path outside the volume's directory at which the driver fails, by its own log.
fn other_path(suspect: &Suspect<'_>) -> Option<String> {
    let (_, said) = suspect.driver_says?;
    let is_end = |c: char| c.is_whitespace() || "\"'()[],;:".contains(c);
    let mut paths = said.text.split(is_end).filter(|word| word.starts_with('/') && word.len() > 1);
    let of_volume = suspect.volume.path.to_string_lossy();
    let first = paths.clone().next()?;
    // An RPC's name has the form of a path.
    let is_elsewhere =
        !paths.any(|path| path.starts_with(&*of_volume)) && !first.starts_with("/csi.v");
    is_elsewhere.then(|| clip(&safe(first.as_bytes()), DESC))
}

/// Whether a driver's error says that nothing is mounted, in the words of umount(8), of umount(2)'s EINVAL and ENOENT
/// in Go and other languages, or of Kubernetes' mount-utils.
pub(crate) fn says_not_mounted(error: &str) -> bool {
    let error = error.to_lowercase();
    let words = ["not mounted", "no mount point", "invalid argument", "no such file or directory"];
    error.contains("mount") && words.iter().any(|words| error.contains(words))
}

/// Whether a driver's error says that the mount point, which kubelet removes only afterwards, is still there
/// (open-local#118).
pub(crate) fn says_still_there(error: &str, volume: &Path) -> bool {
    let words = ["still exist", "already exist", "file exists"];
    let point = volume.join("mount");
    words.iter().any(|words| error.contains(words)) && error.contains(&*point.to_string_lossy())
}

pub(crate) fn not_idempotent(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    let name = name(suspect);
    doubt_after_restart(context, draft, suspect);
    draft.fact("the volume is not mounted", Source::Samples);
    if suspect.pod.before_boot {
        draft.fact(
            "the pod's containers were started before the node's last boot, and none since",
            Source::file("kubelet's directory"),
        );
    }
    let text = suspect.said.map_or("", |(_, said)| said.text.as_str());
    if text.contains("not empty") {
        draft.doubt(
            "whether something was written into the mount point: the error says that a directory \
             is not empty",
        );
    }
    draft.explanation = format!(
        "The volume is no longer mounted, and the CSI driver {name} answers each attempt to \
         unpublish it with an error, although the CSI specification requires success. kubelet \
         retries without end, with pauses of up to two minutes."
    );
    let volume = &suspect.volume;
    if let Some(other) = other_path(suspect) {
        draft.doubt(
            "whether the driver fails at the volume's mount point: its log names another path",
        );
        draft.advice(
            format!("examine {other}, which the driver's log names: the driver may fail there, and not at the mount point"),
            "none",
        );
    }
    if says_still_there(text, &volume.path) {
        let removes = |it: &str| format!("rmdir {it}/mount");
        draft.remedy(
            View::OURS.on_file("remove the empty mount point in", &volume.path, volume.file, removes),
            "low: rmdir fails if anything is in it or mounted on it; kubelet removes it anyway, once the driver has \
             succeeded",
        );
    }
    // A driver that does not know the volume asks for no mount.
    if said::is_not_found(text) {
        find_driver(
            draft,
            "upgrade the driver to a version that succeeds where it does not know the volume",
            "none",
        );
        let named = suspect.record.map(|record| &record.pod);
        forced_deletion::remedy(draft, suspect.pod, named, "");
        draft
            .rule_out(ids::CSI_DRIVER_ERROR, "nothing is mounted, so nothing is left to unpublish");
        return;
    }
    let bind = |it: &str| format!("mkdir -p {it}/mount && mount --bind {it}/mount {it}/mount");
    draft.remedy(
        View::OURS
            .on_file(
                "give the driver an empty mount to unmount in",
                &volume.path,
                volume.file,
                bind,
            )
            .verified_by(format!("! mountpoint -q {}", word(volume.path.join("mount")))),
        "low: an empty directory is mounted on itself, for the driver to unmount at kubelet's \
         next attempt; does not help if the driver fails because it does not know the volume",
    );
    find_driver(
        draft,
        "upgrade the driver to a version that succeeds if nothing is mounted",
        "none",
    );
    draft.rule_out(ids::CSI_DRIVER_ERROR, "nothing is mounted, so nothing is left to unpublish");
}
