//! A volume that a run follows from sample to sample.

use super::*;

#[test]
fn nothing_is_said_before_the_threshold() {
    let lost = pod(vec![with_driver(as_it_is)]);
    let played = || {
        let mut played = Played::new();
        let (since, until) = (second(5), second(6));
        let heard = Heard { source: "log".into(), since, until, names_steps: true };
        played.0.take(Monotonic(6_000_000_000), What::Heard(Box::new(heard)));
        played
    };
    assert_eq!(played().finding(&lost, 238), None);
    let (id, early) = Played::new().finding(&lost, 252).unwrap();
    assert_eq!(id, "csi-driver-lost-publish-state");
    let (_, late) = played().finding(&lost, 600).unwrap();
    assert!(late > early, "{late:?} {early:?}");
}

#[test]
fn a_driver_without_a_socket_is_reported_sooner() {
    for registration in [Registration::Absent, Registration::Deaf] {
        let gone = pod(vec![csi(registration)]);
        assert_eq!(Played::new().finding(&gone, 68), None);
        assert_eq!(Played::new().finding(&gone, 72).unwrap().0, "csi-driver-not-registered");
    }
}

#[test]
fn a_pod_that_runs_or_has_not_started_is_not_judged() {
    for registration in [Registration::Absent, Registration::Listening] {
        let mut running = pod(vec![csi(registration)]);
        running.populated = Some(true);
        assert_eq!(Played::new().finding(&running, 2000), None);
        running.populated = None;
        assert_eq!(Played::new().finding(&running, 2000), None);
        let mut waiting = pod(vec![csi(registration)]);
        waiting.started = false;
        assert_eq!(Played::new().finding(&waiting, 2000), None);
    }
}

#[test]
fn a_pod_of_which_nothing_is_taken_down_may_not_be_deleted_at_all() {
    for registration in [Registration::Listening, Registration::Absent, Registration::Deaf] {
        let whole = pod(vec![csi(registration), tokens()]);
        assert_eq!(Played::new().finding(&whole, 248), None);
        let (id, certainty) = Played::new().finding(&whole, 600).unwrap();
        assert_eq!(id, "unmount-not-attempted");
        assert_eq!(certainty, Certainty::Possible);
    }
    let whole = pod(vec![csi(Registration::Listening), tokens()]);
    let mut begun = Played::new();
    let mut op = umount(None, 9.0, 1);
    op.path = format!("{ROOT}/volumes/kubernetes.io~empty-dir/data").into();
    let uid = Pod { uid: UID.into(), namespace: None, name: None };
    Arc::make_mut(&mut op.target).pod = Some(uid);
    begun.0.ask(&op);
    assert_eq!(begun.finding(&whole, 600).unwrap().0, "csi-driver-lost-publish-state");
}

#[test]
fn an_unmount_that_did_not_help_says_which_mounts_are_left() {
    let mounted = pod(vec![csi(Registration::Listening)]);
    for (namespace, id) in [(1, "stacked-mounts"), (2, "csi-umount-wrong-namespace")] {
        let mut played = Played::new();
        played.0.unmounts.note(&umount(None, 30.0, namespace));
        assert_eq!(played.finding(&mounted, 88), None, "not yet a minute since");
        assert_eq!(played.finding(&mounted, 92).unwrap().0, id);
    }
}

#[test]
fn an_unmount_from_before_the_mount_was_made_says_nothing_about_it() {
    let mut mounted = pod(vec![csi(Registration::Listening)]);
    let mut played = Played::new();
    played.sample(&mounted, 10);
    // As when the first attempt to publish fails and is undone, and the second succeeds.
    played.0.unmounts.note(&umount(None, 11.0, 1));
    mounted.volumes[0].mounts[0].id = 8;
    played.sample(&mounted, 12);
    assert_eq!(played.finding(&mounted, 200), None);
}

#[test]
fn tokens_that_are_renewed_are_no_sign_of_an_end() {
    let whole = pod(vec![csi(Registration::Listening), tokens()]);
    let mut op = failed(Call::Unlinkat, Errno::EBUSY, "..2026_11_21/token", 9.0);
    op.outcome = Outcome::OK;
    let mut played = Played::new();
    played.0.ask(&op);
    assert!(played.0.tracker.taken_down.is_empty());
    assert_eq!(played.finding(&whole, 600).unwrap().0, "unmount-not-attempted");
    // But that they are gone is.
    let bare = pod(vec![csi(Registration::Absent)]);
    assert!(Played::new().finding(&bare, 600).unwrap().1 < Certainty::Firm);
    let mut played = Played::new();
    played.sample(&whole, 4);
    assert!(played.finding(&bare, 600).unwrap().1 == Certainty::Firm);
}

