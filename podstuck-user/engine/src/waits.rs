//! The waits of the processes that must act for the pod in question, from one process to the next. A link requires a
//! lasting fact: a child that has not ended, a lock held by another process, bytes that the peer does not read.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use jiff::Timestamp;

mod hung;

pub(crate) use hung::HungCommand;

use crate::{
    kernel_lock,
    model::{
        chain::{Link, Who},
        client::Request,
        kernel_lock::LockHolder,
        node::NodeSample,
        path::{safe, safe_path},
        pod_group::{PodGroup, Task},
        said::{Said, container_id},
        stuck::StuckThread,
        time::{Clock, Monotonic},
        tracker_id::TrackerId,
        waiting::{Key, On, Part, Waiting},
    },
    query::{FollowWaits, NoAnswer, Query},
    wait_channel,
};

/// Interval of the scans, each of which reads the descriptors of all processes.
const EVERY: Duration = Duration::from_secs(2);
/// A dropped query is not answered: time until the next one.
const LOST: Duration = Duration::from_secs(30);
/// A process that makes progress waits for less than this.
const LASTS: Duration = Duration::from_secs(3);
/// On a busy connection, several scans in a row may find unread bytes, each time others.
const UNREAD_LASTS: Duration = Duration::from_secs(5);
/// Maximum number of containers whose shims are searched for.
const CONTAINERS: usize = 16;
/// Maximum number of a pod's processes that are followed.
const TASKS: usize = 4;
/// Maximum number of named processes that have a pipe open.
const NAMED: usize = 3;
/// The reason to expect an answer on a connection.
const ONLY: &str = "it has only this connection, and the other end has read all that was sent";

/// What a stopped process waits for.
pub(crate) const GO_ON: &str = "a SIGCONT or its debugger";
/// What a zombie waits for.
pub(crate) const COLLECTED: &str = "its parent to collect its exit status";

/// A component's command that makes progress ends within a second.
const COMMAND_LASTS: Duration = Duration::from_secs(30);
/// The chain from a process that must act to the last known one.
#[derive(Debug, Default)]
pub(crate) struct Followed<'a> {
    /// Empty if it is not seen to wait.
    pub(crate) links: Vec<Link>,
    /// The process at the end, if it is not seen to wait for another one.
    pub(crate) last: Option<&'a Waiting>,
    /// The process that is seen to wait for that one.
    pub(crate) before_last: Option<&'a Waiting>,
    /// The call in which that process is.
    pub(crate) stuck: Option<&'a StuckThread>,
}

impl Followed<'_> {
    /// The threads that hold the kernel locks for which the last process sleeps.
    pub(crate) fn lock(&self) -> &[LockHolder] {
        self.last.map_or(&[], |last| lock(last, self.stuck))
    }

    /// The last process, if it is stopped.
    pub(crate) fn stopped(&self) -> Option<&Waiting> {
        self.last.filter(|last| matches!(last.state, 'T' | 't'))
    }
}

/// The observed waits.
#[derive(Default)]
pub(crate) struct Waits {
    asked: Option<Monotonic>,
    answered: bool,
    /// The result of the last scan.
    found: Vec<Waiting>,
    at: Monotonic,
    /// Since when a process, by pid and start, is seen in each wait.
    since: BTreeMap<(u32, u64, Key), Monotonic>,
    /// Hung calls, by thread.
    stuck: BTreeMap<u32, StuckThread>,
}

