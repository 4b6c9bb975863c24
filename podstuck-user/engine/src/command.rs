//! Commands on a path in the mount namespace of a process.
//!
//! In another mount namespace the program is still the node's own: `nsenter` would run the program of the image
//! that the namespace shows, with the rights of the node's root, whatever is in that image.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{self, Path, PathBuf},
};

use crate::{
    model::{
        identity::Component,
        mountinfo::escape,
        object::FileId,
        operation::Operation,
        path::{clip, near, safe, safe_path},
        pod_group::Task,
        remedy::{Does, Remedy, SENTENCE, Unmount, Withheld},
        shell::{self, is_object_name, word},
    },
    tracker::Context,
};

/// The node's name as a word for `kubectl`, if unknown. If it is known, the engine inserts it ([`crate::engine`]):
/// the name of a Node may differ from the host name.
pub(crate) const THIS_NODE: &str = "$(hostname)";

/// The mount namespace in which a command acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// A process in a mount namespace other than the reader's; `None` for the reader's own.
    process: Option<u32>,
    /// A process in that namespace and the namespace's inode number, for a search for holders; `None` if unknown.
    seen_by: Option<(u32, u32)>,
}

impl View {
    /// The node's namespace, in which the reader of a finding runs commands.
    pub(crate) const OURS: Self = Self { process: None, seen_by: None };

    /// The namespace with an inode number, 0 for podstuck's own, through a process in it.
    pub(crate) fn in_namespace(context: &Context<'_>, namespace: u32, pid: u32) -> Self {
        Self::from(context.own_mnt_ns, namespace, pid)
    }

    /// The same, where podstuck's own namespace has the inode number `own`.
    pub(crate) fn from(own: u32, namespace: u32, pid: u32) -> Self {
        let ours = namespace == 0 || namespace == own;
        let inode = if namespace == 0 { own } else { namespace };
        Self { process: (!ours).then_some(pid), seen_by: Some((pid, inode)) }
    }

    /// The caller's namespace. An `umount` has ended before a finding is read; its parent is in the same namespace.
    pub(crate) fn of(context: &Context<'_>, op: &Operation) -> Self {
        let actor = &op.actor;
        let parent = actor.parent.as_ref().filter(|_| actor.component == Component::UmountHelper);
        Self::in_namespace(context, op.mnt_ns, parent.map_or(actor.pid, |parent| parent.pid))
    }

    /// The namespace of an unmount.
    pub(crate) fn of_unmount(unmount: &Unmount) -> Self {
        Self { process: unmount.process, seen_by: unmount.seen_by }
    }

    /// The namespace, as the end of a sentence.
    pub(crate) fn place_name(self) -> String {
        self.process.map(|pid| format!(" in pid {pid}'s mount namespace")).unwrap_or_default()
    }

    /// An action on an object, as a sentence.
    pub(crate) fn says(self, verb: &str, path: &Path) -> String {
        let place = self.place_name();
        // Reserves the length of the longest pid.
        let others = if place.is_empty() { 0 } else { " in pid 4194304's mount namespace".len() };
        let room = SENTENCE.saturating_sub(verb.len() + " ".len() + others);
        format!("{verb} {}{place}", near(path, room))
    }

    /// `mount` or `umount` with its options, on a mount point, if the mount that was seen is still there. The
    /// program itself enters the namespace for its system calls. It would run a helper such as `umount.nfs` from
    /// there, so helpers are disabled.
    pub(crate) fn on_mount(self, words: &str, point: &Path, id: Option<u32>) -> Step {
        let at = word(point);
        let act = match self.process {
            None => format!("{words} {at}"),
            Some(pid) => format!("{words} --internal-only --namespace {pid} {at}"),
        };
        let unmounts = words.starts_with("umount");
        let verb = match words {
            "umount" => "unmount",
            "umount -l" => "detach",
            "umount -f" => "force-unmount",
            "umount -f -l" => "force-detach",
            "mount -o remount,rw" => "remount read-write",
            _ => "remount read-only",
        };
        let does = self.says(verb, point);
        let mut step = Step::guarded(does, act, format!("`{words}` of {}", safe_path(point)));
        // A lazy unmount is never refused.
        let can_be_busy = unmounts && !words.split(' ').any(|word| word == "-l");
        let View { process, seen_by } = self;
        step.unmounts = can_be_busy.then(|| Unmount { process, seen_by, point: point.into() });
        if let Some(id) = id.filter(|_| is_direct(point)) {
            let is_there = self.is_mounted(id, point);
            step.verify = unmounts.then(|| format!("! {is_there}"));
            step.check = Some((is_there, format!("mount {id} is still at {}", safe_path(point))));
        } else if unmounts && self.process.is_none() {
            step.verify = Some(format!("! mountpoint -q {at}"));
        }
        step
    }

