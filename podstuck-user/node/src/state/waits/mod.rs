//! What the processes that must act for a pod wait for, from one to the next: children, locks, local sockets, TCP
//! connections, pipes. Nothing is sent to any of them, and no file but those of `/proc` is opened.

mod in_kernel;
mod locks;
mod network_plugin;

use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    rc::Rc,
};

use anyhow::Result;
use podstuck_confine::{
    helper::{Question, Share, Teller, ask},
    proc::{self, Stat},
    role::Role,
    silent,
};
use podstuck_model::{
    client::Request,
    identity::Component,
    path::safe,
    query::{FollowWaits, NoAnswer},
    waiting::{Key, On, Part, Waiting},
};

use self::{locks::Waiter, network_plugin::Plugin};
use super::{
    asked::{AsWhom, Asked, Helped, in_thread},
    blocked::{self, Blocked},
    clients, kernel_locks,
    sockets::{self, descriptors},
    tcp::{self, Connection, State},
    unix_diag::{self, Socket},
};
use crate::identity::{cgroup::group_of, living::Living};

/// Processes that are looked at.
const MOST: usize = 24;
/// How far from one that must act.
const HOPS: usize = 8;
/// Things that one process may wait for, of each kind.
const OF_ONE: usize = 8;
/// What is read of a command line.
const LINE: usize = 4096;
/// What is read of a namespace's TCP sockets: those of ten thousand connections.
const TABLE: u64 = 2 << 20;

/// Programs that do one thing and end.
const TASKS: [&str; 24] = [
    "runc",
    "crun",
    "youki",
    "runsc",
    "docker-runc",
    "mount",
    "umount",
    "fusermount",
    "fusermount3",
    "fuser",
    "nsenter",
    "iptables",
    "ip6tables",
    "ip",
    "nft",
    "cryptsetup",
    "dmsetup",
    "lvchange",
    "iscsiadm",
    "multipath",
    "fsck",
    "losetup",
    "blkid",
    "systemctl",
];
/// What a runtime's program is to do, the first of these among its arguments.
const VERBS: [&str; 11] = [
    "create", "delete", "events", "exec", "kill", "pause", "resume", "run", "start", "state",
    "update",
];

impl Asked for FollowWaits {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<Vec<Waiting>, NoAnswer> {
        let look = move || {
            let mut found = ask(Helped(self))?;
            // The probes' locks are known to this process alone.
            for waiting in found.iter_mut().filter(|it| it.state == 'D') {
                waiting.lock = kernel_locks::holders(waiting.pid);
            }
            Ok(found)
        };
        in_thread(share, look).await.flatten()
    }
}

impl Question for Helped<FollowWaits> {
    const ROLE: Role = Role::Helper;
    type Step = ();
    type Part = ();
    type Answer = Vec<Waiting>;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Vec<Waiting>> {
        let node = Node::look();
        let names: HashSet<&[u8]> = self.0.names.iter().map(|name| name.as_bytes()).collect();
        let found = node.all.keys().copied().filter(|pid| is_shim_of(*pid, &self.0.names));
        let shims: BTreeSet<u32> = self.0.shims.iter().copied().chain(found).collect();
        Ok(node.follow(&shims, &self.0.daemons, &self.0.tasks, &names))
    }
}

/// A shim whose command line has one of these names.
fn is_shim_of(pid: u32, names: &[String]) -> bool {
    let place = process(pid);
    let comm = proc::comm(&place);
    if !comm.starts_with(b"containerd-shim") && !comm.starts_with(b"conmon") {
        return false;
    }
    let is_part =
        |living: Living| matches!(living.component(), Component::ContainerdShim | Component::CriO);
    if !Living::look(&place).is_some_and(is_part) {
        return false;
    }
    let line = proc::command_line(&place, LINE).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| names.iter().any(|name| name.as_bytes() == word))
}

