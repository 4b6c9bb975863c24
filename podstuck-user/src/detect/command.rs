//! Commands on a path that is to be found where a process sees it.
//!
//! In another mount namespace the program is still the node's own: `nsenter` would run the one of
//! the image that the namespace shows, whoever made it, with all the rights of the node's root.

use std::path::Path;

use crate::{
    model::{identity::Component, operation::Operation, path::shell_word},
    state::namespaces,
};

/// Whose view of the mounts counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Inode number of its mount namespace, 0 for our own.
    pub(super) namespace: u32,
    /// A process in it.
    pub(super) pid: u32,
}

impl View {
    /// The node's, as whoever reads the finding has it.
    pub(super) const OURS: Self = Self { namespace: 0, pid: 0 };

    /// The caller's. An `umount` has ended before anybody reads about it; whoever started it is in
    /// the same namespace.
    pub(super) fn of(op: &Operation) -> Self {
        let actor = &op.actor;
        let parent = actor.parent.as_ref().filter(|_| actor.component == Component::UmountHelper);
        Self { namespace: op.mnt_ns, pid: parent.map_or(actor.pid, |parent| parent.pid) }
    }

    fn is_ours(self) -> bool {
        self.namespace == 0 || Some(self.namespace) == namespaces::of_process(std::process::id())
    }

    /// `mount` or `umount` with its options, on a mount point. Both go into the namespace just for
    /// their calls; a helper such as `umount.nfs` they would take from there, so it is left out.
    pub(super) fn on_mount(self, words: &str, point: &Path) -> String {
        let point = shell_word(point);
        if self.is_ours() {
            return format!("{words} {point}");
        }
        format!("{words} --internal-only --namespace {} {point}", self.pid)
    }

    /// Any other program, on a file or directory. It must not resolve the path by its text, as
    /// `realpath` does: `/proc/PID/root` reads as `/`.
    pub(super) fn on_object(self, words: &str, path: &Path) -> String {
        let path = shell_word(path);
        if self.is_ours() {
            return format!("{words} {path}");
        }
        // A word in quotes begins with them.
        match path.strip_prefix("$'") {
            Some(quoted) => format!("{words} $'/proc/{}/root{quoted}", self.pid),
            None => format!("{words} /proc/{}/root{path}", self.pid),
        }
    }

    /// The file with the mounts, for a command that searches it.
    pub(super) fn table(self) -> String {
        if self.is_ours() {
            return "/proc/self/mountinfo".into();
        }
        format!("/proc/{}/mountinfo", self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_always_the_nodes() {
        let (plain, odd) = (Path::new("/k/v"), Path::new("/k/a b"));
        let there = View { namespace: 5, pid: 77 };
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
