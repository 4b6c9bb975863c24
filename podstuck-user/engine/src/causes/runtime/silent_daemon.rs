//! Daemons that run and answer nobody: requests came in, and did not go out. Nothing is asked of the daemon: the
//! kernel knows who is connected and what was read, and a client's command tells what it wants and since when.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::model::{
    client::{Client, Request},
    node::NodeSample,
    runtime::Runtime,
    time::Monotonic,
};

/// From when on a connection is asked about, once: most are answered at once.
const OLD: Duration = Duration::from_secs(10);
/// Who waits for so long for what takes a moment is not answered.
const WAITS: Duration = Duration::from_secs(20);
/// How far apart two answers must be that say the same.
const APART: Duration = Duration::from_secs(4);
/// Looks until it is asked again who waits still.
const AGAIN: u32 = 3;
/// Clients whose requests are known by their words.
const PROGRAMS: [&str; 3] = ["docker", "crictl", "nerdctl"];
/// What takes a moment whatever the containers and volumes do. Not what looks at one container, or at volumes:
/// that waits for that one, or for the lock of the volumes' store.
const QUICK: [&str; 7] = ["ps", "version", "info", "images", "pods", "container ls", "image ls"];

/// By a daemon's process id and start.
#[derive(Default)]
pub(super) struct SilentDaemons {
    known: BTreeMap<(u32, u64), Known>,
}

#[derive(Default)]
struct Known {
    /// When each connection was seen first.
    connections: BTreeMap<u64, Monotonic>,
    /// Those that were old when it was asked.
    asked: BTreeSet<u64>,
    /// Looks since who waits was asked; while somebody does.
    looks: u32,
    /// Who may wait, by process and its start, since when that was seen, and was when it was asked last.
    waiting: BTreeMap<(u32, Monotonic), (Monotonic, Client)>,
    answered: Monotonic,
}

/// Who is not answered.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    /// The one who waits for longest, first.
    pub(crate) clients: Vec<Client>,
    /// Since when he does.
    pub(crate) since: Monotonic,
    /// When that was seen last.
    pub(crate) looked: Monotonic,
}

impl SilentDaemons {
    /// Takes note of connections; the daemons of which it is to be asked who has them.
    pub(super) fn sampled(&mut self, sample: &NodeSample) -> Vec<u32> {
        let mut before = std::mem::take(&mut self.known);
        let mut to_ask = Vec::new();
        for runtime in sample.runtimes.iter().filter(|it| it.halted.is_none()) {
            let key = (runtime.pid, runtime.started);
            let mut known = before.remove(&key).unwrap_or_default();
            if known.is_to_be_asked(runtime, sample.at) {
                to_ask.push(runtime.pid);
            }
            self.known.insert(key, known);
        }
        to_ask
    }

    /// Takes an answer.
    pub(super) fn answered(&mut self, pid: u32, clients: &[Client], now: Monotonic) {
        let Some((_, known)) = self.known.iter_mut().find(|((of, _), _)| *of == pid) else {
            return;
        };
        let before = std::mem::take(&mut known.waiting);
        for client in clients.iter().filter(|client| may_wait(client)) {
            let key = (client.pid, client.since);
            let first = before.get(&key).map_or(now, |(first, _)| *first);
            known.waiting.insert(key, (first, client.clone()));
        }
        known.answered = now;
    }

    /// Who is not answered by a daemon, if somebody is not: it was seen twice.
    pub(super) fn of(&self, runtime: &Runtime) -> Option<Silence> {
        let known = self.known.get(&(runtime.pid, runtime.started))?;
        let twice = known.waiting.values();
        let twice = twice.filter(|(first, client)| {
            known.answered.since(*first) >= APART && waits(client, known.answered)
        });
        let mut clients: Vec<(Monotonic, Client)> = twice.cloned().collect();
        clients.sort_by_key(|(_, client)| (client.since, client.pid));
        let since = clients.iter().map(|(first, client)| begun(*first, client)).min()?;
        let clients = clients.into_iter().map(|(_, client)| client).collect();
        Some(Silence { clients, since, looked: known.answered })
    }
}

impl Known {
    fn is_to_be_asked(&mut self, runtime: &Runtime, now: Monotonic) -> bool {
        let mut before = std::mem::take(&mut self.connections);
        for connection in &runtime.connections {
            let since = before.remove(connection).unwrap_or(now);
            self.connections.insert(*connection, since);
        }
        self.asked.retain(|connection| self.connections.contains_key(connection));
        let old = self.connections.iter().filter(|(_, since)| now.since(**since) >= OLD);
        let old: BTreeSet<u64> = old.map(|(connection, _)| *connection).collect();
        if old.is_empty() {
            self.waiting.clear();
        }
        let is_new = !old.is_subset(&self.asked);
        self.asked.extend(old);
        self.looks = if is_new || self.waiting.is_empty() { 0 } else { self.looks + 1 };
        is_new || self.looks.is_multiple_of(AGAIN) && !self.waiting.is_empty()
    }
}

