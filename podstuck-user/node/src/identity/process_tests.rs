use podstuck_common::record::credential;

use super::*;

/// No process has this id.
const GONE: u32 = u32::MAX >> 1;
const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const VICTIM: &str = "11111111-2222-3333-4444-555555555555";
/// Start time in clock ticks after the boot.
const START: u64 = 500;

fn seen(comm: &[u8], parent: u32) -> record::Caller {
    let started_ns = START * clock::tick_ns() + 7;
    let mut actor = record::Caller { parent, started_ns, mnt_ns: 4, ..record::Caller::default() };
    actor.comm[..comm.len()].copy_from_slice(comm);
    actor.parent_comm[..4].copy_from_slice(b"init");
    actor
}

/// The node's root in a unit of the node.
fn root(comm: &str) -> Living {
    Living {
        comm: comm.into(),
        cgroup: format!("/system.slice/{comm}.service"),
        is_root: true,
        mnt_ns: 4,
        started: START,
    }
}

fn in_pod(comm: &str) -> Living {
    Living { cgroup: format!("/kubepods/pod{UID}/{}", "a".repeat(64)), ..root(comm) }
}

fn gone(_: u32) -> Looked {
    Looked::HasEnded
}

fn lives(living: &Living) -> Looked {
    Looked::Lives(living.clone())
}

fn actor(cache: &mut ActorCache, seen: &record::Caller, living: &[(u32, Living)]) -> Arc<Actor> {
    cache.by_pid.retain(|_, _| false);
    let look = |pid| {
        let known = living.iter().find(|(id, _)| *id == pid);
        known.map_or(Looked::HasEnded, |(_, living)| lives(living))
    };
    cache.resolve(GONE, seen, look).actor
}

#[test]
fn a_process_that_has_ended_keeps_what_the_probes_saw() {
    let mut cache = ActorCache::default();
    let first = cache.resolve(GONE, &seen(b"umount", GONE), gone).actor;
    assert_eq!(first.comm, "umount");
    assert_eq!(first.parent.as_ref().map(|p| p.comm.as_str()), Some("init"));
    let later = record::Caller { started_ns: 9 << 40, ..seen(b"rm", GONE) };
    assert_eq!(cache.resolve(GONE, &later, gone).actor.comm, "rm");
}

#[test]
fn a_process_without_an_answer_is_read_again() {
    let mut cache = ActorCache::default();
    let kubelet = record::Caller { mnt_ns: 5, ..seen(b"kubelet", 1) };
    let component = |cache: &mut ActorCache, answer: fn() -> Looked| {
        cache.resolve(GONE, &kubelet, |_| answer()).actor.component
    };
    assert_eq!(component(&mut cache, || Looked::NoAnswer), Component::Workload);
    assert_eq!(component(&mut cache, || Looked::Lives(root("kubelet"))), Component::Kubelet);
    assert_eq!(component(&mut cache, || unreachable!("it is known")), Component::Kubelet);
    // The same for the parent of a process that has ended.
    let umount = record::Caller { mnt_ns: 5, ..seen(b"umount", GONE) };
    let look = |pid| if pid == GONE { Looked::NoAnswer } else { Looked::HasEnded };
    let mut cache = ActorCache::default();
    assert_eq!(cache.resolve(GONE - 1, &umount, look).actor.component, Component::Workload);
    assert!(!cache.by_pid.contains(&(GONE - 1)));
}

#[test]
fn a_process_id_that_is_given_again_brings_nothing_with_it() {
    let mut cache = ActorCache::default();
    let kubelet = seen(b"kubelet", 1);
    let at = |started| Living { started, ..root("kubelet") };
    // The read comes late: another process has the id, kubelet's or a pod's.
    for another in [at(START + 1), Living { started: START + 1, ..in_pod("kubelet") }] {
        let who = actor(&mut ActorCache::default(), &kubelet, &[(GONE, another)]);
        assert_eq!((who.component, &who.cgroup), (Component::Workload, &None));
    }
    assert_eq!(
        cache.resolve(GONE, &kubelet, |_| lives(&at(START))).actor.component,
        Component::Kubelet
    );
    // A container's process has the id later, and is remembered as itself.
    let later = START + 3000;
    let pretender =
        record::Caller { started_ns: later * clock::tick_ns(), mnt_ns: 9, ..seen(b"kubelet", 1) };
    let living = Living { started: later, ..in_pod("kubelet") };
    let who = cache.resolve(GONE, &pretender, |_| lives(&living)).actor;
    assert_eq!((who.component, who.pod.as_ref().unwrap().uid.as_str()), (Component::Workload, UID));
}

