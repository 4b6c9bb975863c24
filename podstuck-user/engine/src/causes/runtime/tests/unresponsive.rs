//! Daemons that run and do not answer.

use super::*;

fn dockerd(connections: &[u64]) -> Runtime {
    let connections = connections.to_vec();
    Runtime { connections, ..runtime(Component::Dockerd, "/run/docker.sock") }
}

fn client(command: &str, since: u64, request: Request) -> Client {
    let (since, command) = (at(since), command.into());
    Client { pid: 77, since, component: Component::Other, command, request }
}

/// Takes a sample at each of these seconds and answers each question; returns the seconds of the questions.
fn asked_of_silent_daemon(
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
fn a_connection_that_stays_is_asked_about_once() {
    let mut silent = SilentDaemons::default();
    let kubelet = [client("kubelet", 1, Request::Read), client("docker events", 1, Request::Read)];
    let every = [100, 105, 110, 115, 120, 130, 140];
    assert_eq!(asked_of_silent_daemon(&mut silent, &every, &[1, 2], &kubelet), [110]);
    assert_eq!(
        asked_of_silent_daemon(&mut silent, &[150, 155], &[1, 2, 3], &kubelet),
        Vec::<u64>::new(),
        "it is new"
    );
    assert_eq!(asked_of_silent_daemon(&mut silent, &[160, 165], &[1, 2, 3], &kubelet), [160]);
    assert!(silent.of(&dockerd(&[1])).is_none());
    assert_eq!(
        asked_of_silent_daemon(&mut silent, &[170, 180, 190], &[], &kubelet),
        Vec::<u64>::new()
    );
}

#[test]
fn a_quick_request_that_lasts_is_unanswered() {
    let of = |command: &str, request| {
        let mut silent = SilentDaemons::default();
        let who = [client(command, 99, request)];
        let seconds: Vec<u64> = (100..140).step_by(2).collect();
        asked_of_silent_daemon(&mut silent, &seconds, &[1], &who);
        silent.of(&dockerd(&[1])).map(|it| it.since)
    };
    for quick in ["docker ps", "docker version", "crictl pods", "docker container ls"] {
        assert_eq!(of(quick, Request::Read), Some(at(99)), "{quick}");
    }
    for slow in ["docker", "docker run", "docker volume ls", "docker inspect", "kubelet", "evil ps"]
    {
        assert_eq!(of(slow, Request::Read), None, "{slow}");
    }
    assert_eq!(of("docker attach", Request::Unread), None, "the container reads it");
    assert_eq!(of("kubelet", Request::Pending), Some(at(110)), "since it was seen");
}

#[test]
fn a_client_whose_connection_has_closed_was_answered() {
    let mut silent = SilentDaemons::default();
    let who = [client("docker ps", 99, Request::Read)];
    let seconds: Vec<u64> = (100..140).step_by(2).collect();
    asked_of_silent_daemon(&mut silent, &seconds, &[1], &who);
    assert!(silent.of(&dockerd(&[1])).is_some());
    asked_of_silent_daemon(&mut silent, &[140], &[], &who);
    assert!(silent.of(&dockerd(&[])).is_none());
}
