//! Commands on a path that is to be found where a process sees it.
//!
//! In another mount namespace the program is still the node's own: `nsenter` would run the one of
//! the image that the namespace shows, whoever made it, with all the rights of the node's root.

use std::path::{Path, PathBuf};

use crate::{
    model::{identity::Component, operation::Operation, path::shell_word, remedy::Remedy},
    tracker::Context,
};

/// Whose view of the mounts counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// A process in another mount namespace than whoever reads the finding; `None` for his own.
    process: Option<u32>,
}

impl View {
    /// The node's, as whoever reads the finding has it.
    pub(crate) const OURS: Self = Self { process: None };

    /// That of a process in a namespace, given by its inode number; 0 for our own.
    pub(crate) fn in_namespace(context: &Context<'_>, namespace: u32, pid: u32) -> Self {
        let ours = namespace == 0 || namespace == context.own_mnt_ns;
        Self { process: (!ours).then_some(pid) }
    }

    /// The caller's. An `umount` has ended before anybody reads about it; whoever started it is in
    /// the same namespace.
    pub(crate) fn of(context: &Context<'_>, op: &Operation) -> Self {
        let actor = &op.actor;
        let parent = actor.parent.as_ref().filter(|_| actor.component == Component::UmountHelper);
        Self::in_namespace(context, op.mnt_ns, parent.map_or(actor.pid, |parent| parent.pid))
    }

    /// `mount` or `umount` with its options, on a mount point, if the mount that was seen is still there.
    /// Both go into the namespace just for their calls; a helper such as `umount.nfs` they would take from
    /// there, so it is left out.
    pub(crate) fn on_mount(self, words: &str, point: &Path, id: Option<u32>) -> Step {
        let (word, table) = (shell_word(point), self.table());
        let act = match self.process {
            None => format!("{words} {word}"),
            Some(pid) => format!("{words} --internal-only --namespace {pid} {word}"),
        };
        let unmounts = words.starts_with("umount");
        let mut step = Step::from(act);
        if let Some(id) = id {
            let is_there = format!("grep -q '^{id} ' {table}");
            step.verify = unmounts.then(|| format!("! {is_there}"));
            step.check = Some((is_there, format!("mount {id} is in {table}")));
        } else if unmounts && self.process.is_none() {
            step.verify = Some(format!("! mountpoint -q {word}"));
        }
        step
    }

    /// Any other program, on a file or directory. It must not resolve the path by its text, as
    /// `realpath` does: `/proc/PID/root` reads as `/`.
    pub(crate) fn on_object(self, words: &str, path: &Path) -> String {
        let Some(pid) = self.process else { return format!("{words} {}", shell_word(path)) };
        let below = path.strip_prefix("/").unwrap_or(path);
        let path = PathBuf::from(format!("/proc/{pid}/root")).join(below);
        format!("{words} {}", shell_word(&path))
    }

    /// The file with the mounts, for a command that searches it.
    pub(crate) fn table(self) -> String {
        match self.process {
            None => "/proc/self/mountinfo".into(),
            Some(pid) => format!("/proc/{pid}/mountinfo"),
        }
    }
}

/// A command, what it checks before it acts, and what shows that it has worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    act: String,
    /// As a command and in words.
    check: Option<(String, String)>,
    verify: Option<String>,
}

impl Step {
    /// With something else to be done before, behind the check.
    pub(crate) fn after(mut self, command: &str) -> Self {
        self.act = format!("{command} && {}", self.act);
        self
    }

    /// With something else to be done afterwards.
    pub(crate) fn then(mut self, command: &str) -> Self {
        self.act = format!("{} && {command}", self.act);
        self
    }

    /// With a command that succeeds once it has worked.
    pub(crate) fn verified_by(mut self, command: impl Into<String>) -> Self {
        self.verify = Some(command.into());
        self
    }