impl Waits {
    /// No observation.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        asked: None,
        answered: false,
        found: Vec::new(),
        at: Monotonic(0),
        since: BTreeMap::new(),
        stuck: BTreeMap::new(),
    };

    /// The next query about a pod, if one is due.
    pub(crate) fn ask(
        &mut self,
        uid: &str,
        sample: &NodeSample,
        said: &[Said],
        now: Monotonic,
    ) -> Option<Query> {
        let after = if self.answered { EVERY } else { LOST };
        if self.asked.is_some_and(|asked| now.since(asked) < after) {
            return None;
        }
        (self.asked, self.answered) = (Some(now), false);
        let group = sample.cgroups.iter().find(|group| group.uid == uid);
        let shims = group.iter().flat_map(|group| &group.shims).map(|shim| shim.pid).collect();
        let pod = sample.pod(uid);
        let drivers = pod.iter().flat_map(|pod| &pod.volumes).filter_map(|volume| volume.driver());
        let runtimes = sample.runtimes.iter().map(|runtime| runtime.pid);
        let daemons = sample.kubelets.iter().copied().chain(runtimes);
        let daemons: BTreeSet<u32> = daemons.chain(drivers.map(|driver| driver.pid)).collect();
        let containers = said.iter().rev().filter_map(|said| container_id(&said.text));
        let containers: BTreeSet<&str> = containers.take(CONTAINERS).collect();
        let names = std::iter::once(uid).chain(containers).map(str::to_owned).collect();
        let daemons = daemons.into_iter().collect();
        let tasks = group.map_or_else(Vec::new, tasks_of);
        let wants = FollowWaits { shims, daemons, tasks, names }.into();
        let path = pod.map(|pod| pod.directory.clone()).unwrap_or_default();
        Some(Query { tracker: TrackerId::Waits, target_id: 0, path, wants })
    }

    /// Takes an answer.
    pub(crate) fn answered(&mut self, found: &Result<Vec<Waiting>, NoAnswer>, now: Monotonic) {
        self.answered = true;
        // Earlier waits may be over.
        self.found = found.as_ref().cloned().unwrap_or_default();
        self.at = now;
        let keys = self.found.iter().flat_map(|it| it.on.iter().map(|on| key(it, on)));
        let since = keys.map(|key| (key, self.since.get(&key).copied().unwrap_or(now)));
        self.since = since.collect();
    }

    /// Takes a hung call, or its end.
    pub(crate) fn stuck(&mut self, seen: &StuckThread) {
        match seen.over {
            true => drop(self.stuck.remove(&seen.thread.tid)),
            false => drop(self.stuck.insert(seen.thread.tid, seen.clone())),
        }
    }

    /// A hung call of a process.
    pub(crate) fn call_of(&self, pid: u32) -> Option<&StuckThread> {
        self.stuck.values().filter(|it| it.thread.pid == pid).min_by_key(|it| it.began)
    }

    /// A shim that waits.
    pub(crate) fn shim(&self, clock: &Clock) -> Option<u32> {
        let mut shims = self.found.iter().filter(|it| it.part == Part::Shim);
        shims.find(|it| self.first(it, clock).is_some()).map(|it| it.pid)
    }

    /// Whether a shim waits, or the runtime waits for a command.
    pub(crate) fn holds_containers(&self, clock: &Clock) -> bool {
        self.shim(clock).is_some() || self.hung_command(clock).is_some()
    }

    /// The oldest command of a shim or a runtime that does not return.
    pub(crate) fn hung_command(&self, clock: &Clock) -> Option<HungCommand<'_>> {
        self.oldest(clock, |it| it.is_runtimes() && matches!(it.by.part, Part::Shim | Part::Daemon))
    }

    /// The oldest command that one of these processes has started for the pod since then, and waits for.
    pub(crate) fn command_of(
        &self,
        by: &[u32],
        since: Monotonic,
        clock: &Clock,
    ) -> Option<HungCommand<'_>> {
        self.oldest(clock, |it| {
            let is_its = by.contains(&it.by.pid) && it.is_waited_for();
            is_its && it.since >= since && !it.is_runtimes()
        })
    }

    /// The oldest command that does not return, of those that count.
    fn oldest(
        &self,
        clock: &Clock,
        counts: impl Fn(&HungCommand<'_>) -> bool,
    ) -> Option<HungCommand<'_>> {
        // A command's own wait is known once both were seen for this time.
        let is_followed = |by: &Waiting, on: &On| {
            self.since.get(&key(by, on)).is_some_and(|seen| self.at.since(*seen) >= LASTS)
        };
        let commands = self.found.iter().flat_map(|by| {
            let children = by.on.iter().filter(|on| matches!(on, On::Child { .. }));
            let children = children.filter(move |on| is_followed(by, on));
            children.filter_map(move |on| Some((by, self.of(on.other()?)?)))
        });
        let hung = commands.filter_map(|(by, command)| {
            let since = clock.when(clock.after_boot(command.started));
            let lasts = self.at.since(since) >= COMMAND_LASTS;
            let hung = HungCommand { by, command, since, followed: Followed::default() };
            (lasts && counts(&hung)).then_some(hung)
        });
        let oldest = hung.min_by_key(|hung| hung.since)?;
        let followed = self.follow(oldest.by.pid, "end its command", clock);
        Some(HungCommand { followed, ..oldest })
    }

    /// The command, or the last of the processes that it has started and waits for, one after the other.
    pub(crate) fn innermost<'a>(&'a self, command: &'a Waiting) -> &'a Waiting {
        let mut seen = BTreeSet::new();
        let child = |of: &Waiting| {
            let mut children = of.on.iter().filter(|on| matches!(on, On::Child { .. }));
            children.find_map(|on| self.of(on.other()?))
        };
        let mut last = command;
        while let Some(next) = child(last).filter(|next| seen.insert(next.pid)) {
            last = next;
        }
        last
    }

    /// The chain from a process that must act to the last known one.
    pub(crate) fn follow(&self, pid: u32, must: &str, clock: &Clock) -> Followed<'_> {
        let (mut links, mut seen, mut must) = (Vec::new(), BTreeSet::new(), must.to_owned());
        let (mut next, mut before_last) = (self.of(pid), None);
        // A cycle of waits ends with the process that waits for the first.
        while let Some(waiting) = next.filter(|it| seen.insert(it.pid)) {
            let Some((on, since)) = self.first(waiting, clock) else {
                if links.is_empty() {
                    break;
                }
                let stuck = self.stuck.values().find(|it| {
                    it.thread.pid == waiting.pid && it.actor.started == Some(waiting.started)
                });
                links.push(last(waiting, stuck, must, clock));
                links.extend(behind_locks(lock(waiting, stuck), clock));
                return Followed { links, last: Some(waiting), before_last, stuck };
            };
            links.push(self.link(waiting, on, since, must, clock));
            must = task(waiting, on);
            before_last = Some(waiting);
            next = on.other().and_then(|pid| self.of(pid));
        }
        Followed { links, ..Followed::default() }
    }

    /// The same, if it waits for a command that it has started.
    pub(crate) fn task(&self, pid: u32, must: &str, clock: &Clock) -> Followed<'_> {
        let first = self.of(pid).and_then(|it| self.first(it, clock));
        match first {
            Some((On::Child { .. }, _)) => self.follow(pid, must, clock),
            _ => Followed::default(),
        }
    }

    /// The file on which another process has the lock that a process waits for, and that process.
    pub(crate) fn lock_of(&self, pid: u32, clock: &Clock) -> Option<(Option<&Path>, &Waiting)> {
        let (on, _) = self.first(self.of(pid)?, clock)?;
        let On::Lock { file, holder: Some(holder) } = on else { return None };
        Some((file.as_deref(), self.of(*holder)?))
    }

    /// The processes of the last scan.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.found.iter()
    }

    /// What a process of a container waits for, and those that it waits for.
    pub(crate) fn of_task(&self, pid: u32, clock: &Clock) -> Vec<Link> {
        let is_its = self.of(pid).is_some_and(|it| it.part == Part::Container);
        if is_its { self.follow(pid, "end", clock).links } else { Vec::new() }
    }

    fn of(&self, pid: u32) -> Option<&Waiting> {
        self.found.iter().find(|it| it.pid == pid)
    }

    /// The most significant wait, and since when.
    fn first<'a>(&self, waiting: &'a Waiting, clock: &Clock) -> Option<(&'a On, Timestamp)> {
        let lasting = waiting.on.iter().filter_map(|on| {
            let seen = self.since.get(&key(waiting, on)).copied()?;
            // The start of a child is known; other waits count from the first scan that saw them.
            let since = match on.other().filter(|_| matches!(on, On::Child { .. })) {
                Some(pid) => clock.when(clock.after_boot(self.of(pid)?.started)),
                None => seen,
            };
            (self.at.since(since) >= lasts(on)).then(|| (on, clock.at(since)))
        });
        let lasting: Vec<(&On, Timestamp)> = lasting.collect();
        // Of several idle connections, the one with the pending answer is unknown.
        let silent: BTreeSet<Key> =
            lasting.iter().filter(|(on, _)| is_read(on)).map(|(on, _)| on.end()).collect();
        let all = lasting.into_iter().filter(|(on, _)| !is_read(on) || silent.len() == 1);
        all.min_by_key(|(on, since)| (rank(on), *since))
    }

    fn who(&self, pid: u32) -> Who {
        self.of(pid).map_or_else(|| Who::process("", pid), Waiting::who)
    }

    fn link(
        &self,
        waiting: &Waiting,
        on: &On,
        since: Timestamp,
        must: String,
        clock: &Clock,
    ) -> Link {
        let pid = waiting.pid;
        let other = on.other().map_or_else(
            || "a process that the kernel does not name".to_owned(),
            |pid| self.who(pid).to_string(),
        );
        let (waits_for, fact, source) = match on {
            On::Child { pid, is_waited_for } => (
                format!("{other} to end"),
                match is_waited_for {
                    true => "it waits for this child process, which runs".to_owned(),
                    false => "this child process runs".to_owned(),
                },
                format!("/proc/{pid}/stat"),
            ),
            On::Lock { file, .. } => (
                format!("{other} to release the lock on {}", of_file(file.as_deref())),
                "the lock is held, and it waits for the lock".to_owned(),
                "/proc/locks".to_owned(),
            ),
            On::Socket { path, request, unread, .. } => {
                let at = path.as_ref().map(|path| format!(" at {}", safe_path(path)));
                let at = at.unwrap_or_default();
                let (does, fact) = match request {
                    Request::Pending => ("accept its connection", "it has connected".to_owned()),
                    Request::Unread if *unread > 0 => {
                        ("read what it has sent", format!("{unread} bytes are not read"))
                    }
                    Request::Unread => ("read what it has sent", "not all of it is read".into()),
                    Request::Read => ("answer", ONLY.to_owned()),
                };
                (format!("{other} to {does}{at}"), fact, format!("sock_diag, /proc/{pid}/fd"))
            }
            On::Connection { remote, request, unread, retries, .. } => {
                let other = on.other().map_or_else(
                    || format!("the other end, {remote},"),
                    |pid| format!("{} ({remote})", self.who(pid)),
                );
                let again = match retries {
                    0 => String::new(),
                    1 => ", and the kernel has retransmitted once".to_owned(),
                    times => format!(", and the kernel has retransmitted {times} times"),
                };
                let (does, fact) = match request {
                    Request::Pending => ("accept its connection", format!("it connects{again}")),
                    Request::Unread if *retries > 0 => (
                        "acknowledge what it has sent",
                        format!("{unread} bytes are not acknowledged{again}"),
                    ),
                    Request::Unread => {
                        ("read what it has sent", format!("{unread} bytes are not read"))
                    }
                    Request::Read => ("answer", ONLY.to_owned()),
                };
                let source = format!("/proc/{pid}/net/tcp, /proc/{pid}/fd");
                (format!("{other} to {does}"), fact, source)
            }
            On::Kernel { tid, is_worker, channel, file, .. } => {
                let channel = channel.as_deref().map(|channel| wait_channel::words(&[], channel));
                let file = file.as_ref().map(|file| {
                    let (path, fs_type) = (safe_path(&file.path), safe(file.fs_type.as_bytes()));
                    format!("{path} on {fs_type} ({})", safe(file.source.as_bytes()))
                });
                let what = match (channel, file) {
                    (Some(channel), Some(file)) => format!("{channel}, for {file}"),
                    (Some(one), None) | (None, Some(one)) => one,
                    (None, None) => "the kernel".to_owned(),
                };
                let of_ring = if *is_worker { ", a worker of its io_uring," } else { "" };
                let fact = format!("its thread {tid}{of_ring} sleeps, and no signal wakes it");
                (what, fact, format!("/proc/{pid}/task/{tid}/wchan"))
            }
            On::Pipe { reads, others, .. } => {
                let names: Vec<String> =
                    others.iter().take(NAMED).map(|pid| self.who(*pid).to_string()).collect();
                let (does, fact) = match reads {
                    true => {
                        ("write to a pipe, or close it", "one of its threads reads from the pipe")
                    }
                    false => ("read from a pipe", "one of its threads writes to the pipe"),
                };
                let source = format!("/proc/{pid}/task/*/syscall, /proc/*/fd");
                (format!("{} to {does}", names.join(", ")), fact.to_owned(), source)
            }
        };
        let (since, waits_for) = (Some(since), Some(waits_for));
        Link { since, waits_for, ..Link::new(who(waiting, clock), must, fact, source) }
    }
}