    /// Succeeds while a mount is where it was seen. The id alone is not enough: ids are reused, and a mount can move
    /// with a directory above it and be replaced by a link.
    pub(crate) fn is_mounted(self, id: u32, point: &Path) -> String {
        let line = [format!("{id} ").as_bytes(), &escape(point)].concat();
        let line = word(OsStr::from_bytes(&line));
        format!("cut -d\" \" -f1,5 {} | grep -qxF {line}", self.table())
    }

    /// Any other program, on a file or directory, if that is still the object that was seen. Symbolic links on the
    /// path could redirect it, in a container to the node's own files; so the object itself is compared, in a
    /// directory that can no longer be exchanged. `act` receives the name in that directory; `verb` says what it
    /// does to it.
    pub(crate) fn on_file(
        self,
        verb: &str,
        path: &Path,
        file: Option<FileId>,
        act: impl FnOnce(&str) -> String,
    ) -> Step {
        let (above, name) = match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => (above, name),
            _ => (path, OsStr::new(".")),
        };
        let (above, name) = (word(self.place(above)), word(Path::new(".").join(name)));
        let act = act(&name);
        let what = safe_path(path);
        let is_same = file.filter(|_| is_direct(path)).map(|FileId { device, inode }| {
            let check = format!("[ \"$(stat -c %d:%i {name})\" = {device}:{inode} ]");
            (check, format!("{what} is still inode {inode} of device {device}"))
        });
        Step::inside(self.says(verb, path), &above, act, is_same, &what)
    }

    /// The same on a file system, through a mount of it.
    pub(crate) fn on_mounted(
        self,
        verb: &str,
        point: &Path,
        id: Option<u32>,
        act: impl FnOnce(&str) -> String,
    ) -> Step {
        let what = safe_path(point);
        let is_same = id.filter(|_| is_direct(point)).map(|id| {
            let check = format!("grep -q \"^mnt_id:.{id}$\" /proc/self/fdinfo/0 <.");
            (check, format!("{what} still leads to mount {id}"))
        });
        let does = self.says(verb, point);
        Step::inside(does, &word(self.place(point)), act("."), is_same, &what)
    }

    /// A read-only program. In another namespace, a path cannot lead it out of that namespace.
    pub(crate) fn look(
        self,
        verb: &str,
        directory: &Path,
        act: impl FnOnce(&str) -> String,
    ) -> Step {
        let does = self.says(verb, directory);
        let Some(pid) = self.process else { return Step::new(does, act(&word(directory))) };
        let own = "sed -n s/^mnt_id:.//p /proc/self/fdinfo/0 <.";
        let is_there = format!("grep -q \"^$({own}) \" {}", self.table());
        let place = word(self.place(directory));
        let words = format!("the directory is in the mount namespace of process {pid}");
        Step::inside(does, &place, act("\"$PWD\""), Some((is_there, words)), "")
    }

    /// The path as it is reached from the reader's namespace.
    fn place(self, path: &Path) -> PathBuf {
        let Some(pid) = self.process else { return path.into() };
        let below = path.strip_prefix("/").unwrap_or(path);
        PathBuf::from(format!("/proc/{pid}/root")).join(below)
    }

    /// The mount table, for a command that searches it.
    pub(crate) fn table(self) -> String {
        match self.process {
            None => "/proc/self/mountinfo".into(),
            Some(pid) => format!("/proc/{pid}/mountinfo"),
        }
    }
}

/// Whether a path is absolute and has no `..`, so that its beginning says whose object it is.
fn is_direct(at: &Path) -> bool {
    at.is_absolute() && !at.components().any(|part| part == path::Component::ParentDir)
}

/// A command with the check before it and the check of its success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    does: Does,
    act: String,
    /// The check as a command and in words.
    check: Option<(String, String)>,
    /// The namespace in which both run, as a word of the shell.
    inside: Option<String>,
    /// Whether it uses syntax that not every shell supports.
    in_sh: bool,
    /// The command's name and object, if it must not be run without the check.
    unchecked: Option<String>,
    /// The same for a command that harms other users; these users, if known.
    forced: Option<(String, Option<Vec<String>>)>,
    verify: Option<String>,
    /// The mount that it unmounts, if the kernel may refuse that.
    unmounts: Option<Unmount>,
}

impl Step {
    /// A command and its effect: an imperative, such as `restart kubelet.service`.
    pub(crate) fn new(does: impl Into<String>, act: impl Into<String>) -> Self {
        Self {
            does: Does::new(does),
            act: act.into(),
            check: None,
            inside: None,
            in_sh: false,
            unchecked: None,
            forced: None,
            verify: None,
            unmounts: None,
        }
    }

    fn guarded(does: impl Into<String>, act: String, what: String) -> Self {
        Self { unchecked: Some(what), ..Self::new(does, act) }
    }