#[test]
fn failed_attempts_belong_to_another_tracker() {
    let mounted = pod(vec![csi(Registration::Absent)]);
    let mut played = Played::new();
    played.0.unmounts.note(&umount(Some(Errno::EBUSY), 30.0, 1));
    assert_eq!(played.finding(&mounted, 2000), None);
    // As when its directory could not be removed, because it is busy.
    let mut busy = Alone::<Busy>::new();
    let mut op = failed(Call::UnlinkatDir, Errno::EBUSY, "x", 9.0);
    op.target_id = mounted.volumes[0].target_id;
    busy.ask(&op);
    let mut played = Played::new();
    played.0.others.push(Box::new(busy.tracker));
    assert_eq!(played.finding(&mounted, 2000), None);
}

#[test]
fn a_mount_that_is_made_again_is_another_mount() {
    let mut played = Played::new();
    let mut mounted = pod(vec![csi(Registration::Absent)]);
    for second in (10..2000).step_by(2) {
        // As when a static pod is deleted and made again and again.
        mounted.volumes[0].mounts[0].id = 1000 + u32::try_from(second).unwrap() / 20;
        assert!(played.sample(&mounted, second).is_empty());
    }
}

#[test]
fn vol_data_must_exist() {
    for data in [VolumeData::Missing, VolumeData::Corrupt { size: 0 }] {
        let mut volume = csi(Registration::Unknown);
        volume.csi.as_mut().unwrap().data = data;
        let id = |volume: VolumeState| {
            Played::new().finding(&pod(vec![volume]), 72).map(|finding| finding.0)
        };
        assert_eq!(id(volume.clone()), Some("vol-data-missing-or-corrupt"));
        volume.mounts.clear();
        assert_eq!(id(volume), Some("vol-data-missing-or-corrupt"));
    }
    let mut unread = csi(Registration::Unknown);
    unread.csi.as_mut().unwrap().data = VolumeData::Unknown;
    unread.mounts.clear();
    assert_eq!(Played::new().finding(&pod(vec![unread]), 2000), None);
}

/// Without the pod's claim, the content of kubelet's file is not known.
#[test]
fn vol_data_is_restored_from_the_persistent_volume() {
    let remedies = |record: Option<PodRecord>| {
        let mut played = Played::new();
        if let Some(record) = record {
            let what = What::Record { record: Box::new(record), node: "n".into() };
            played.0.take(Monotonic(1), what);
        }
        let mut volume = csi(Registration::Unknown);
        volume.csi.as_mut().unwrap().data = VolumeData::Missing;
        let (name, plugin) = ("pv".into(), "kubernetes.io/csi".into());
        let own = Volume { name, plugin, path: JsonPath(volume.path.clone()) };
        Arc::make_mut(&mut volume.target).volume = Some(own);
        let lost = pod(vec![volume]);
        let found = (10..80).step_by(2).flat_map(|second| played.sample(&lost, second)).last();
        let Some(Verdict::Found(draft)) = found else { panic!("{found:?}") };
        draft.remedies
    };
    let commands = |record| -> Vec<String> {
        remedies(record).into_iter().filter_map(|remedy| remedy.command).collect()
    };
    let without = commands(None);
    assert!(without.iter().all(|command| !command.contains("printf")), "{without:#?}");
    let with = commands(Some(claimed()));
    let (script, words) = with[0].split_once("' sh '").unwrap();
    let (directory, text) = words.split_once("' '").unwrap();
    let text = text.strip_suffix('\'').unwrap();
    let data: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!((&data["volumeHandle"], &data["driverName"]), (&"h 1".into(), &"d.example".into()));
    assert_eq!((&data["specVolID"], &data["nodeName"]), (&"pv".into(), &"n".into()));
    assert!(script.ends_with("&& printf %s \"$2\" > ./pv/vol_data.json"), "{script}");
    assert!(script.starts_with("sh -c 'cd \"$1\" && [ \"$(stat -c %d:%i ./pv)\" = "), "{script}");
    assert!(directory.ends_with("/kubernetes.io~csi"), "{directory}");
    assert_eq!(with[1..], without, "what can be done without it still can");
}