fn who(waiting: &Waiting, clock: &Clock) -> Who {
    waiting.who().started(clock.after_boot(waiting.started))
}

/// The threads that hold the kernel locks for which a process sleeps: in a call that is followed, or in any other.
fn lock<'a>(waiting: &'a Waiting, stuck: Option<&'a StuckThread>) -> &'a [LockHolder] {
    stuck.map_or(&waiting.lock, |it| &it.lock)
}

/// The link of the last process, by its state and its call.
fn last(waiting: &Waiting, stuck: Option<&StuckThread>, must: String, clock: &Clock) -> Link {
    let Waiting { pid, state, channel, .. } = waiting;
    let (who, channel) = (who(waiting, clock), channel.as_deref());
    let within = channel.map(|name| format!(", in {}", safe(name.as_bytes())));
    let within = within.unwrap_or_default();
    let (waits_for, fact) = match (state, stuck) {
        ('T' | 't', _) => (Some(GO_ON.to_owned()), format!("state {state}: stopped")),
        ('Z' | 'X', _) => (Some(COLLECTED.to_owned()), format!("state {state}: it has ended")),
        (_, Some(StuckThread { thread, stack, phase, syscall, path, began, lock, .. })) => {
            let channel = stuck.and_then(|it| it.wait_channel.as_deref()).or(channel);
            let path = path.as_ref().map(|path| format!(" of {}", safe_path(path)));
            let call = format!("{}{}", safe(syscall.as_bytes()), path.unwrap_or_default());
            let fact = format!("{call} has not returned ({}): state {state}", phase.meaning());
            let by_channel = |channel| wait_channel::words(stack, channel);
            let by_lock = lock.first().map(kernel_lock::words);
            let waits_for = by_lock.or_else(|| channel.map(by_channel));
            let source = format!("/proc/{pid}/task/{}/stack", thread.tid);
            let not_visible = waits_for.is_none().then(hidden);
            let since = Some(clock.at(*began));
            return Link { waits_for, since, not_visible, ..Link::new(who, must, fact, source) };
        }
        ('D', _) => {
            let by_lock = waiting.lock.first().map(kernel_lock::words);
            let by_channel = || channel.map(|channel| wait_channel::words(&[], channel));
            (by_lock.or_else(by_channel), format!("state {state}"))
        }
        _ => (None, format!("state {state}{within}")),
    };
    let source = format!("/proc/{pid}/stat, /proc/{pid}/wchan");
    let not_visible = waits_for.is_none().then(|| match state {
        'D' => hidden(),
        _ => inside(&waiting.command),
    });
    Link { waits_for, not_visible, ..Link::new(who, must, fact, source) }
}