#[test]
fn two_of_one_id_within_a_tick_are_two() {
    let mut cache = ActorCache::default();
    let first = seen(b"umount", GONE);
    let second = record::Caller { started_ns: first.started_ns + 1, ..seen(b"rm", GONE) };
    let mut comm = |seen| cache.resolve(GONE, seen, gone).actor.comm.clone();
    assert_eq!([comm(&first), comm(&second), comm(&first)], ["umount", "rm", "umount"]);
    // `/proc` has clock ticks only.
    let of_proc = record::Caller { started_ns: START * clock::tick_ns(), ..seen(b"x", GONE) };
    assert_eq!(comm(&of_proc), "umount");
}

/// By the kernel at the time of the call.
fn with(credentials: u32, seen: record::Caller) -> record::Caller {
    record::Caller { credentials, ..seen }
}

#[test]
fn a_process_that_has_ended_is_what_it_was_when_it_called() {
    // On a node with control groups of version 1, all processes are in the same group of version 2.
    let mut cache = ActorCache::default();
    let kubelet = with(credential::ROOT, seen(b"kubelet", 1));
    assert_eq!(
        actor(&mut cache, &kubelet, &[(GONE, root("kubelet"))]).component,
        Component::Kubelet
    );
    let mut ended = |credentials| {
        let who = cache.resolve(GONE - 1, &with(credentials, seen(b"kubelet", GONE)), gone);
        (who.actor.component, who.is_root)
    };
    assert_eq!(ended(credential::ROOT).0, Component::Kubelet);
    for lacking in [credential::IDS_0, credential::SYS_ADMIN, credential::FIRST_USER_NS] {
        assert_eq!(ended(credential::ROOT & !lacking), (Component::Workload, false));
    }
    // The same where no daemon was seen, and by the parent.
    let mut cache = ActorCache::default();
    let home = seen(b"rm", 7).mnt_ns;
    cache.homes.insert(home, ());
    let mut ended = |credentials, living: &[(u32, Living)]| {
        actor(&mut cache, &with(credentials, seen(b"umount", 7)), living).component
    };
    assert_eq!(ended(credential::ROOT, &[]), Component::Other);
    assert_eq!(ended(credential::KNOWN, &[]), Component::Workload);
    assert_eq!(ended(credential::ROOT, &[(7, root("kubelet"))]), Component::UmountHelper);
    assert_eq!(ended(credential::KNOWN, &[(7, root("kubelet"))]), Component::Workload);
}

#[test]
fn the_credentials_of_the_call_count_and_not_later_ones() {
    let mut cache = ActorCache::default();
    let living = root("umount");
    let mut of = |credentials| {
        cache.resolve(GONE, &with(credentials, seen(b"umount", 1)), |_| lives(&living))
    };
    let (before, after) = (of(credential::KNOWN), of(credential::ROOT));
    assert_eq!((before.actor.component, before.is_root), (Component::Workload, false));
    assert_eq!((after.actor.component, after.is_root), (Component::UmountHelper, true));
    // Where the kernel does not report them, the last report counts.
    assert!(of(0).is_root);
}

#[test]
fn a_reused_parent_id_vouches_for_no_process() {
    let umount = record::Caller { mnt_ns: 9, ..seen(b"umount", 7) };
    let parent = |started| Living { mnt_ns: 9, started, ..root("kubelet") };
    let of = |parent| actor(&mut ActorCache::default(), &umount, &[(7, parent)]).component;
    assert_eq!(of(parent(START)), Component::UmountHelper);
    assert_eq!(of(parent(START + 1)), Component::Workload);
}

