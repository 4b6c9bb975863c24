//! Tests of the links that scans of waiting processes give.

use std::sync::Arc;

use super::*;
use crate::{
    model::{identity::Actor, thread::Thread, waiting::CalledFile},
    query::Wants,
    testing::{pod_group, stuck, task},
};

const CLOCK: Clock = Clock::new(Timestamp::UNIX_EPOCH, Monotonic(0));

fn waiting(pid: u32, command: &str, part: Part, on: Vec<On>) -> Waiting {
    let (command, channel) = (command.to_owned(), Some("futex_do_wait".to_owned()));
    Waiting { pid, started: 100, command, state: 'S', channel, part, on, lock: Vec::new() }
}

fn child(pid: u32) -> On {
    On::Child { pid, is_waited_for: false }
}

fn socket(number: u64, peer: u32, request: Request, unread: u32) -> On {
    let path = Some("/run/api.sock".into());
    On::Socket { number, path, peer: Some(peer), request, unread }
}

/// The waits after scans at these seconds.
fn seen(at: &[u64], found: &[Waiting]) -> Waits {
    let mut waits = Waits::default();
    for second in at {
        waits.answered(&Ok(found.to_vec()), Monotonic(second * 1_000_000_000));
    }
    waits
}

fn links_of(waits: &Waits, pid: u32) -> Vec<(String, String, Option<String>)> {
    let links = waits.follow(pid, "end the container", &CLOCK).links;
    links.into_iter().map(|link| (link.who.to_string(), link.must, link.waits_for)).collect()
}

fn link(who: &str, must: &str, waits_for: &str) -> (String, String, Option<String>) {
    let waits_for = (!waits_for.is_empty()).then(|| waits_for.to_owned());
    (who.to_owned(), must.to_owned(), waits_for)
}

#[test]
fn a_shim_waits_for_its_child_and_that_for_who_has_the_lock() {
    let lock = On::Lock { file: Some("/run/xtables.lock".into()), holder: Some(9) };
    let found = [
        waiting(6, "containerd-shim", Part::Shim, vec![child(8)]),
        waiting(8, "runc delete", Part::Task, vec![lock]),
        waiting(9, "iptables", Part::Other, vec![]),
    ];
    let waits = seen(&[10, 14], &found);
    assert_eq!(
        links_of(&waits, 6),
        [
            link("containerd-shim (pid 6)", "end the container", "runc delete (pid 8) to end"),
            link(
                "runc delete (pid 8)",
                "end",
                "iptables (pid 9) to release the lock on /run/xtables.lock"
            ),
            link("iptables (pid 9)", "release the lock on /run/xtables.lock", ""),
        ]
    );
    assert_eq!(waits.shim(&CLOCK), Some(6));
    // The child was started 1 s after boot; its own wait has been seen once.
    assert_eq!(links_of(&seen(&[10], &found), 6).len(), 2);
    let none = seen(&[10, 14], &[waiting(6, "containerd-shim", Part::Shim, vec![])]);
    assert_eq!((links_of(&none, 6), none.shim(&CLOCK)), (vec![], None));
}

#[test]
fn what_is_read_within_seconds_is_no_link() {
    let at = |request| {
        let on = vec![socket(5, 7, request, 74)];
        [waiting(6, "containerd-shim", Part::Shim, on), waiting(7, "vmm", Part::Other, vec![])]
    };
    let mut waits = seen(&[10], &at(Request::Unread));
    assert_eq!(links_of(&waits, 6), []);
    waits.answered(&Ok(at(Request::Read).to_vec()), Monotonic(12_000_000_000));
    waits.answered(&Ok(at(Request::Unread).to_vec()), Monotonic(14_000_000_000));
    assert_eq!(links_of(&waits, 6), [], "it was read in between");
    waits.answered(&Ok(at(Request::Unread).to_vec()), Monotonic(20_000_000_000));
    let first = link(
        "containerd-shim (pid 6)",
        "end the container",
        "vmm (pid 7) to read what it has sent at /run/api.sock",
    );
    assert_eq!(links_of(&waits, 6)[0], first);
    waits.answered(&Err(NoAnswer::Refused("no".into())), Monotonic(22_000_000_000));
    assert_eq!(links_of(&waits, 6), [], "it is not known any more");
}

#[test]
fn which_of_several_connections_an_answer_is_to_come_on_is_not_said() {
    let at = |peers: &[u32]| {
        let on = peers.iter().map(|pid| socket(u64::from(*pid), *pid, Request::Read, 0));
        seen(&[10, 14], &[waiting(8, "runc delete", Part::Task, on.collect())])
    };
    assert_eq!(links_of(&at(&[20]), 8).len(), 1);
    assert_eq!(links_of(&at(&[20, 21]), 8).len(), 0);
}

#[test]
fn bytes_that_are_not_acknowledged_are_a_link_to_an_address() {
    let connection = On::Connection {
        number: 3,
        remote: ([10, 0, 0, 9], 24224).into(),
        peer: None,
        request: Request::Unread,
        unread: 74,
        retries: 6,
    };
    let waits = seen(&[10, 16], &[waiting(8, "umount.rbd", Part::Task, vec![connection])]);
    let links = waits.follow(8, "end", &CLOCK).links;
    let expected = "the other end, 10.0.0.9:24224, to acknowledge what it has sent";
    assert_eq!(links[0].waits_for.as_deref(), Some(expected));
    assert_eq!(
        links[0].fact(),
        "74 bytes are not acknowledged, and the kernel has retransmitted 6 times"
    );
    assert_eq!(links.len(), 1);
}