    fn inside(
        does: String,
        place: &str,
        act: String,
        check: Option<(String, String)>,
        what: &str,
    ) -> Self {
        let inside = Some(place.to_owned());
        let unchecked = Some(format!("a command on {what}"));
        Self { check, inside, unchecked, ..Self::new(does, act) }
    }

    /// Appends the purpose, such as `, which keeps the volume busy`, if the sentence stays short enough.
    pub(crate) fn so(mut self, purpose: &str) -> Self {
        self.does.push(purpose);
        self
    }

    /// Replaces the sentence, for a composed command.
    pub(crate) fn does(mut self, does: impl Into<String>) -> Self {
        self.does = Does::new(does);
        self
    }

    /// Replaces the words for its effect.
    pub(crate) fn called(mut self, what: String) -> Self {
        self.unchecked = self.unchecked.map(|_| what);
        self
    }

    /// Inserts a command between the check and the action.
    pub(crate) fn after(mut self, command: &str) -> Self {
        self.act = format!("{command} && {}", self.act);
        self.in_sh = true;
        self
    }

    /// Repeats an unmount for a minute, while the mount is there: each attempt ends the requests that wait for a server,
    /// and the kernel refuses it until the waiting processes have ended. The unmount of a server's last mount then waits
    /// for it, too, without a mount.
    pub(crate) fn repeated(mut self) -> Self {
        if let Some((check, _)) = &self.check {
            let once = &self.act;
            let each =
                format!("{check} || exit 0; timeout -s KILL 5 {once} 2>/dev/null; sleep 0.2");
            self.act = format!("for i in $(seq 300); do {each}; done && {once}");
            self.in_sh = true;
        }
        self
    }

    /// Appends another command.
    pub(crate) fn then(mut self, other: &Self) -> Self {
        self.act = format!("{} && ({})", self.act, other.script());
        self.in_sh = true;
        // If its check is missing, so is the whole step's.
        if other.check.is_none() && other.unchecked.is_some() {
            (self.check, self.unchecked) = (None, other.unchecked.clone());
        }
        self
    }

    /// Sets the command that succeeds once it has worked.
    pub(crate) fn verified_by(mut self, command: impl Into<String>) -> Self {
        self.verify = Some(command.into());
        self
    }

    /// Adds a check before its own. It does not replace a missing one.
    pub(crate) fn only_if(mut self, check: String, words: String) -> Self {
        self.check = match self.check {
            Some((other, others)) => {
                Some((format!("{check} && {other}"), format!("{words}; {others}")))
            }
            None if self.unchecked.is_some() => None,
            None => Some((check, words)),
        };
        self
    }

    /// Marks a command that takes a file system away from all its users; these users, if known.
    pub(crate) fn forced(mut self, others: Option<Vec<String>>) -> Self {
        let what = self.unchecked.clone().unwrap_or_default();
        self.forced = Some((what, others));
        self
    }

    /// The command line, if it is safe to type.
    pub(crate) fn line(&self) -> Result<shell::Line, shell::Unprintable> {
        // A subshell keeps the reader's working directory.
        shell::line(&self.script(), self.in_sh || self.inside.is_some())
    }

    /// The script, with names as words of [`shell`].
    fn script(&self) -> String {
        let checked = match &self.check {
            Some((check, _)) => format!("{check} && {}", self.act),
            None => self.act.clone(),
        };
        match &self.inside {
            Some(place) => format!("cd {place} && {checked}"),
            None => checked,
        }
    }

    /// The remedy as it is printed.
    pub(crate) fn remedy(self, risk: impl Into<String>) -> Remedy {
        let line = self.line();
        let what = self.unchecked.clone().unwrap_or_else(|| "a command".into());
        let guard = self.check.map(|(_, words)| words);
        // With the numbers, the reader can identify the object.
        let object = guard.as_ref().map(|object| format!(" ({object})")).unwrap_or_default();
        let what = format!("{what}{object}");
        let (forced, others) = self.forced.unzip();
        let others_unknown = others.as_ref().is_some_and(Option::is_none);
        let affects = others.flatten().unwrap_or_default();
        let unmounts = self.unmounts.map(Box::new);
        let line = match line {
            Ok(line) => line,
            Err(why) => {
                let advice = Remedy::advice(format!("{what}: {why}"), risk);
                return Remedy { affects, unmounts, ..advice };
            }
        };
        let withheld = Withheld {
            unchecked: self.unchecked.filter(|_| guard.is_none()),
            forced,
            others_unknown,
            by_xargs: line.by_xargs.then_some(what),
        };
        let verify = self.verify.and_then(|text| shell::line(&text, false).ok());
        let verify = verify.map(|line| line.text);
        let command = Remedy::command(self.does, line.text, risk);
        Remedy { guard, verify, affects, withheld, unmounts, ..command }
    }
}