/// The record of the pod, whose volume is a claim.
fn claimed() -> PodRecord {
    let csi =
        CsiSource { driver: "d.example".into(), handle: "h 1".into(), attachment: "csi-1".into() };
    let bound = PersistentVolume { name: "pv".into(), deletion: None, csi: Some(csi) };
    let read = Some(jiff::Timestamp::UNIX_EPOCH);
    let claim = Claim {
        volume_name: "data".into(),
        claim: "cart".into(),
        read,
        deletion: None,
        bound: Some(bound),
        attachment: None,
    };
    PodRecord {
        pod: Pod { uid: UID.into(), namespace: Some("shop".into()), name: Some("cart-0".into()) },
        deletion: read,
        node: Some("n".into()),
        read,
        claims: vec![claim],
        ..pod_record(UID)
    }
}

#[test]
fn it_is_over_when_it_is_unmounted() {
    let mut played = Played::new();
    let mut lost = pod(vec![csi(Registration::Absent)]);
    played.finding(&lost, 100);
    lost.volumes[0].mounts.clear();
    let verdicts = played.sample(&lost, 102);
    assert!(matches!(
        verdicts.as_slice(),
        [Verdict::Over { tracker: TrackerId::NotAttempted, .. }]
    ));
}

#[test]
fn it_is_over_when_something_else_is_wrong() {
    let mut played = Played::new();
    assert!(played.finding(&pod(vec![csi(Registration::Absent)]), 100).is_some());
    let back = pod(vec![csi(Registration::Listening)]);
    let over = [played.sample(&back, 102), played.sample(&back, 104)].concat();
    assert!(
        matches!(over[..], [Verdict::Over { tracker: TrackerId::NotAttempted, .. }]),
        "{over:?}"
    );
}

#[test]
fn it_is_over_when_a_log_has_an_attempt() {
    let mut played = Played::new();
    let mounted = pod(vec![csi(Registration::Absent)]);
    assert!(played.finding(&mounted, 100).is_some());
    let mut op = failed(Call::UnlinkatDir, Errno::EBUSY, "x", 9.0);
    op.target_id = mounted.volumes[0].target_id;
    let at = Monotonic(101_000_000_000);
    let over = played.0.take(at, What::Operation(Box::new(op))).verdicts;
    assert!(matches!(over[..], [Verdict::Over { at: when, .. }] if when == at), "{over:?}");
}

#[test]
fn a_container_that_tidies_up_takes_nothing_down() {
    let mut op = umount(None, 9.0, 1);
    Arc::make_mut(&mut op.actor).component = Component::Workload;
    let mut played = Played::new();
    played.0.ask(&op);
    assert!(played.0.tracker.taken_down.is_empty());
}

/// With the command that the driver waits for: certain once that command is known to work on this volume.
#[test]
fn a_driver_is_named_with_the_command_that_it_waits_for() {
    let found = |call: Option<&str>| {
        let mut played = Played::new();
        let now = |second: u64| Monotonic(second * 1_000_000_000);
        for said in [3000, 3122].map(|at| complains(Complaint::DriverHangs, at)) {
            played.0.take(now(3122), What::Said(Box::new(said)));
        }
        let waiting = |pid, command: &str, part, on| Waiting {
            pid,
            started: 100,
            command: command.into(),
            state: 'D',
            channel: Some("folio_wait_bit".into()),
            part,
            on,
            lock: Vec::new(),
        };
        let child = On::Child { pid: 78, is_waited_for: true };
        let all = vec![
            waiting(77, "driver", Part::Daemon, vec![child]),
            waiting(78, "umount", Part::Task, Vec::new()),
        ];
        for second in [3190, 3196] {
            played.0.waits.answered(&Ok(all.clone()), now(second));
        }
        let mut pod = pod(vec![with_driver(as_it_is)]);
        pod.volumes[0].mounts.clear();
        if let Some(volume) = call {
            let mut call = testing::stuck(&["folio_wait_bit", "generic_shutdown_super"]);
            call.thread = Thread { pid: 78, tid: 78 };
            call.actor = Arc::new(Actor { started: Some(100), ..Actor::clone(&call.actor) });
            call.path = Some(format!("{ROOT}/volumes/kubernetes.io~csi/{volume}/mount").into());
            played.0.waits.stuck(&call);
        }
        testing::found(played.sample(&pod, 3200)).pop().unwrap()
    };
    let (id, who) =
        ("csi-unpublish-hung-lock", "the CSI driver d.example, which waits for umount (pid 78)");
    let known = found(Some("pv"));
    known.assert_is(id, Certainty::Firm);
    assert_eq!(holder_of(&known.held_by), who);
    let fact = "umount (pid 78) waits for a page of a file to be read or written, in the kernel function folio_wait_bit:";
    assert!(known.evidence.iter().any(|it| it.fact.starts_with(fact)), "{:?}", known.evidence);
    found(Some("another")).assert_is(id, Certainty::Likely);
    found(None).assert_is(id, Certainty::Likely);
    assert_eq!(holder_of(&found(None).held_by), who);
}

