//! A command that a component has started for a pod and that does not return.

use super::Followed;
use crate::model::{
    client::Request,
    time::Monotonic,
    waiting::{On, Part, Waiting},
};

/// Subcommands of OCI runtimes, and commands of CNI plugins.
const VERBS: [&str; 11] = [
    "create", "delete", "kill", "pause", "resume", "start", "state", "update", "ADD", "CHECK",
    "DEL",
];

/// Servers whose end interrupts the node, or that have causes of their own.
const NEEDED: [&str; 10] = [
    "systemd",
    "init",
    "dbus-daemon",
    "dbus-broker",
    "dbus-broker-lau",
    "systemd-udevd",
    "kubelet",
    "containerd",
    "dockerd",
    "crio",
];

/// A command that a component has started for a pod and that does not return.
pub(crate) struct HungCommand<'a> {
    /// The component.
    pub(crate) by: &'a Waiting,
    /// The command.
    pub(crate) command: &'a Waiting,
    /// When it was started.
    pub(crate) since: Monotonic,
    /// The chain from the component to the last process.
    pub(crate) followed: Followed<'a>,
}

impl HungCommand<'_> {
    /// Whether it is an OCI runtime or a CNI plugin.
    pub(super) fn is_runtimes(&self) -> bool {
        self.command.command.rsplit(' ').next().is_some_and(|verb| VERBS.contains(&verb))
    }

    /// The server at the end of the chain that does not answer on a socket of this node, and whether it has left unread what
    /// was sent, or not accepted the connection; else it only has not answered. None if it waits for something itself, or if
    /// the node needs it.
    pub(crate) fn silent_server(&self) -> Option<(&Waiting, bool)> {
        let server = self.followed.last.filter(|it| it.part == Part::Other && it.on.is_empty())?;
        let before = self.followed.before_last?;
        let on = before.on.iter().find(|on| on.other() == Some(server.pid))?;
        let On::Socket { request, .. } = on else { return None };
        let program = server.command.split(' ').next().unwrap_or_default();
        let may_end = server.pid != 1 && server.state == 'S' && !NEEDED.contains(&program);
        may_end.then_some((server, *request != Request::Read))
    }

    /// Whether a thread of the component waits for its end.
    pub(super) fn is_waited_for(&self) -> bool {
        let pid = self.command.pid;
        let is_it =
            |on: &On| matches!(on, On::Child { pid: of, is_waited_for: true } if *of == pid);
        self.by.on.iter().any(is_it)
    }
}
