//! Who has a connection to a daemon's local sockets, and whether that has read what was sent.
//! The daemon is not asked, and nothing is sent to it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, ensure};

use super::{
    asked::{AsWhom, Asked, Helped, in_thread},
    blocked::{self, Blocked},
    sockets::{self, sockets_of},
    thread::since_boot,
    unix_diag::{self, Socket},
};
use crate::identity::living::Living;
use podstuck_confine::helper::{Question, Share, Teller, ask};
use podstuck_confine::{proc, role::Role};
use podstuck_model::{
    client::{Client, Request},
    degraded::{Degraded, Feed},
    path::safe,
    query::{FindClients, NoAnswer},
};

/// Most clients reported.
const MOST: usize = 64;
/// What is read of a command line.
const LINE: usize = 4096;
/// Words of it that are reported, without the program's name.
const WORDS: usize = 2;

impl Asked for FindClients {
    async fn answer(self, share: Share, _: &AsWhom) -> Result<Vec<Client>, NoAnswer> {
        let find = move || {
            let daemon = self.pid;
            let found = ask(Helped(self));
            note(daemon, found.as_ref().err());
            found
        };
        in_thread(share, find).await.flatten()
    }
}

impl Question for Helped<FindClients> {
    const FEEDS: Option<Feed> = Some(Feed::Node);
    const ROLE: Role = Role::Helper;
    type Step = ();
    type Part = ();
    type Answer = Vec<Client>;

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Vec<Client>> {
        let of = self.0.pid;
        let network = |process: &Path| proc::namespace(process, "net");
        let daemon = PathBuf::from(format!("/proc/{of}"));
        let same = network(&daemon) == network(Path::new("/proc/self"));
        ensure!(
            same,
            "pid {of} is in another network namespace, whose sockets are not visible here"
        );
        let ends = other_ends(&sockets_of(&daemon), &unix_diag::all()?);
        let owners = sockets::owners(&ends.keys().copied().collect());
        let mut found: Vec<Client> = Vec::new();
        for (socket, pid) in owners.into_iter().filter(|(_, pid)| *pid != of) {
            let Some(request) = ends.get(&socket) else { continue };
            match found.iter_mut().find(|known| known.pid == pid) {
                Some(known) => known.request = known.request.min(*request),
                None => found.extend(client(pid, *request)),
            }
        }
        found.retain(|client| client.request != Request::Read || !waits_for_another(client.pid));
        found.sort_by_key(|client| (client.since, client.pid));
        found.truncate(MOST);
        Ok(found)
    }
}

/// Why the clients of a daemon are not known, by its process id.
static UNKNOWN: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());

/// Takes note of whether they could be found.
fn note(daemon: u32, why: Option<&NoAnswer>) {
    let mut unknown = UNKNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match why {
        Some(why) => drop(unknown.insert(daemon, why.to_string())),
        None => drop(unknown.remove(&daemon)),
    }
    unknown.retain(|pid, _| proc::exists(*pid, *pid));
}

/// Daemons whose clients are not known: a daemon that does not answer is not detected.
pub fn degraded() -> Vec<Degraded> {
    let unknown = UNKNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let tell = |(pid, why): (&u32, &String)| {
        let what = format!("which processes wait for an answer from pid {pid} is not known: {why}");
        Degraded::new(what, &[])
    };
    unknown.iter().map(tell).collect()
}

/// Whether the kernel shows what is connected to what.
///
/// # Errors
/// Fails where it does not, with the reason.
pub fn are_shown() -> Result<()> {
    unix_diag::all().map(drop)
}

/// The sockets that are connected to a process's own, by their numbers.
fn other_ends(own: &HashSet<u64>, all: &[Socket]) -> HashMap<u64, Request> {
    let mut found = HashMap::new();
    for socket in all.iter().filter(|socket| own.contains(&socket.inode)) {
        let request = if socket.unread > 0 { Request::Unread } else { Request::Read };
        found.extend(socket.peer.map(|peer| (peer, request)));
        found.extend(socket.pending.iter().map(|peer| (*peer, Request::Pending)));
    }
    found.retain(|peer, _| !own.contains(peer));
    found
}