/// Since when he waits. Who was there before he connected is known to wait only since that was seen.
fn begun(first: Monotonic, client: &Client) -> Monotonic {
    if is_quick(&client.command) { client.since } else { first }
}

/// Whether it is to be asked about again.
fn may_wait(client: &Client) -> bool {
    client.request == Request::Pending || is_quick(&client.command)
}

fn waits(client: &Client, now: Monotonic) -> bool {
    // Whoever it is, and whatever he wants: he has not been let in.
    client.request == Request::Pending || now.since(client.since) >= WAITS
}

fn is_quick(command: &str) -> bool {
    let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
    PROGRAMS.contains(&program) && QUICK.contains(&rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::identity::Component;

    fn at(second: u64) -> Monotonic {
        Monotonic(second * 1_000_000_000)
    }

    fn dockerd(connections: &[u64]) -> Runtime {
        Runtime {
            pid: 43,
            component: Component::Dockerd,
            started: 4,
            mnt_ns: None,
            halted: None,
            sockets: vec!["/run/docker.sock".into()],
            group: None,
            connections: connections.to_vec(),
        }
    }

    fn client(command: &str, since: u64, request: Request) -> Client {
        let (since, command) = (at(since), command.into());
        Client { pid: 77, since, component: Component::Other, command, request }
    }

    /// Asks at each of these seconds when it wants to, and answers so; when it was asked.
    fn asked(
        silent: &mut SilentDaemons,
        seconds: &[u64],
        connections: &[u64],
        who: &[Client],
    ) -> Vec<u64> {
        let mut asked = Vec::new();
        for second in seconds {
            let runtimes = vec![dockerd(connections)];
            let sample = NodeSample { at: at(*second), runtimes, ..NodeSample::default() };
            for pid in silent.sampled(&sample) {
                asked.push(*second);
                silent.answered(pid, who, at(*second));
            }
        }
        asked
    }

    #[test]
    fn who_keeps_a_connection_is_asked_about_once() {
        let mut silent = SilentDaemons::default();
        let kubelet =
            [client("kubelet", 1, Request::Read), client("docker events", 1, Request::Read)];
        let every = [100, 105, 110, 115, 120, 130, 140];
        assert_eq!(asked(&mut silent, &every, &[1, 2], &kubelet), [110]);
        assert_eq!(
            asked(&mut silent, &[150, 155], &[1, 2, 3], &kubelet),
            Vec::<u64>::new(),
            "it is new"
        );
        assert_eq!(asked(&mut silent, &[160, 165], &[1, 2, 3], &kubelet), [160]);
        assert!(silent.of(&dockerd(&[1])).is_none());
        assert_eq!(asked(&mut silent, &[170, 180, 190], &[], &kubelet), Vec::<u64>::new());
    }

    #[test]
    fn who_waits_for_what_takes_a_moment_is_not_answered() {
        let of = |command: &str, request| {
            let mut silent = SilentDaemons::default();
            let who = [client(command, 99, request)];
            let seconds: Vec<u64> = (100..140).step_by(2).collect();
            asked(&mut silent, &seconds, &[1], &who);
            silent.of(&dockerd(&[1])).map(|it| it.since)
        };
        for quick in ["docker ps", "docker version", "crictl pods", "docker container ls"] {
            assert_eq!(of(quick, Request::Read), Some(at(99)), "{quick}");
        }
        for slow in
            ["docker", "docker run", "docker volume ls", "docker inspect", "kubelet", "evil ps"]
        {
            assert_eq!(of(slow, Request::Read), None, "{slow}");
        }
        assert_eq!(of("docker attach", Request::Unread), None, "the container reads it");
        assert_eq!(of("kubelet", Request::Pending), Some(at(110)), "since it was seen");
    }

    #[test]
    fn who_is_answered_in_the_end_was() {
        let mut silent = SilentDaemons::default();
        let who = [client("docker ps", 99, Request::Read)];
        let seconds: Vec<u64> = (100..140).step_by(2).collect();
        asked(&mut silent, &seconds, &[1], &who);
        assert!(silent.of(&dockerd(&[1])).is_some());
        asked(&mut silent, &[140], &[], &who);
        assert!(silent.of(&dockerd(&[])).is_none());
    }
}