#[test]
fn of_those_that_wait_for_each_other_each_is_one_link() {
    let found = [
        waiting(6, "a", Part::Shim, vec![socket(1, 7, Request::Unread, 9)]),
        waiting(7, "b", Part::Other, vec![socket(2, 6, Request::Unread, 9)]),
    ];
    let links = links_of(&seen(&[10, 16], &found), 6);
    let who: Vec<&str> = links.iter().map(|(who, ..)| who.as_str()).collect();
    assert_eq!(who, ["a (pid 6)", "b (pid 7)"]);
    assert!(links[1].2.as_deref().unwrap().starts_with("a (pid 6) to read"), "{links:?}");
}

/// aws-fsx-csi-driver#495.
#[test]
fn a_command_that_is_in_a_call_waits_for_what_its_stack_names() {
    let umount = Waiting { state: 'D', ..waiting(8, "umount", Part::Task, vec![]) };
    let found = [waiting(6, "aws-fsx-csi-dri", Part::Daemon, vec![child(8)]), umount];
    let mut waits = seen(&[10, 14], &found);
    let last = |waits: &Waits| {
        let followed = waits.task(6, "unpublish the volume", &CLOCK);
        (followed.links[1].clone(), followed.stuck.is_some())
    };
    let (link, is_stuck) = last(&waits);
    assert_eq!(link.waits_for.as_deref(), Some("the kernel function futex_do_wait to return"));
    assert_eq!((link.fact().as_str(), is_stuck), ("state D", false));
    let mut call = stuck(&["folio_wait_bit", "nfs_wb_all [nfs]"]);
    call.thread = Thread { pid: 8, tid: 8 };
    call.actor = Arc::new(Actor { pid: 8, started: Some(100), ..Actor::clone(&call.actor) });
    waits.stuck(&call);
    let (link, is_stuck) = last(&waits);
    assert_eq!(
        link.waits_for.as_deref(),
        Some("an NFS server, in the kernel function folio_wait_bit")
    );
    assert!(link.fact().contains("has not returned (inside the call): state D") && is_stuck);
    waits.stuck(&StuckThread { over: true, ..call });
    assert!(!last(&waits).1);
    assert!(waits.task(8, "end", &CLOCK).links.is_empty());
}

/// The processes of containers are asked about, the sandbox's own is not.
#[test]
fn a_process_of_a_container_is_asked_about_and_its_own_wait_is_known() {
    let tasks = ["pause", "app", "sh"].iter().zip([5, 7, 9]).map(|(comm, pid)| task(comm, pid));
    let cgroups = vec![PodGroup { tasks: tasks.collect(), ..pod_group("u") }];
    let sample = NodeSample { cgroups, ..NodeSample::default() };
    let query = Waits::default().ask("u", &sample, &[], Monotonic(1)).unwrap();
    let Wants::Waits(wants) = query.wants else { panic!("{query:?}") };
    assert_eq!(wants.tasks, [7, 9]);
    let sleeps = |sleeps| {
        let file = CalledFile {
            path: "/data/x".into(),
            fs_type: "nfs4".into(),
            source: "10.0.0.9:/export".into(),
        };
        let channel = Some("rpc_wait_bit_killable".to_owned());
        let on = On::Kernel { tid: 8, is_worker: true, channel, file: Some(file), sleeps };
        [Waiting { state: 'D', ..waiting(7, "app", Part::Container, vec![on]) }]
    };
    let mut waits = seen(&[10, 14], &sleeps(3));
    let links = waits.of_task(7, &CLOCK);
    let expected = "an NFS server, in the kernel function rpc_wait_bit_killable, for /data/x on nfs4 \
        (10.0.0.9:/export)";
    assert_eq!(links[0].waits_for.as_deref(), Some(expected));
    assert_eq!(
        links[0].fact(),
        "its thread 8, a worker of its io_uring, sleeps, and no signal wakes it"
    );
    waits.answered(&Ok(sleeps(4).to_vec()), Monotonic(16_000_000_000));
    assert!(waits.of_task(7, &CLOCK).is_empty(), "it was woken in between");
    assert!(
        seen(&[10, 14], &[waiting(7, "app", Part::Shim, vec![child(8)])])
            .of_task(7, &CLOCK)
            .is_empty()
    );
}

/// sysbox-runc, and sysbox-fs, which does not read its request.
#[test]
fn a_server_that_does_not_answer_a_command_is_known() {
    let of = |server: &str, request| {
        let found = [
            waiting(6, "containerd-shim", Part::Shim, vec![child(8)]),
            waiting(8, "sysbox-runc delete", Part::Task, vec![socket(1, 9, request, 11)]),
            waiting(9, server, Part::Other, vec![]),
        ];
        let waits = seen(&[50, 56], &found);
        let hung = waits.hung_command(&CLOCK).unwrap();
        hung.silent_server().map(|(it, is_unread)| (it.pid, is_unread))
    };
    assert_eq!(of("sysbox-fs", Request::Unread), Some((9, true)));
    assert_eq!(of("sysbox-fs", Request::Read), Some((9, false)));
    assert_eq!(of("dbus-daemon", Request::Unread), None, "the node needs it");
}

/// A second containerd.
#[test]
fn a_daemon_that_waits_for_a_lock_names_its_holder() {
    let lock = On::Lock { file: Some("/var/lib/containerd/meta.db".into()), holder: Some(9) };
    let found = [
        waiting(6, "containerd", Part::Daemon, vec![lock]),
        waiting(9, "containerd", Part::Daemon, vec![]),
    ];
    let waits = seen(&[10, 14], &found);
    let (file, holder) = waits.lock_of(6, &CLOCK).unwrap();
    assert_eq!((file, holder.pid), (Some("/var/lib/containerd/meta.db".as_ref()), 9));
    assert!(waits.lock_of(9, &CLOCK).is_none());
}