/// The links of the threads that hold the kernel locks for which the last process sleeps.
fn behind_locks(lock: &[LockHolder], clock: &Clock) -> Vec<Link> {
    let next = lock.iter().skip(1).map(Some).chain([None]);
    let link = |(holder, next): (&LockHolder, Option<&LockHolder>)| {
        let who = holder.who().started(clock.after_boot(holder.started));
        let waits_for = next.map(kernel_lock::words).or_else(|| kernel_lock::waits_for(holder));
        let fact = format!("the lock names it; state {}", holder.state);
        let not_visible = waits_for.is_none().then(hidden);
        let must = format!("release the {}", holder.lock.name());
        Link { waits_for, not_visible, ..Link::new(who, must, fact, "the probes") }
    };
    lock.iter().zip(next).map(link).collect()
}

/// Why the wait of a thread in the kernel is not visible.
pub(crate) fn hidden() -> String {
    "the kernel shows no function that its thread waits in; the kernel's log may name one (`blocked for more than`)".into()
}

/// Why the wait of a process is not visible, by its program, and what shows it. podstuck sends no signal.
pub(crate) fn inside(program: &str) -> String {
    const INSIDE: &str = "it waits inside the process, which makes no system call for it";
    let shows = match program.split(' ').next().unwrap_or_default() {
        // containerd: cmd/containerd/command, `handleSignals`; moby: daemon/daemon_unix.go, `setupDumpStackTrap`; CRI-O:
        // cmd/crio/main.go.
        name @ ("containerd" | "dockerd" | "crio") => {
            return format!(
                "{INSIDE}: SIGUSR1 makes {name} write the stacks of its goroutines to its log or to a file that its log \
                 names, and it continues to run"
            );
        }
        "kubelet" => {
            "its log shows it, or the stacks of its goroutines (`/debug/pprof/goroutine?debug=2` of kubelet's API; SIGQUIT \
             writes them to its log and ends it)"
        }
        _ => "its own log or a debugger shows it",
    };
    format!("{INSIDE}: {shows}")
}