fn process(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// What is the same for all of them.
struct Node {
    all: BTreeMap<u32, Stat>,
    waiters: Vec<Waiter>,
    /// Processes with an exclusive lock of flock(2).
    lockers: BTreeSet<u32>,
    sockets: OnceCell<Vec<Socket>>,
    /// Who has a socket or a pipe open, by the text of the link.
    owners: OnceCell<HashMap<String, Vec<u32>>>,
    network: Option<PathBuf>,
    /// The TCP sockets of each network namespace.
    connections: RefCell<HashMap<PathBuf, Rc<[Connection]>>>,
    /// What each process was started for, if it is a CNI plugin.
    plugins: RefCell<HashMap<u32, Option<Rc<Plugin>>>>,
}

impl Node {
    fn look() -> Self {
        let all =
            proc::processes().into_iter().filter_map(|pid| Some((pid, Stat::read(&process(pid))?)));
        let locks = fs::read("/proc/locks").unwrap_or_default();
        Self {
            all: all.collect(),
            waiters: locks::waiters(&locks),
            lockers: locks::exclusive(&locks),
            sockets: OnceCell::new(),
            owners: OnceCell::new(),
            network: proc::namespace(Path::new("/proc/self"), "net"),
            connections: RefCell::default(),
            plugins: RefCell::default(),
        }
    }

    fn plugin(&self, pid: u32) -> Option<Rc<Plugin>> {
        let look = || Plugin::look(&process(pid)).map(Rc::new);
        self.plugins.borrow_mut().entry(pid).or_insert_with(look).clone()
    }

    fn follow(
        &self,
        shims: &BTreeSet<u32>,
        daemons: &[u32],
        tasks: &[u32],
        names: &HashSet<&[u8]>,
    ) -> Vec<Waiting> {
        let first = shims.iter().map(|pid| (*pid, Part::Shim));
        let first = first.chain(daemons.iter().map(|pid| (*pid, Part::Daemon)));
        let first = first.chain(tasks.iter().map(|pid| (*pid, Part::Container)));
        let mut queue: VecDeque<(u32, Part, usize)> =
            first.map(|(pid, part)| (pid, part, 0)).collect();
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        while let Some((pid, part, hops)) = queue.pop_front() {
            if found.len() >= MOST || !seen.insert(pid) {
                continue;
            }
            let Some(mut waiting) = self.waiting(pid, part) else { continue };
            waiting.on = self.on(pid, part);
            match part {
                // Of one that works for all, only what is about this pod.
                Part::Daemon => waiting.on.retain(|on| match on {
                    On::Child { pid, .. } => self.names_one(*pid, names),
                    On::Socket { peer, .. } => {
                        peer.is_some_and(|peer| shims.contains(&peer) || daemons.contains(&peer))
                    }
                    On::Lock { .. } => true,
                    On::Pipe { .. } | On::Connection { .. } | On::Kernel { .. } => false,
                }),
                // One that serves many is late with the answers of some.
                Part::Other => {
                    let is_socket =
                        |on: &&On| matches!(on, On::Socket { .. } | On::Connection { .. });
                    let peers: BTreeSet<Key> =
                        waiting.on.iter().filter(is_socket).map(On::end).collect();
                    if peers.len() > 1 {
                        waiting.on.retain(|on| !is_socket(&on));
                    }
                }
                Part::Shim | Part::Task | Part::Container => {}
            }
            if hops < HOPS {
                queue.extend(waiting.on.iter().filter_map(|on| {
                    let next = match on {
                        On::Child { .. } if part == Part::Container => Part::Container,
                        On::Child { .. } => Part::Task,
                        _ => Part::Other,
                    };
                    Some((on.other()?, next, hops + 1))
                }));
            }
            found.push(waiting);
        }
        found
    }

    fn names_one(&self, pid: u32, names: &HashSet<&[u8]>) -> bool {
        if let Some(plugin) = self.plugin(pid) {
            return plugin.names_one(names);
        }
        let line = proc::command_line(&process(pid), LINE).unwrap_or_default();
        names.iter().any(|name| line.windows(name.len().max(1)).any(|part| part == *name))
    }

    fn waiting(&self, pid: u32, part: Part) -> Option<Waiting> {
        let Stat { state, started, .. } = self.all.get(&pid)?;
        let place = process(pid);
        let line = proc::command_line(&place, LINE).unwrap_or_default();
        let channel = silent::read(&place, |place| fs::read(place.join("wchan")).ok());
        let channel = channel.filter(|name| !name.is_empty() && name != b"0");
        Some(Waiting {
            pid,
            started: *started,
            command: match self.plugin(pid) {
                Some(plugin) => format!("{} {}", safe(&proc::comm(&place)), plugin.command),
                None => command(&proc::comm(&place), &line),
            },
            state: *state,
            channel: channel.map(|name| safe(&name).into_owned()),
            part,
            on: Vec::new(),
            lock: Vec::new(),
        })
    }

    fn on(&self, pid: u32, part: Part) -> Vec<On> {
        let (place, blocked) = (process(pid), blocked::threads(pid));
        let links = silent::read(&place, |process| Some(descriptors(process))).unwrap_or_default();
        let mut on = self.lock(pid, &place, &blocked);
        if part == Part::Daemon {
            on.extend(self.database(pid, &place));
        }
        on.extend(self.children(pid, part, &blocked).into_iter().take(OF_ONE));
        let own: HashSet<u64> =
            links.iter().filter_map(|link| sockets::socket_inode(link.to_str()?)).collect();
        if let Some(network) = proc::namespace(&place, "net").filter(|_| !own.is_empty()) {
            let asks = match part {
                // Of a command with one connection, the answer is to come on it.
                Part::Task => own.clone(),
                Part::Container => read_by_main(pid, &place, &blocked),
                // A daemon has connections that nothing is to come on.
                _ => HashSet::new(),
            };
            // The kernel lists local sockets of this network alone.
            if self.network.as_ref() == Some(&network) {
                on.extend(self.sockets(pid, &asks, &own).into_iter().take(OF_ONE));
            }
            if part != Part::Daemon {
                let all = self.connections_of(&place, network);
                on.extend(self.connections(pid, &asks, &own, &all).into_iter().take(OF_ONE));
            }
        }
        let is_in_container = part == Part::Container;
        if is_in_container {
            on.extend(in_kernel::sleeps(pid, &blocked).into_iter().take(OF_ONE));
        }
        if part == Part::Task || is_in_container {
            // Most threads of a server wait for what to do.
            let counts = |(tid, on): &&(u32, Blocked)| {
                !is_in_container || *tid == pid || matches!(on, Blocked::Writes(_))
            };
            let blocked = blocked.iter().filter(counts).map(|(_, on)| *on);
            on.extend(self.pipes(pid, &place, blocked).into_iter().take(OF_ONE));
        }
        on
    }

    fn lock(&self, pid: u32, place: &Path, blocked: &[(u32, Blocked)]) -> Vec<On> {
        let Some(waiter) = self.waiters.iter().find(|waiter| waiter.pid == pid) else {
            return Vec::new();
        };
        let file = blocked.iter().find_map(|(_, blocked)| match blocked {
            Blocked::Locks(descriptor) => link(place, *descriptor),
            _ => None,
        });
        let holder = waiter.holder.filter(|holder| self.all.get(holder).is_some_and(Stat::lives));
        vec![On::Lock { file: file.filter(|file| file.is_absolute()), holder }]
    }

    /// The lock on a database that another process has, and that this one tries to get again and again: bbolt, with which
    /// containerd keeps its data, does not wait in the kernel (`flock` in bolt_unix.go). It has the file open without a lock.
    fn database(&self, pid: u32, place: &Path) -> Option<On> {
        let mut free = locks::databases(place).into_iter().filter(|it| !it.is_locked).peekable();
        free.peek()?;
        let of = proc::namespace(place, "mnt")?;
        let others = self.lockers.iter().filter(|other| **other != pid);
        let others =
            others.filter(|other| proc::namespace(&process(**other), "mnt") == Some(of.clone()));
        let held: Vec<(u32, Vec<locks::Database>)> =
            others.map(|other| (*other, locks::databases(&process(*other)))).collect();
        free.find_map(|own| {
            let is_it = |it: &locks::Database| it.is_locked && it.file == own.file;
            let (holder, _) = held.iter().find(|(_, all)| all.iter().any(is_it))?;
            Some(On::Lock { file: Some(own.file), holder: Some(*holder) })
        })
    }

    /// Those that work for it: a container's first process is in namespaces and a control group of its own.
    fn children(&self, pid: u32, part: Part, blocked: &[(u32, Blocked)]) -> Vec<On> {
        let waits = |child: u32| {
            let is_for = |of: &Option<u32>| of.is_none_or(|of| of == child);
            blocked.iter().any(|(_, it)| matches!(it, Blocked::Child(of) if is_for(of)))
        };
        let own = kind(pid);
        let children = self.all.iter().filter(|(_, stat)| stat.parent == pid && stat.lives());
        let children = children.filter(|(child, _)| own.is_some() && kind(**child) == own);
        let found = children.filter_map(|(child, _)| {
            let is_waited_for = waits(*child);
            let place = process(*child);
            let is_oci = || {
                part == Part::Shim
                    && is_oci_runtime(&proc::command_line(&place, LINE).unwrap_or_default())
            };
            let is_task = is_task(&proc::comm(&place)) || self.plugin(*child).is_some() || is_oci();
            let works_for_it = !matches!(part, Part::Other | Part::Container);
            let counts = is_waited_for || is_task && works_for_it;
            counts.then_some(On::Child { pid: *child, is_waited_for })
        });
        found.collect()
    }

    /// Waits on local sockets; those of `asks` also where the other end has read all that was sent.
    fn sockets(&self, pid: u32, asks: &HashSet<u64>, own: &HashSet<u64>) -> Vec<On> {
        let all = self.sockets.get_or_init(|| unix_diag::all().unwrap_or_default());
        let of: HashMap<u64, &Socket> = all.iter().map(|socket| (socket.inode, socket)).collect();
        let mut found = Vec::new();
        for socket in all.iter().filter(|socket| own.contains(&socket.inode)) {
            let number = socket.inode;
            if let Some(listener) = all.iter().find(|it| it.pending.contains(&number)) {
                found.push(On::Socket {
                    number,
                    path: self.path(listener.inode, None),
                    peer: self.owner(listener.inode, pid),
                    request: Request::Pending,
                    unread: 0,
                });
                continue;
            }
            let Some(peer) = socket.peer.filter(|peer| *peer != 0 && !own.contains(peer)) else {
                continue;
            };
            let unread = of.get(&peer).map(|peer| peer.unread);
            let is_unread = unread.map_or(socket.unsent, |unread| unread) > 0;
            if !is_unread && !asks.contains(&number) {
                continue;
            }
            let owner = self.owner(peer, pid);
            found.push(On::Socket {
                number,
                path: self.path(peer, owner),
                peer: owner,
                request: if is_unread { Request::Unread } else { Request::Read },
                unread: unread.unwrap_or_default(),
            });
        }
        found
    }

    fn connections_of(&self, place: &Path, network: PathBuf) -> Rc<[Connection]> {
        let mut known = self.connections.borrow_mut();
        let all = known.entry(network).or_insert_with(|| {
            let tables = ["tcp", "tcp6"].into_iter().filter_map(|table| {
                let mut text = Vec::new();
                let file = fs::File::open(place.join("net").join(table)).ok()?;
                file.take(TABLE).read_to_end(&mut text).ok()?;
                Some(tcp::connections(&text))
            });
            tables.flatten().collect()
        });
        all.clone()
    }

    /// The same of TCP connections.
    fn connections(
        &self,
        pid: u32,
        asks: &HashSet<u64>,
        own: &HashSet<u64>,
        all: &[Connection],
    ) -> Vec<On> {
        let is_own = |it: &&Connection| own.contains(&it.inode);
        let mut found = Vec::new();
        for it in all.iter().filter(is_own) {
            let other = all.iter().find(|other| {
                (other.local, other.remote) == (it.remote, it.local)
                    && other.state != State::Listens
            });
            if other.is_some_and(|other| own.contains(&other.inode)) {
                continue;
            }
            let is_retried = it.retries > 0 || it.is_closed;
            let (request, unread) = match (it.state, other) {
                (State::SynSent, _) if it.retries > 0 => (Request::Pending, 0),
                (State::Established, Some(other)) if other.inode == 0 => (Request::Pending, 0),
                (State::Established, Some(other)) if other.unread > 0 => {
                    (Request::Unread, other.unread)
                }
                (State::Established, _) if is_retried && it.unacknowledged > 0 => {
                    (Request::Unread, it.unacknowledged)
                }
                (State::Established, _) if asks.contains(&it.inode) => (Request::Read, 0),
                _ => continue,
            };
            let listens = || {
                let mut all = all.iter().filter(|at| at.state == State::Listens);
                let is_it = |at: &&Connection| at.local.port() == it.remote.port();
                all.find(is_it).filter(|_| other.is_some())
            };
            let end = other.filter(|other| other.inode != 0).or_else(listens);
            found.push(On::Connection {
                number: it.inode,
                remote: it.remote,
                peer: end.and_then(|end| self.owner(end.inode, pid)),
                request,
                unread,
                retries: it.retries,
            });
        }
        found
    }

    fn pipes(&self, pid: u32, place: &Path, blocked: impl Iterator<Item = Blocked>) -> Vec<On> {
        let found = blocked.filter_map(|blocked| {
            let (descriptor, reads) = match blocked {
                Blocked::Reads(descriptor) => (descriptor, true),
                Blocked::Writes(descriptor) => (descriptor, false),
                _ => return None,
            };
            let link = link(place, descriptor)?;
            let text = link.to_str()?;
            let number = text.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()?;
            let mut others = self.owners().get(text).cloned().unwrap_or_default();
            others.retain(|other| *other != pid);
            others.truncate(OF_ONE);
            (!others.is_empty()).then_some(On::Pipe { number, reads, others })
        });
        found.collect()
    }

    /// Path of the server's end, in the mount namespace of the process that has it.
    fn path(&self, number: u64, owner: Option<u32>) -> Option<PathBuf> {
        let table = sockets::table_for(&owner.map_or_else(|| "/proc/self".into(), process));
        let mut all = table.connected.into_iter().chain(table.listening);
        all.find(|socket| socket.inode == number).map(|socket| socket.path)
    }

    /// Who has the other end: the first process keeps sockets that it has handed on.
    fn owner(&self, number: u64, but: u32) -> Option<u32> {
        let all = self.owners().get(&format!("socket:[{number}]"))?;
        let mut all: Vec<u32> = all.iter().copied().filter(|pid| *pid != but).collect();
        all.sort_by_key(|pid| (*pid == 1, *pid));
        all.first().copied()
    }

    fn owners(&self) -> &HashMap<String, Vec<u32>> {
        self.owners.get_or_init(|| {
            let mut owners: HashMap<String, Vec<u32>> = HashMap::new();
            for pid in self.all.keys() {
                let links = silent::read(&process(*pid), |process| Some(descriptors(process)));
                for link in links.unwrap_or_default() {
                    let Some(text) = link.to_str() else { continue };
                    if text.starts_with("socket:[") || text.starts_with("pipe:[") {
                        let of = owners.entry(text.to_owned()).or_default();
                        if of.last() != Some(pid) {
                            of.push(*pid);
                        }
                    }
                }
            }
            owners
        })
    }
}

/// What a process shares with those that work for it: its PID namespace and its control group.
fn kind(pid: u32) -> Option<(PathBuf, String)> {
    let place = process(pid);
    Some((proc::namespace(&place, "pid")?, group_of(&place)?))
}

/// A program that does one thing and ends, such as a helper of mount(8) or umount(8) for a type of file system.
fn is_task(comm: &[u8]) -> bool {
    let is_helper = comm.starts_with(b"mount.") || comm.starts_with(b"umount.");
    is_helper || TASKS.iter().any(|task| task.as_bytes() == comm)
}

/// Whether a command line is that of an OCI runtime, whatever its program: one around runc, such as `sysbox-runc` or
/// `nvidia-container-runtime`, takes runc's arguments. containerd's go-runc and conmon give it an option for all commands
/// before the verb.
fn is_oci_runtime(line: &[u8]) -> bool {
    let mut has_option = false;
    for word in line.split(|byte| *byte == 0).skip(1) {
        if VERBS.iter().any(|verb| verb.as_bytes() == word) {
            return has_option;
        }
        has_option |= word.starts_with(b"--root") || word.starts_with(b"--log");
    }
    false
}

/// The sockets that the main thread reads from now.
fn read_by_main(pid: u32, place: &Path, blocked: &[(u32, Blocked)]) -> HashSet<u64> {
    let reads = blocked.iter().filter(|(tid, _)| *tid == pid).filter_map(|(_, on)| match on {
        Blocked::Reads(descriptor) => Some(*descriptor),
        _ => None,
    });
    let links = reads.filter_map(|descriptor| link(place, descriptor));
    links.filter_map(|link| sockets::socket_inode(link.to_str()?)).collect()
}

fn link(place: &Path, descriptor: u64) -> Option<PathBuf> {
    let file = format!("fd/{descriptor}");
    silent::read(place, |place| fs::read_link(place.join(file)).ok())
}

/// The program, with its verb where that is known; its own name for itself where that is another.
fn command(comm: &[u8], line: &[u8]) -> String {
    let comm = safe(comm).into_owned();
    let Some(command) = clients::command(line).filter(|it| it.starts_with(&comm)) else {
        return comm;
    };
    let words = || line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
    let verb = words().skip(1).find(|word| VERBS.contains(word));
    match verb.filter(|_| TASKS.contains(&command.as_str()) || is_oci_runtime(line)) {
        Some(verb) => format!("{command} {verb}"),
        None => command,
    }
}

#[cfg(test)]
mod tests;