/// The process or thread that a command must hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process<'a> {
    pid: u32,
    tid: u32,
    /// Start of the thread in ticks since boot, field 22 of its `stat`.
    started: Option<u64>,
    name: Option<&'a str>,
}

impl<'a> Process<'a> {
    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    pub(crate) fn new(pid: u32, started: Option<u64>, name: Option<&'a str>) -> Self {
        Self { pid, tid: pid, started, name }
    }

    pub(crate) fn thread(task: &'a Task) -> Self {
        let Task { pid, tid, started, comm, .. } = task;
        Self { tid: *tid, ..Self::new(*pid, Some(*started), Some(comm)) }
    }

    /// `end backup (pid 77, started 22:27Z)`
    fn object(self, verb: &str) -> Does {
        let name = clip(&safe(self.name.unwrap_or("the process").as_bytes()), NAME);
        let thread =
            if self.pid == self.tid { String::new() } else { format!(", thread {}", self.tid) };
        Does::of_process(format!("{verb} {name} (pid {}{thread}", self.pid), self.started, ")")
    }
}

/// Maximum columns of a name in a sentence.
pub(crate) const NAME: usize = 40;

/// Sends a signal to a process, if it is still the one that was seen.
pub(crate) fn kill(words: &str, process: Process<'_>) -> Step {
    let pid = process.pid;
    let verb = match words {
        "kill" => "end",
        "kill -CONT" => "continue",
        _ => "kill",
    };
    let mut step = if_same(verb, process, format!("{words} {pid}"));
    step.unchecked = Some(format!("`{words}` of process {pid}"));
    if !words.contains("-CONT") {
        step.verify = Some(has_ended(pid));
    }
    step
}

/// Acts on a process, if the thread that was seen still exists: the command may be run an hour later, and ids are
/// reused. The fields before the start in its `stat` may contain any text (proc_pid_stat(5)). `verb` says what is
/// done to it.
pub(crate) fn if_same(verb: &str, process: Process<'_>, act: String) -> Step {
    let Process { pid, tid, started, .. } = process;
    let (of, what) = if pid == tid {
        (format!("/proc/{pid}"), format!("process {pid}"))
    } else {
        (format!("/proc/{pid}/task/{tid}"), format!("thread {tid} of process {pid}"))
    };
    let mut step = Step::guarded("", act, format!("a command on {what}"));
    step.does = process.object(verb);
    step.check = started.map(|ticks| {
        let start = format!("sed \"s/.*) //\" {of}/stat | cut -d\" \" -f20");
        let words = format!("{what} was started {ticks} ticks after the boot");
        (format!("[ \"$({start})\" = {ticks} ]"), words)
    });
    step
}

/// Lists all pods of this node, to find one of them by name.
pub(crate) fn pods_of_node(does: &str) -> Step {
    let list = "kubectl get pods --all-namespaces --field-selector";
    Step::new(does, format!("{list} spec.nodeName={THIS_NODE} -o wide"))
}

/// Removes a pod's containers that have ended, or were never started, from Docker, or only one of them. The label keeps an ID that a log names
/// from being another pod's. `None` if the UID is no word.
pub(crate) fn docker_rm(does: &str, uid: &str, id: Option<&str>) -> Option<Step> {
    let uid = Some(uid).filter(|uid| is_object_name(uid))?;
    let id = id.map(|id| format!(" --filter id={}", word(id))).unwrap_or_default();
    let list = format!(
        "docker ps --all --quiet --filter status=exited --filter status=created --filter status=dead --filter label=io.kubernetes.pod.uid={uid}{id}"
    );
    Some(Step::new(does, format!("{list} | xargs --no-run-if-empty docker rm")))
}

/// The same from a runtime with the CRI. `crictl rm` refuses a container that runs.
pub(crate) fn crictl_rm(does: &str, uid: &str) -> Option<Step> {
    let uid = Some(uid).filter(|uid| is_object_name(uid))?;
    let list =
        format!("crictl ps --all --quiet --state exited --label io.kubernetes.pod.uid={uid}");
    Some(Step::new(does, format!("{list} | xargs --no-run-if-empty crictl rm")))
}

/// Succeeds once a process has ended, shortly after a signal. A zombie is still listed.
pub(crate) fn has_ended(pid: u32) -> String {
    format!("sleep 1; ! grep -qs '^State:.[^XZ]' /proc/{pid}/status")
}

#[cfg(test)]
#[path = "command_shells_tests.rs"]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "commands are pasted into real shells, on files and processes of the test's own"
)]
mod shells_tests;
#[cfg(test)]
#[path = "command_tests.rs"]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "commands are tried as a shell runs them, on files and processes of the test's own"
)]
mod tests;