fn key(waiting: &Waiting, on: &On) -> (u32, u64, Key) {
    (waiting.pid, waiting.started, on.key())
}

/// The time that a wait must last.
fn lasts(on: &On) -> Duration {
    match on {
        On::Socket { request: Request::Unread, .. }
        | On::Connection { request: Request::Unread, .. } => UNREAD_LASTS,
        _ => LASTS,
    }
}

/// Whether a connection is the only evidence.
fn is_read(on: &On) -> bool {
    matches!(
        on,
        On::Socket { request: Request::Read, .. } | On::Connection { request: Request::Read, .. }
    )
}

/// Order of significance, the most significant first.
fn rank(on: &On) -> u8 {
    match on {
        On::Lock { .. } => 0,
        On::Kernel { .. } => 1,
        On::Child { .. } => 2,
        _ if is_read(on) => 5,
        On::Socket { .. } | On::Connection { .. } => 3,
        On::Pipe { .. } => 4,
    }
}

/// What the process at the other end must do.
fn task(waiting: &Waiting, on: &On) -> String {
    match on {
        On::Child { .. } => "end".to_owned(),
        On::Lock { file, .. } => format!("release the lock on {}", of_file(file.as_deref())),
        On::Socket { .. } | On::Connection { .. } if is_read(on) => {
            format!("answer {}", waiting.command)
        }
        On::Socket { .. } | On::Connection { .. } => {
            format!("read what {} has sent", waiting.command)
        }
        On::Pipe { reads: true, .. } => "write to the pipe, or close it".to_owned(),
        On::Pipe { reads: false, .. } => "read from the pipe".to_owned(),
        On::Kernel { .. } => "return".to_owned(),
    }
}

/// The processes of containers that are followed: those in the pod's control groups first, then the oldest.
fn tasks_of(group: &PodGroup) -> Vec<u32> {
    let all = group.tasks.iter().chain(&group.outside);
    let mut all: Vec<&Task> = all.filter(|task| !group.is_sandboxs(task)).collect();
    all.sort_by_key(|task| (group.is_outside(task), task.started, task.pid));
    all.iter().take(TASKS).map(|task| task.pid).collect()
}

fn of_file(file: Option<&Path>) -> String {
    file.map_or_else(|| "a file".to_owned(), |file| safe_path(file).into_owned())
}

#[cfg(test)]
mod tests;