#[test]
fn a_name_alone_proves_nothing() {
    let kubelet = seen(b"kubelet", GONE);
    let mut cache = ActorCache::default();
    assert_eq!(actor(&mut cache, &kubelet, &[]).component, Component::Workload);
    for pretender in [
        Living { is_root: false, ..root("kubelet") },
        // A container of no pod, and one that gives itself another pod's name.
        Living { is_root: false, cgroup: "/docker/0a".into(), ..root("kubelet") },
        in_pod("kubelet"),
        Living {
            cgroup: format!("{}/kubepods/pod{VICTIM}/crio-conmon-x", in_pod("").cgroup),
            ..in_pod("conmon")
        },
    ] {
        let is_in_pod = pretender.cgroup.contains(UID);
        let who = actor(&mut cache, &kubelet, &[(GONE, pretender)]);
        assert_eq!(who.component, Component::Workload);
        assert_eq!(who.pod.as_ref().map(|pod| pod.uid.as_str()), is_in_pod.then_some(UID));
        // And it vouches for no child.
        let child = seen(b"umount", GONE);
        assert_eq!(actor(&mut cache, &child, &[]).component, Component::Workload);
    }
    assert_eq!(actor(&mut cache, &kubelet, &[(GONE, root("x"))]).component, Component::Kubelet);
}

#[test]
fn a_running_component_vouches_for_processes_in_its_place() {
    let mut cache = ActorCache::default();
    let kubelet = record::Caller { cgroup: 9, ..seen(b"kubelet", 1) };
    assert_eq!(actor(&mut cache, &kubelet, &[(GONE, root("x"))]).component, Component::Kubelet);
    let umount = record::Caller { cgroup: 9, ..seen(b"umount", GONE) };
    assert_eq!(actor(&mut cache, &umount, &[]).component, Component::UmountHelper);
    // In another control group with the same mounts it is another process of the node; in other mounts, a workload.
    let elsewhere = record::Caller { cgroup: 8, ..umount };
    assert_eq!(actor(&mut cache, &elsewhere, &[]).component, Component::Other);
    let in_a_container = record::Caller { mnt_ns: 5, ..umount };
    assert_eq!(actor(&mut cache, &in_a_container, &[]).component, Component::Workload);
}

#[test]
fn a_starting_container_vouches_for_no_process() {
    let mut cache = ActorCache::default();
    let init = record::Caller { cgroup: 9, mnt_ns: 5, ..seen(b"runc:[2:INIT]", 1) };
    let living = Living { cgroup: "/docker/0a".into(), mnt_ns: 5, ..root("runc:[2:INIT]") };
    assert_eq!(actor(&mut cache, &init, &[(GONE, living)]).component, Component::Runc);
    let inside = record::Caller { cgroup: 9, mnt_ns: 5, ..seen(b"kubelet", GONE) };
    assert_eq!(actor(&mut cache, &inside, &[]).component, Component::Workload);
}

#[test]
fn a_process_that_ended_in_the_place_of_a_pods_root_was_of_that_pod() {
    let mut cache = ActorCache::default();
    let driver = record::Caller { cgroup: 9, mnt_ns: 5, ..seen(b"driver", 1) };
    actor(&mut cache, &driver, &[(GONE, Living { mnt_ns: 5, ..in_pod("driver") })]);
    let umount = record::Caller { cgroup: 9, mnt_ns: 5, ..seen(b"umount", GONE) };
    let who = cache.resolve(GONE - 1, &umount, gone);
    assert_eq!(who.actor.pod.as_ref().map(|pod| pod.uid.as_str()), Some(UID));
    assert!(who.is_root && who.actor.component == Component::Workload);
}

#[test]
fn the_oldest_goes_when_there_are_too_many() {
    let mut cache = ActorCache::default();
    let count = u32::try_from(REMEMBERED).unwrap();
    for n in 0..=count {
        cache.resolve(GONE - n, &seen(b"rm", GONE), gone);
    }
    assert_eq!((cache.by_pid.len(), cache.dropped()), (REMEMBERED, 1));
    assert!(!cache.by_pid.contains(&GONE) && cache.by_pid.contains(&(GONE - 1)));
}

#[test]
fn a_name_with_escape_codes_is_harmless() {
    let actor = describe(1, &seen(b"\x1b[2Jx", 1), None);
    assert_eq!(actor.comm, r"\x1b[2Jx");
}

#[test]
fn own_process_is_read_from_proc() {
    let own = std::process::id();
    let look = |pid| Looked::at(Path::new(&format!("/proc/{pid}")));
    let started_ns = proc::started(own).unwrap() * clock::tick_ns();
    let seen = record::Caller { started_ns, ..seen(b"test", 1) };
    let who = ActorCache::default().resolve(own, &seen, look);
    assert!(who.actor.cgroup.is_some());
}