    /// As it is printed.
    pub(crate) fn remedy(self, risk: impl Into<String>) -> Remedy {
        let (line, guard) = match self.check {
            Some((check, words)) => (format!("{check} && {}", self.act), Some(words)),
            None => (self.act, None),
        };
        Remedy { guard, verify: self.verify, ..Remedy::command(line, risk) }
    }
}

impl From<String> for Step {
    fn from(act: String) -> Self {
        Self { act, check: None, verify: None }
    }
}

impl From<&str> for Step {
    fn from(act: &str) -> Self {
        act.to_owned().into()
    }
}

/// Sends a signal to a process, if it is still the one that was seen: whoever reads this may do so an hour
/// later, and ids are given again. `started` is in ticks since boot, field 22 of its `stat`; what precedes
/// may hold anything (proc_pid_stat(5)).
pub(crate) fn kill(words: &str, pid: u32, started: Option<u64>) -> Step {
    let mut step = Step::from(format!("{words} {pid}"));
    step.check = started.map(|ticks| {
        let start = format!("sed 's/.*) //' /proc/{pid}/stat | cut -d' ' -f20");
        let words = format!("process {pid} was started {ticks} ticks after the boot");
        (format!("[ \"$({start})\" = {ticks} ]"), words)
    });
    if !words.contains("-CONT") {
        step.verify = Some(has_ended(pid));
    }
    step
}

/// Succeeds where a process has ended, a moment after it was told to. One that its parent has not waited for
/// is still listed.
pub(crate) fn has_ended(pid: u32) -> String {
    format!("sleep 1; ! grep -qs '^State:.[^XZ]' /proc/{pid}/status")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(step: Step) -> (String, Option<String>) {
        let remedy = step.remedy("low");
        assert_eq!(remedy.guard.is_some(), remedy.command.as_ref().unwrap().contains(" && "));
        (remedy.command.unwrap(), remedy.verify)
    }

    #[test]
    fn a_process_is_named_by_its_start_too() {
        let gone = Some("sleep 1; ! grep -qs '^State:.[^XZ]' /proc/7/status".to_owned());
        assert_eq!(printed(kill("kill", 7, None)), ("kill 7".into(), gone.clone()));
        let guarded =
            "[ \"$(sed 's/.*) //' /proc/7/stat | cut -d' ' -f20)\" = 99 ] && kill -9 7".to_owned();
        assert_eq!(printed(kill("kill -9", 7, Some(99))), (guarded, gone));
        assert_eq!(printed(kill("kill -CONT", 7, None)).1, None);
    }

    #[test]
    fn the_program_is_always_the_nodes() {
        let (plain, odd) = (Path::new("/k/v"), Path::new("/k/a b"));
        let there = View { process: Some(77) };
        for (view, umount, chattr, quoted) in [
            (View::OURS, "umount -l /k/v", "chattr -i /k/v", "chattr -i '/k/a b'"),
            (
                there,
                "umount -l --internal-only --namespace 77 /k/v",
                "chattr -i /proc/77/root/k/v",
                "chattr -i '/proc/77/root/k/a b'",
            ),
        ] {
            assert_eq!(printed(view.on_mount("umount -l", plain, None)).0, umount);
            assert_eq!(view.on_object("chattr -i", plain), chattr);
            assert_eq!(view.on_object("chattr -i", odd), quoted);
        }
        assert_eq!(there.table(), "/proc/77/mountinfo");
    }

    #[test]
    fn a_mount_is_named_by_its_id_too() {
        let there = View { process: Some(77) };
        let (line, verify) = printed(there.on_mount("umount", Path::new("/k"), Some(9)));
        let (is_there, act) = line.split_once(" && ").unwrap();
        assert_eq!(is_there, "grep -q '^9 ' /proc/77/mountinfo");
        assert_eq!(act, "umount --internal-only --namespace 77 /k");
        assert_eq!(verify.unwrap(), format!("! {is_there}"));
        let remount = View::OURS.on_mount("mount -o remount,rw", Path::new("/k"), Some(9));
        assert_eq!(printed(remount).1, None);
    }
}