/// Whether one of whom all is read waits for something else than an answer: it is stopped, or writes what it has been
/// answered to a process that does not read, such as a pager.
fn waits_for_another(pid: u32) -> bool {
    let is_stopped = proc::stat(pid, pid).is_some_and(|(state, _)| proc::is_stopped(state));
    let writes = |(_, blocked): &(u32, Blocked)| matches!(blocked, Blocked::Writes(_));
    is_stopped || blocked::threads(pid).iter().any(writes)
}

fn client(pid: u32, request: Request) -> Option<Client> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let living = Living::look(&process)?;
    let line = proc::command_line(&process, LINE).unwrap_or_default();
    let command = command(&line).unwrap_or_else(|| safe(&living.comm).into_owned());
    let component = living.component();
    Some(Client { pid, since: since_boot(living.started), component, command, request })
}

/// The program and its verb. Later words may be secrets, such as a container's variables.
pub(super) fn command(line: &[u8]) -> Option<String> {
    let mut words = line.split(|byte| *byte == 0);
    let program = words.next()?.rsplit(|byte| *byte == b'/').next()?;
    let is_verb = |word: &&[u8]| {
        let is_plain = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'-';
        word.first().is_some_and(u8::is_ascii_lowercase) && word.iter().all(is_plain)
    };
    let verbs = words.take_while(is_verb).take(WORDS);
    let all: Vec<_> = std::iter::once(program).chain(verbs).map(|word| safe(word)).collect();
    (!program.is_empty()).then(|| all.join(" "))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::{
            fd::AsRawFd,
            unix::net::{UnixListener, UnixStream},
        },
    };

    use super::*;

    #[test]
    fn what_was_asked_and_not_read_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let inode = |fd: &dyn AsRawFd| {
            let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
            let text = link.to_str().unwrap().to_owned();
            text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap()
        };
        let connect = || UnixStream::connect(dir.path().join("s")).unwrap();
        let mut read = connect();
        let taken = listener.accept().unwrap().0;
        let (pending, listens) = (connect(), HashSet::from([inode(&listener), inode(&taken)]));
        let request = |of: &UnixStream| {
            other_ends(&listens, &unix_diag::all().unwrap()).get(&inode(of)).copied()
        };
        assert_eq!(
            (request(&read), request(&pending)),
            (Some(Request::Read), Some(Request::Pending))
        );
        read.write_all(b"GET /volumes").unwrap();
        assert_eq!(request(&read), Some(Request::Unread));
        assert_eq!(request(&UnixStream::pair().unwrap().0), None);
    }

    #[test]
    fn a_writer_waits_for_a_process_that_does_not_read() {
        use std::process::{Command, Stdio};
        let mut writes = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
        let mut reads = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        while !waits_for_another(writes.id()) {
            std::thread::yield_now();
        }
        let other = waits_for_another(reads.id());
        for child in [&mut writes, &mut reads] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!other, "who waits for words does not write any");
    }

    #[test]
    fn only_the_verb_of_a_command_is_reported() {
        let reported = |line: &str| command(line.replace(' ', "\0").as_bytes());
        assert_eq!(
            reported("/usr/bin/docker volume create").as_deref(),
            Some("docker volume create")
        );
        assert_eq!(reported("docker run -e TOKEN=x bb").as_deref(), Some("docker run"));
        assert_eq!(reported("docker login -p secret").as_deref(), Some("docker login"));
        assert_eq!(reported("docker --host x ps").as_deref(), Some("docker"));
        assert_eq!(reported("docker rm Web_1").as_deref(), Some("docker rm"));
        assert_eq!(
            (reported("").as_deref(), command(b"\x1b[2J\0ps").as_deref()),
            (None, Some("\\x1b[2J ps"))
        );
    }

    #[test]
    fn a_daemon_with_unknown_clients_is_reported_until_they_are_known() {
        let own = std::process::id();
        let said =
            || degraded().into_iter().filter(|it| it.sentence.contains(&own.to_string())).count();
        note(own, Some(&NoAnswer::Refused("no CONFIG_UNIX_DIAG".into())));
        assert_eq!(said(), 1);
        note(own, None);
        assert_eq!(said(), 0);
    }
}
