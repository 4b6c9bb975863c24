//! Commands on a path that is to be found where a process sees it.
//!
//! In another mount namespace the program is still the node's own: `nsenter` would run the one of
//! the image that the namespace shows, whoever made it, with all the rights of the node's root.

use std::path::Path;

use crate::{
    model::{identity::Component, operation::Operation, path::shell_word},
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

    /// `mount` or `umount` with its options, on a mount point. Both go into the namespace just for
    /// their calls; a helper such as `umount.nfs` they would take from there, so it is left out.
    pub(crate) fn on_mount(self, words: &str, point: &Path) -> String {
        let point = shell_word(point);
        match self.process {
            None => format!("{words} {point}"),
            Some(pid) => format!("{words} --internal-only --namespace {pid} {point}"),
        }
    }

    /// Any other program, on a file or directory. It must not resolve the path by its text, as
    /// `realpath` does: `/proc/PID/root` reads as `/`.
    pub(crate) fn on_object(self, words: &str, path: &Path) -> String {
        let path = shell_word(path);
        let Some(pid) = self.process else { return format!("{words} {path}") };
        // A word in quotes begins with them.
        match path.strip_prefix("$'") {
            Some(quoted) => format!("{words} $'/proc/{pid}/root{quoted}"),
            None => format!("{words} /proc/{pid}/root{path}"),
        }
    }

    /// The file with the mounts, for a command that searches it.
    pub(crate) fn table(self) -> String {
        match self.process {
            None => "/proc/self/mountinfo".into(),
            Some(pid) => format!("/proc/{pid}/mountinfo"),
        }
    }
}

/// Sends a signal to a process, if it is still the one that was seen: whoever reads this may do so an hour
/// later, and ids are given again. `started` is in ticks since boot, field 22 of its `stat`; what precedes
/// may hold anything (proc_pid_stat(5)).
pub(crate) fn kill(words: &str, pid: u32, started: Option<u64>) -> String {
    let Some(started) = started else { return format!("{words} {pid}") };
    format!(
        "[ \"$(sed 's/.*) //' /proc/{pid}/stat | cut -d' ' -f20)\" = {started} ] && {words} {pid}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_its_start_too() {
        assert_eq!(kill("kill", 7, None), "kill 7");
        assert_eq!(
            kill("kill -9", 7, Some(99)),
            "[ \"$(sed 's/.*) //' /proc/7/stat | cut -d' ' -f20)\" = 99 ] && kill -9 7"
        );
    }

    #[test]
    fn the_program_is_always_the_nodes() {
        let (plain, odd) = (Path::new("/k/v"), Path::new("/k/a b"));
        let there = View { process: Some(77) };
        for (view, umount, chattr, quoted) in [
            (View::OURS, "umount -l /k/v", "chattr -i /k/v", "chattr -i $'/k/a b'"),
            (
                there,
                "umount -l --internal-only --namespace 77 /k/v",
                "chattr -i /proc/77/root/k/v",
                "chattr -i $'/proc/77/root/k/a b'",
            ),
        ] {
            assert_eq!(view.on_mount("umount -l", plain), umount);
            assert_eq!(view.on_object("chattr -i", plain), chattr);
            assert_eq!(view.on_object("chattr -i", odd), quoted);
        }
        assert_eq!(there.table(), "/proc/77/mountinfo");
    }
}
