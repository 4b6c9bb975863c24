//! A sandbox's network that cannot be torn down. The CNI plugin's error names the server that it does not reach, or the
//! file that it does not find; or the runtime fails [before](super::network_record) it runs a plugin.

use std::path::{Path, PathBuf};

use crate::{
    causes::{
        runtime::{
            network_record::{self, Fault as RecordFault},
            suspect::Suspect,
            verdict,
        },
        shared::{blamed as by_error, forced_deletion, repeated::tell_first},
    },
    command::{Step, pods_of_node},
    ids,
    model::{
        blamed::{Blamed, Object, Why, blamed},
        chain::Who,
        errno::Errno,
        evidence::Source,
        path::{clip, safe, safe_path},
        said::container_id,
        time::Monotonic,
    },
    verdict::Draft,
};

/// Longest address that is named.
const ADDRESS: usize = 80;
/// The file that iptables locks while it changes rules (iptables, `XT_LOCK_NAME`).
const XTABLES_LOCK: &str = "/run/xtables.lock";

/// What the deletion of the record leaves, in addition.
const NETWORK_STAYS: &str =
    ". The pod's address, and a port or device of the node that its network has, may stay taken";

/// The failure that an error reports.
#[derive(Debug, PartialEq, Eq)]
enum Fault<'a> {
    /// The API server rejects the plugin's credentials.
    Login,
    /// The plugin's program is missing; its name, if the error has it.
    NoProgram(Option<&'a str>),
    /// The runtime has no network configuration.
    NoConfig,
    /// The plugin does not reach its agent on this node; the agent's address or socket, if the error has it.
    Agent(Option<&'a str>),
    /// The file that its agent writes on this node is missing.
    AgentsFile(&'a Path),
    /// Another process holds the lock of iptables.
    Locked,
    /// A server that is not on this node refuses the connection, or its name does not resolve.
    Refuses(&'a str),
    /// A server does not answer in time; its address, if it is not on this node.
    Silent(Option<&'a str>),
    /// The plugin's program ends without an answer.
    Crashes,
    /// The kernel does not run the plugin's program at this path.
    NotRun(&'a str),
    /// The plugin takes it for an error that what it is to remove is gone already.
    NothingLeft,
    /// The file in which the plugin keeps the sandbox's configuration has no content, as after a crash of the node.
    EmptyRecord,
    /// The plugin cannot use the configuration that it has kept of the sandbox, or the network's own.
    BadRecord,
    /// The plugin gives a device a name that the kernel does not take: none, or one that is too long.
    BadName,
    Unknown,
}

impl<'a> Fault<'a> {
    fn of(text: &'a str) -> Self {
        let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
        let address = address(text);
        let is_far = address.is_some_and(|it| !is_local(it));
        if has(&["nauthorized", "forbidden", "x509"]) {
            Self::Login
        } else if let Some((_, rest)) = text.split_once(NO_PROGRAM) {
            Self::NoProgram(program(rest))
        } else if let Some((before, _)) = text.split_once(NOT_PRESENT) {
            let name = before.rsplit_once('(').and_then(|(_, name)| program(name));
            Self::NoProgram(name)
        } else if has(&NO_CONFIG) {
            Self::NoConfig
        } else if let Some(address) = address
            && is_far
            && has(&["connection refused", "no such host"])
        {
            Self::Refuses(address)
        } else if has(&["connection refused", "agent running"]) || is_socket(text) {
            Self::Agent(address.or_else(|| socket(text)))
        } else if text.contains(LOCKED) {
            Self::Locked
        } else if has(&["i/o timeout", "no route to host", "deadline exceeded"]) {
            Self::Silent(address.filter(|_| is_far))
        } else if text.contains(NO_CONTENT) {
            Self::EmptyRecord
        } else if has(&["failed to unmarshal response"]) {
            Self::Agent(None)
        } else if has(&BAD_CONFIGURATION) {
            Self::BadRecord
        } else if text.contains("rename") && text.contains(OUT_OF_RANGE) {
            Self::BadName
        } else if let Some(path) = not_run(text) {
            Self::NotRun(path)
        } else if has(&["netplugin failed", "signal: killed", "panic: "]) {
            Self::Crashes
        } else if let Some(path) = agents_file(text) {
            Self::AgentsFile(path)
        } else if has(&GONE) {
            Self::NothingLeft
        } else {
            Self::Unknown
        }
    }

    fn about(&self) -> About {
        let at = |address: &str| clip(&safe(address.as_bytes()), ADDRESS);
        match self {
            Self::Login => About::says(": the API server does not accept its token or its certificate")
                .released_by(
                    "have the network's agent write the plugin's credentials again: restart its pod on this node (for calico, \
                     calico-node writes /etc/cni/net.d/calico-kubeconfig). Where the network was uninstalled, install it again \
                     until no pod is left that was started with it",
                ),
            Self::NoProgram(name) => {
                let name = name.map(|name| format!(" {}", at(name))).unwrap_or_default();
                About::says(format!(": its program{name} is gone")).released_by(format!(
                    "restore the program{name} in the directory of the runtime's plugins (/opt/cni/bin, unless configured \
                     otherwise): the plugin's DaemonSet or package installs it. If the plugin was uninstalled, its \
                     program must stay until no pod is left that was started with it"
                ))
            }
            Self::NoConfig => About::says(": the runtime no longer has a configuration for it")
                .released_by(
                    "restore the network's configuration in the directory that the runtime reads (/etc/cni/net.d, unless \
                     configured otherwise): the network's DaemonSet writes it when it starts on this node",
                ),
            Self::Agent(None) => About::says(": it cannot connect to its agent on this node")
                .waits_for("its agent on this node")
                .released_by("start the network's agent on this node, or its pod again"),
            Self::Agent(Some(address)) => {
                let address = at(address);
                About::says(format!(": it cannot connect to its agent on this node, at {address}"))
                    .waits_for(format!("its agent on this node, at {address}"))
                    .released_by(format!(
                        "start the network's agent on this node, or its pod again: it must listen at {address}"
                    ))
            }
            Self::AgentsFile(path) => {
                let path = safe_path(path);
                About::says(format!(": the file {path}, which its agent writes on this node, is missing"))
                    .waits_for("its agent on this node")
                    .released_by(format!(
                        "start the network's agent on this node, or its pod again: it writes {path}"
                    ))
            }
            Self::Locked => About::says(format!(
                ": iptables, which it runs, gives up because another process holds {XTABLES_LOCK}"
            ))
            .waits_for(format!("the process that holds {XTABLES_LOCK}"))
            .without_agent(),
            Self::Refuses(address) => {
                About::says(format!(": it cannot connect to {}", at(address))).of_server(&at(address))
            }
            Self::Silent(Some(address)) => {
                About::says(format!(": {} does not answer it in time", at(address)))
                    .of_server(&at(address))
            }
            Self::Silent(None) => About::says(": its server does not answer in time"),
            Self::Crashes => About::says(": its program ends without an answer").released_by(
                "install a version of the plugin that works; the plugin's log shows why it fails, and the kernel's \
                 log whether it was killed",
            ),
            Self::NotRun(path) => {
                let path = at(path);
                About::says(format!(": the kernel does not run its program {path}")).released_by(format!(
                    "replace {path}: the error after its name says why the kernel does not run it, such as a file that is \
                     still written, or for another kind of processor. The plugin's DaemonSet or package installs it"
                ))
            }
            Self::NothingLeft => {
                About::says(": it fails because what it must remove does not exist").released_by(
                    "restore for one attempt what the plugin does not find (its error names it), or install a version of the \
                     plugin whose DEL succeeds where it is gone, as the CNI specification requires",
                )
                .without_agent()
            }
            Self::EmptyRecord => {
                About::says(": the file in which it keeps the sandbox's configuration is empty")
                    .without_agent()
            }
            Self::BadRecord => About::says(
                ": it cannot use its configuration, which Multus keeps in a file of the sandbox and reads before the network's",
            )
            .released_by(
                "move the plugin's file of the sandbox away, if there is one (for Multus: /var/lib/cni/multus/ and the sandbox's \
                 ID), or complete it as its error says: without that file, Multus takes the network's own configuration in \
                 /etc/cni/net.d, which must then be complete",
            )
            .without_agent(),
            Self::BadName => About::says(
                ": it renames a device, and the name is empty, or longer than 15 characters, which the kernel does not take. \
                 A plugin takes that name from its file of the sandbox",
            )
            .released_by(
                "write into the plugin's file of the sandbox the name that the device is to have on this node, of at most 15 \
                 characters: the one that it had before, or any free one",
            )
            .without_agent(),
            Self::Unknown => About::says(""),
        }
    }
}

/// What a finding says of a failure.
#[derive(Debug)]
struct About {
    /// After "does not tear down the network"
    words: String,
    waits_for: Option<String>,
    /// The remedy; `None` where the plugin's agent must act
    way_out: Option<String>,
    /// Whether the network's agent on this node has a part in it
    may_be_agents: bool,
}

impl About {
    fn says(words: impl Into<String>) -> Self {
        Self { words: words.into(), waits_for: None, way_out: None, may_be_agents: true }
    }

    fn waits_for(self, what: impl Into<String>) -> Self {
        Self { waits_for: Some(what.into()), ..self }
    }

    fn released_by(self, way_out: impl Into<String>) -> Self {
        Self { way_out: Some(way_out.into()), ..self }
    }

    fn of_server(self, address: &str) -> Self {
        self.waits_for(format!("the server at {address}")).released_by(format!(
            "restore the server at {address}, or this node's network path to it: the plugin connects to that server"
        ))
    }

    fn without_agent(self) -> Self {
        Self { may_be_agents: false, ..self }
    }
}

/// The error of Multus and flannel for such a file: they take a missing one for success.
const NO_CONTENT: &str = "failed to parse netconf: unexpected end of JSON input";

/// The error of iptables when it does not get its lock in time (iptables, iptables/xshared.c).
const LOCKED: &str = "holding the xtables lock";

/// Errors of libcni and Multus about a configuration that is there and has not what it must have (containernetworking/cni,
/// libcni/conf.go; multus-cni, pkg/multus, `conflistDel`).
const BAD_CONFIGURATION: [&str; 3] = [
    "error parsing configuration",
    "error converting the raw bytes into a conf",
    "failed to unmarshal",
];

/// libcni's error for a missing program (containernetworking/cni, pkg/invoke/find.go).
const NO_PROGRAM: &str = "failed to find plugin ";

/// The same by CNI-Genie (utils, `ParsePodAnnotations`), after the program's name in parentheses.
const NOT_PRESENT: &str = ") is not present in plugin directory";

/// ERANGE: the kernel's answer to a name of a device that is empty or too long (rtnetlink; `IFNAMSIZ`).
const OUT_OF_RANGE: &str = "numerical result out of range";

/// What precedes the name of the plugin that fails: in the error of Multus, that of its delegate; in libcni's
/// (containernetworking/cni, libcni/api.go), the first one's.
const NAMES_PLUGIN: [&str; 3] = ["error invoking DelegateDel - ", "plugin type=", NO_PROGRAM];

/// Errors of plugins that do not find what they are to remove: the kernel's by netlink, and those of their own stores.
const GONE: [&str; 8] = [
    "no such file or directory",
    "no such process",
    "no such device",
    "no such interface",
    "Link not found",
    "Did not find reserved IP",
    "failed to find object",
    "error reading cached NetConf",
];

/// Whether an error is about the socket of a server on this node.
fn is_socket(text: &str) -> bool {
    let words = ["dial unix", "connect: no such file", ".sock: no such", "unix:/"];
    words.iter().any(|words| text.contains(words))
}

/// The missing file of an agent: one that a plugin reads, which is in a directory of its own for the node's running daemons or
/// their state. What belongs to one sandbox is named by its namespace or its ID, and libcni's files have causes of their own.
fn agents_file(text: &str) -> Option<&Path> {
    let Blamed { object: Some(Object::Path(path)), why: Why::Errno(Errno::ENOENT) } = blamed(text)?
    else {
        return None;
    };
    let is_read =
        ["open ", "stat "].iter().any(|call| text.contains(&format!("{call}{}: ", path.display())));
    let is_daemons = ["/run", "/var/run", "/var/lib"].iter().any(|all| path.starts_with(all));
    let of_sandbox = ["netns", "/var/lib/cni", "/cni/sriov"];
    let text = path.to_string_lossy();
    let is_sandboxs =
        of_sandbox.iter().any(|part| text.contains(part)) || container_id(&text).is_some();
    (is_read && is_daemons && !is_sandboxs).then_some(path)
}

/// The socket that a client of Go's or Open vSwitch's did not reach.
fn socket(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("dial unix ").or_else(|| text.split_once("unix:"))?;
    let path = rest.split(": ").next()?;
    path.starts_with('/').then_some(path)
}

/// The program in an error of Go's that no process can be made of it (os/exec).
fn not_run(text: &str) -> Option<&str> {
    let path = text.split_once("fork/exec ")?.1.split(": ").next()?;
    path.starts_with('/').then_some(path)
}

/// The component that must act.
fn plugin(text: &str) -> Who {
    let name = |words: &&str| program(text.rsplit_once(*words)?.1);
    let name = NAMES_PLUGIN.iter().find_map(name);
    let name = name.map(|name| format!(" {}", clip(&safe(name.as_bytes()), ADDRESS)));
    // Multus names a network of several plugins, and not the one that fails.
    let network = text.rsplit_once("error invoking ConflistDel - ").and_then(|it| program(it.1));
    let network =
        network.map(|name| format!(", for the network {}", clip(&safe(name.as_bytes()), ADDRESS)));
    Who::object(format!(
        "the CNI plugin{}{}",
        name.unwrap_or_default(),
        network.unwrap_or_default()
    ))
}

/// The name that follows, in quotes, which may be escaped.
fn program(rest: &str) -> Option<&str> {
    let name = rest.trim_start_matches(['\\', '"']).split(['\\', '"']).next()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (!name.is_empty() && name.chars().all(is_plain)).then_some(name)
}

/// Errors of containerd (go-cni), CRI-O (ocicni) and dockershim without a network configuration.
const NO_CONFIG: [&str; 5] = [
    "cni config uninitialized",
    "cni plugin not initialized",
    "cni config load failed",
    "no network config found",
    "no networks found in",
];

/// Whether an error says that the runtime has no network configuration.
pub(super) fn has_no_configuration(text: &str) -> bool {
    Fault::of(text) == Fault::NoConfig
}

/// The remote address in an error of Go's (net.OpError, net.DNSError).
fn address(text: &str) -> Option<&str> {
    let rest = match text.split_once("dial tcp: lookup ") {
        Some((_, rest)) => rest,
        None => text.split_once("dial tcp ")?.1,
    };
    let word = rest.split_whitespace().next()?.trim_end_matches(':');
    let word = word.rsplit_once("->").map_or(word, |(_, remote)| remote);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "[]:.-_".contains(c);
    (!word.is_empty() && word.chars().all(is_plain)).then_some(word)
}

/// Whether an address is one of this node's own.
fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    matches!(host, "localhost" | "[::1]") || host.starts_with("127.")
}

/// Fills in the finding.
pub(super) fn words(draft: &mut Draft, suspect: &Suspect<'_>) {
    match RecordFault::of(&suspect.logged.said.text) {
        Some(fault) => fault.words(draft, suspect),
        None => plugin_fails(draft, suspect),
    }
    // A virtual machine is in no control group of the pod.
    if suspect.has_own_kernel() != Some(true) {
        let of_draft = draft.target.pod.clone().filter(|_| suspect.to_go.is_some());
        forced_deletion::remedy(draft, suspect.pod, of_draft.as_ref(), NETWORK_STAYS);
    }
}

/// Describes a runtime that does not read the configuration that lies there. It watches the directory by its inode, and so
/// not one that takes its place (containerd internal/cri/server, `cniNetConfSyncer`; ocicni, `monitorConfDir`).
fn not_read(draft: &mut Draft, suspect: &Suspect<'_>, (file, since): &(PathBuf, Monotonic)) {
    verdict::must_act(draft, suspect, "read the network's configuration, which is there");
    verdict::processes(draft, suspect);
    let file = safe_path(file);
    draft.fact_since(format!("{file} is there"), Source::Look("readdir"), *since);
    draft.explanation = format!(
        "The runtime cannot stop the pod's sandbox: it says that it has no network configuration, but {file} lies in the \
         directory in which runtimes look, and lay there at the runtime's last attempt. The runtime has not read it, as where \
         that directory was removed and made again: it goes on watching the old one. kubelet retries, and keeps the pod until \
         the sandbox is stopped."
    );
    verdict::restart(draft, suspect);
    draft.advice(
        "if it still says so after its restart, its log has why it does not take the file, or another directory is \
         configured",
        "none",
    );
    draft.rule_out(ids::NETNS_BUSY, "the runtime fails before any mount is removed");
    draft.rule_out(ids::RUNTIME_COMMAND_HUNG, "the runtime runs no plugin");
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the runtime knows the sandbox, and fails only at its network",
    );
    draft.doubt("whether the runtime is configured for that directory, and takes the file");
}

fn plugin_fails(draft: &mut Draft, suspect: &Suspect<'_>) {
    if let Some(unread) = suspect.unread {
        not_read(draft, suspect, unread);
        return;
    }
    let fault = Fault::of(&suspect.logged.said.text);
    draft.held_by(plugin(&suspect.logged.said.text));
    draft.must = Some("succeed");
    let about = fault.about();
    draft.waits_for = about.waits_for;
    verdict::processes(draft, suspect);
    draft.explanation = format!(
        "The runtime cannot stop the pod's sandbox because its CNI plugin does not tear down the network{}. kubelet \
         retries, and keeps the pod until that succeeds.",
        about.words
    );
    // An attempt that fails half-way may leave less than the plugin requires at the next one.
    let first = suspect.logged.first_error();
    tell_first(draft, first);
    match first.filter(|_| fault == Fault::NothingLeft) {
        Some(_) => {
            draft.advice(
                "repair what the error of the first attempt names, and restore for one attempt what the plugin does not find \
                 since",
                "none; without the first, the next attempt fails with that error again",
            );
        }
        None => {
            let then = "none; kubelet's next attempt then succeeds";
            let named = || by_error::way_out(&suspect.logged.said.text);
            if let Some(way_out) = about.way_out.or_else(named) {
                draft.advice(way_out, then);
            }
        }
    }
    if let Some(sandbox) = suspect.container().filter(|_| fault == Fault::EmptyRecord) {
        let remove = network_record::remove_empty(&format!("*{sandbox}*"));
        draft.remedy(
            Step::new("remove the plugin's empty file of the sandbox", remove),
            "low: an empty file has nothing to lose; the plugin then succeeds without it",
        );
    }
    if fault == Fault::Locked {
        let show = "show the process that holds the lock of iptables";
        draft.remedy(
            Step::new(show, format!("fuser -v {XTABLES_LOCK}")),
            "none; once that process ends, kubelet's next attempt succeeds",
        );
    }
    let is_kept = matches!(fault, Fault::BadName | Fault::BadRecord);
    if let Some(sandbox) = suspect.container().filter(|_| is_kept) {
        let find = format!("find /var/lib/cni -type f -name '*{sandbox}*' -ls");
        draft.remedy(Step::new("list what the plugins keep of the sandbox", find), "none");
    }
    if about.may_be_agents {
        draft.remedy(
            pods_of_node("list the pods of this node, which include the network's agent"),
            "none; once the agent works again, kubelet's next attempt succeeds",
        );
    }
    let show = "show whether the plugin's configuration and program exist";
    draft.remedy(Step::new(show, "ls -l /etc/cni/net.d /opt/cni/bin"), "none");
    draft.rule_out(ids::NETNS_BUSY, "the plugin itself fails, before any mount is removed");
    draft.rule_out(ids::RUNTIME_COMMAND_HUNG, "the plugin has returned with an error");
    draft.rule_out(
        ids::SHIM_OR_CONTAINERD_STATE_LOST,
        "the runtime knows the sandbox, and fails only at its network",
    );
    draft.doubt("whether the plugin still fails: the log shows only past attempts");
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