/// While that `umount` is seen, and its own cause is not known yet.
#[test]
fn a_call_that_hangs_behind_a_mount_that_is_gone_does_not_hide_its_driver() {
    struct Hangs;
    impl tracker::Tracker for Hangs {
        fn id(&self) -> TrackerId {
            TrackerId::HungCall
        }

        fn take(&mut self, _: &Event, _: &tracker::Context<'_>, _: &mut tracker::Steps) {}

        fn explains(&self, _: &tracker::Subject<'_>, _: tracker::Claim) -> bool {
            true
        }
    }
    let found = |is_mounted: bool| {
        let mut played = Played::new();
        played.0.others.push(Box::new(Hangs));
        let mut pod = pod(vec![with_driver(as_it_is)]);
        if !is_mounted {
            pod.volumes[0].mounts.clear();
        }
        for said in [3000, 3122].map(|at| complains(Complaint::DriverHangs, at)) {
            played.0.take(Monotonic(3_200_000_000_000), What::Said(Box::new(said)));
        }
        let verdicts = played.sample(&pod, 3200);
        testing::found(verdicts).pop().map(|draft| draft.id())
    };
    assert_eq!(found(false), Some("csi-unpublish-hung-lock"));
    assert_eq!(found(true), None, "the call says more");
}

#[test]
fn a_volume_without_its_server_is_reported_and_its_server_asked_at_intervals() {
    let mut volume = with_driver(as_it_is);
    volume.mounts[0].is_fuse = true;
    let dead = pod(vec![volume]);
    let mut played = Played::new();
    let look = |played: &mut Played, second: u64| {
        let at = Monotonic(second * 1_000_000_000);
        let (kubelets, pods) = (vec![1], vec![dead.clone()]);
        let sample = NodeSample { at, kubelets, pods, ..NodeSample::default() };
        played.0.take(at, What::Sample(Arc::new(sample)))
    };
    assert!(look(&mut played, 8).queries.is_empty(), "about to be unmounted, as of every pod");
    let query = look(&mut played, 10).queries.pop().unwrap();
    assert!(look(&mut played, 12).queries.is_empty());
    let mount = MountPoint { point: query.path.clone(), ..MountPoint::default() };
    let looked = Answer::FuseMounts(vec![(mount.clone(), Errno::ENOTCONN as i32)]);
    played.0.answer(&query, looked);
    assert!(look(&mut played, 14).verdicts.is_empty(), "it may be unmounted in a moment");
    let verdicts: Vec<_> =
        (16..=76).step_by(2).flat_map(|at| look(&mut played, at).verdicts).collect();
    let Some(Verdict::Found(draft)) = verdicts.last() else { panic!("{verdicts:?}") };
    draft.assert_is("fuse-daemon-dead", Certainty::Likely);
    // The driver's error names the dead mount.
    for at in [50, 60] {
        let text = "rpc error: code = Internal desc = transport endpoint is not connected".into();
        let said = Said { text, ..complains(Complaint::DriverError, at) };
        played.0.take(Monotonic(77_000_000_000), What::Said(Box::new(said)));
    }
    let verdicts = look(&mut played, 78).verdicts;
    let Some(Verdict::Found(draft)) = verdicts.last() else { panic!("{verdicts:?}") };
    draft.assert_is("fuse-daemon-dead", Certainty::Firm);
    // The server answers.
    let mut played = Played::new();
    look(&mut played, 8);
    let query = look(&mut played, 10).queries.pop().unwrap();
    played.0.answer(&query, Answer::FuseMounts(vec![(mount, 0)]));
    assert!((12..=76).step_by(2).all(|at| look(&mut played, at).verdicts.is_empty()));
}

#[test]
fn holders_are_asked_for_once_if_nothing_else_shows_attempts() {
    let mut late = Late::of(with_driver(as_it_is)).torn_down();
    let mut played = Played::new();
    let look = |played: &mut Played, pod: &PodState, second: u64| {
        let at = Monotonic(second * 1_000_000_000);
        let (kubelets, pods) = (vec![1], vec![pod.clone()]);
        let kubelet_since = Some(Monotonic(50_000_000_000));
        let sample = NodeSample { at, kubelets, kubelet_since, pods, ..NodeSample::default() };
        played.0.take(at, What::Sample(Arc::new(sample)))
    };
    late.pod.volumes[0].mounts[0].id = 9;
    let first = look(&mut played, &late.pod, 3200);
    let query = first.queries.into_iter().next().unwrap();
    let mut taken = crate::testing::snapshot(Vec::new());
    taken.subject.as_mut().unwrap().path = JsonPath(query.path.clone());
    played.0.answer(&query, Answer::Holders(Ok(taken)));
    let second = look(&mut played, &late.pod, 3202);
    assert!(second.queries.is_empty());
    let [Verdict::Found(draft)] = second.verdicts.as_slice() else { panic!() };
    // Whether the driver answers with an error is not known.
    assert_eq!((draft.certainty(), draft.is_settled), (Certainty::Likely, true));
    assert!(draft.not_known()[0].contains("csi-driver-error"), "{:?}", draft.not_known());
}

/// As on a node where programs named kubelet start and end, each with its own mount namespace.
#[test]
fn copies_of_a_mount_in_other_namespaces_begin_nothing_again() {
    let mut lost = pod(vec![with_driver(as_it_is)]);
    let (mut played, mut verdicts) = (Played::new(), Vec::new());
    for second in (10..=252).step_by(2) {
        let own = lost.volumes[0].mounts[0].clone();
        let (id, namespace) = (1000 + second as u32, 100 + second as u32);
        lost.volumes[0].mounts = vec![own.clone(), Mounted { id, namespace, ..own }];
        verdicts.extend(played.sample(&lost, second));
    }
    let Some(Verdict::Found(draft)) = verdicts.last() else { panic!("{verdicts:?}") };
    assert_eq!(draft.id(), "csi-driver-lost-publish-state");
    // If kubelet's directory was read in another namespace, the volume's mounts there count.
    let mut played = Played::new();
    lost.seen_by = Some((1, 2));
    for second in (10..=400).step_by(2) {
        let own = lost.volumes[0].mounts[0].clone();
        let again = Mounted { id: 1000 + second as u32, namespace: 2, ..own.clone() };
        lost.volumes[0].mounts = vec![own, again];
        assert!(played.sample(&lost, second).is_empty(), "mounted again each time");
    }
}

/// As on a busy disk.
#[test]
fn a_driver_that_waits_briefly_at_times_has_still_forgotten() {
    let (mut played, mut verdicts) = (Played::new(), Vec::new());
    let mut look = |second: u64| {
        let waits = Halted::Waits { tid: 79, state: 'D', channel: "folio_wait_bit".into() };
        let is_moment = second.is_multiple_of(6);
        let halted = is_moment.then_some(waits);
        let volume = with_driver(|process| process.as_mut().unwrap().halted = halted);
        verdicts.extend(played.sample(&pod(vec![volume]), second));
    };
    (10..=300).step_by(2).for_each(&mut look);
    let is_found = |verdict: &Verdict| match verdict {
        Verdict::Found(draft) => draft.id() == "csi-driver-lost-publish-state",
        _ => false,
    };
    assert!(!verdicts.is_empty() && verdicts.iter().all(is_found), "{verdicts:?}");
}

#[test]
fn a_fault_that_begins_again_at_once_is_never_cleared() {
    let mut engine = crate::engine::Engine::new(crate::testing::run());
    let mut take = |second: u64, what| {
        let event = Event { at: Monotonic(second * 1_000_000_000), what };
        let states = engine.take(&event).into_iter().filter_map(|output| match output {
            crate::engine::Output::Finding(finding) => Some((finding.id, finding.state)),
            _ => None,
        });
        states.collect::<Vec<_>>()
    };
    for at in [3000, 3122] {
        take(3190, What::Said(Box::new(complains(Complaint::NoDriver, at))));
    }
    let mut reported = Vec::new();
    let mut mounted = pod(vec![csi(Registration::Absent)]);
    for second in (3200..3260).step_by(2) {
        mounted.volumes[0].mounts[0].id = second as u32;
        let registration = [Registration::Absent, Registration::Deaf][second as usize / 2 % 2];
        mounted.volumes[0].csi.as_mut().unwrap().registration = registration;
        let (at, pods) = (Monotonic(second * 1_000_000_000), vec![mounted.clone()]);
        let sample = NodeSample { at, kubelets: vec![1], pods, ..NodeSample::default() };
        reported.extend(take(second, What::Sample(Arc::new(sample))));
    }
    let of: BTreeSet<&str> = reported.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(of, BTreeSet::from(["csi-driver-not-registered"]));
    let is_new = |(_, state): &(_, FindingState)| *state == FindingState::New;
    assert_eq!(reported.iter().filter(|it| is_new(it)).count(), 1, "{reported:?}");
    assert!(reported.iter().all(|(_, state)| *state != FindingState::Cleared), "{reported:?}");
}
