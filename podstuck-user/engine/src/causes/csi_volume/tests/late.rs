//! A volume that is left when the run begins, and what logs say about it.

use super::*;

#[test]
fn earlier_complaints_of_kubelet_are_reported_at_the_first_sample() {
    let first_look = |complaints: &[i64]| {
        let said = complaints.iter().map(|at| complains(Complaint::NoDriver, *at));
        Late::of(csi(Registration::Absent)).said(said).cause()
    };
    let expected = Some(("csi-driver-not-registered", Certainty::Firm));
    assert_eq!(first_look(&[3000, 3122]), expected);
    let said = [3000, 3122].map(|at| complains(Complaint::NoDriver, at));
    let draft = Late::of(csi(Registration::Absent)).said(said).draft().unwrap();
    assert_eq!(draft.held_by.as_ref().unwrap().to_string(), "the CSI driver d.example");
    let first = draft.remedies[0].words();
    assert!(first.starts_with("start the pod of the driver d.example on this node"), "{first}");
    assert_eq!(first_look(&[3180]), None, "it may be a restart");
    assert_eq!(first_look(&[1000, 1122]), None, "an attempt since met something else");
    assert_eq!(first_look(&[]), None);
}

/// kubelet names an inline volume by its pod, as in secrets-store-csi-driver issue 895.
#[test]
fn a_complaint_about_an_inline_volume_is_known_by_the_pod() {
    let mut volume = csi(Registration::Absent);
    let data = &mut volume.csi.as_mut().unwrap().data;
    let VolumeData::Known { lifecycle, .. } = data else { panic!() };
    *lifecycle = "Ephemeral".into();
    let complaint = |name: &str| {
        let volume = format!("kubernetes.io/csi/{name}");
        [3000, 3122].map(|at| Said { volume: volume.clone(), ..complains(Complaint::NoDriver, at) })
    };
    let cause = |name: &str| Late::of(volume.clone()).said(complaint(name)).cause();
    let expected = Some(("csi-driver-not-registered", Certainty::Firm));
    assert_eq!(cause(&format!("{UID}-pv")), expected);
    assert_eq!(cause("d.example^h"), None);
}

#[test]
fn missing_data_and_repeated_complaints_are_reported_while_kubelet_retries() {
    let live = |seconds: u64, said: &[Said]| {
        let mut volume = csi(Registration::Unknown);
        volume.csi.as_mut().unwrap().data = VolumeData::Missing;
        Late { seconds, ..Late::of(volume) }.said(said.to_vec()).cause().map(|cause| cause.0)
    };
    let lacks = &[complains(Complaint::NoData, 3200)];
    assert_eq!(live(10, lacks), Some("vol-data-missing-or-corrupt"));
    assert_eq!(live(10, &[]), None, "kubelet has not met it");
    assert_eq!(live(4, lacks), None, "it may be a moment's");
}

#[test]
fn no_driver_has_come_since_the_directory_of_their_sockets_was_changed() {
    let first_look = |changed: i64| {
        let mut volume = csi(Registration::Absent);
        volume.csi.as_mut().unwrap().registry_changed = Some(second(changed));
        Late::of(volume).torn_down().cause()
    };
    assert_eq!(first_look(3100), Some(("csi-driver-not-registered", Certainty::Firm)));
    assert_eq!(first_look(3180), None, "it may be a restart");
}

/// kubelet takes any socket in that directory, and asks the driver for its name.
#[test]
fn a_driver_that_answers_is_registered_whatever_its_sockets_name() {
    let first_look = |complaint: Complaint, changed: i64| {
        let mut volume = csi(Registration::Absent);
        volume.csi.as_mut().unwrap().registry_changed = Some(second(changed));
        let said = [3000, 3122].map(|at| complains(complaint, at));
        Late::of(volume).said(said).cause()
    };
    let errors = |changed| first_look(Complaint::DriverError, changed);
    assert_eq!(errors(2900), Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(errors(3130), None, "kubelet's next attempt will show it");
    let expected = Some(("csi-driver-not-registered", Certainty::Firm));
    assert_eq!(first_look(Complaint::NoDriver, 2900), expected);
}

#[test]
fn whether_the_api_server_lists_the_driver_is_a_fact() {
    let node = |drivers: &[&str]| NodeRecord {
        node: "n".into(),
        read: jiff::Timestamp::UNIX_EPOCH,
        ready: None,
        kubelet: None,
        drivers: Some(drivers.iter().map(|name| (*name).into()).collect()),
        missing: Vec::new(),
    };
    for (drivers, fact, is_doubted) in [
        (&["other"][..], "the driver is not listed in CSINode n", false),
        (&["d.example"], "the driver is listed in CSINode n", true),
    ] {
        let mut played = Played::new();
        played.0.take(Monotonic(1), What::Node(node(drivers).into()));
        let gone = pod(vec![csi(Registration::Absent)]);
        let found = (10..80).step_by(2).flat_map(|second| played.sample(&gone, second)).last();
        let Some(Verdict::Found(draft)) = found else { panic!("{found:?}") };
        assert!(draft.evidence.iter().any(|known| known.fact == fact), "{draft:#?}");
        let has_doubt = draft.doubts.iter().any(|doubt| doubt.contains("another name"));
        assert_eq!(has_doubt, is_doubted, "{draft:#?}");
    }
}

#[test]
fn a_driver_that_answers_with_errors_has_not_forgotten() {
    let first_look = |complaints: &[i64]| {
        let said = complaints.iter().map(|at| complains(Complaint::DriverError, *at));
        Late::of(with_driver(as_it_is)).said(said).cause()
    };
    assert_eq!(first_look(&[3000, 3122]), Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(first_look(&[3122]), None, "one may be a moment's");
    assert_eq!(first_look(&[1000, 1122]), None, "an attempt since met something else");
}

#[test]
fn a_driver_that_was_restarted_is_likely_to_answer_as_before() {
    let found = |text: &str, is_mounted: bool| {
        let says = |at| Said { text: text.into(), ..complains(Complaint::DriverError, at) };
        let since = |process: &mut Option<DriverProcess>| {
            process.as_mut().unwrap().started = Monotonic(3_150_000_000_000);
        };
        let mut late = Late::of(with_driver(since)).said([says(3000), says(3122)]);
        if !is_mounted {
            late.pod.volumes[0].mounts.clear();
        }
        late.cause()
    };
    assert_eq!(found("no such volume", true), Some(("csi-driver-error", Certainty::Likely)));
    let not_idempotent = Some(("csi-driver-not-idempotent", Certainty::Likely));
    assert_eq!(found("umount: /v/mount: not mounted.", false), not_idempotent);
    // open-local#118: the driver requires that the mount point is gone.
    let there = format!(
        "volume local-1 at path {}/mount still existed",
        with_driver(as_it_is).path.display()
    );
    assert_eq!(found(&there, false), not_idempotent);
    // pmem-csi#625: the driver did its work in an earlier call.
    let not_found = "rpc error: code = NotFound desc = no volume found with volume id \"csi-1\"";
    assert_eq!(found(not_found, false), not_idempotent);
    assert_eq!(found(not_found, true).unwrap().0, "csi-driver-error", "it is mounted");
    let other = found("the snapshot of /v/mount still exists", false);
    assert_eq!(other.unwrap().0, "csi-driver-error", "of something else");
}

/// pmem-csi#625: each later error is the consequence of the first.
#[test]
fn the_first_error_of_a_driver_is_quoted_where_it_is_another() {
    let first = Said {
        text: "rpc error: code = DeadlineExceeded desc = context deadline exceeded".into(),
        ..complains(Complaint::DriverTimesOut, 2900)
    };
    let says = |at| complains(Complaint::DriverError, at);
    let late = |said: Vec<Said>| Late::of(with_driver(as_it_is)).said(said);
    let quotes = |late: Late| {
        let mut facts = late.facts().into_iter();
        facts.any(|fact| fact.starts_with("the first attempt failed with another error: rpc error"))
    };
    let row = vec![first, says(3000), says(3122)];
    assert_eq!(late(row.clone()).cause().unwrap().0, "csi-driver-error");
    assert!(quotes(late(row)));
    assert!(!quotes(late(vec![says(3000), says(3122)])));
    // A driver that does not know the volume asks for no mount.
    let binds = |text: &str| {
        let says = |at| Said { text: text.into(), ..complains(Complaint::DriverError, at) };
        let mut late = late(vec![says(3000), says(3122)]);
        late.pod.volumes[0].mounts.clear();
        late.draft().unwrap().remedies.iter().any(|it| it.words().contains("mount --bind"))
    };
    assert!(binds("umount: /v/mount: not mounted."));
    assert!(!binds("rpc error: code = NotFound desc = no volume found with volume id \"csi-1\""));
}

/// zfs-localpv#615: the driver checks whether the path exists, and the file system has shut down.
#[test]
fn a_mount_that_the_driver_cannot_look_at_is_unmounted_first() {
    let late = Late::of(with_driver(as_it_is));
    let path = late.pod.volumes[0].mounts[0].point.clone();
    let look = NamedLook { path, outcome: Errno::EIO.into() };
    let fails = |at| Said { looked: Some(look.clone()), ..complains(Complaint::DriverError, at) };
    let draft = late.said([fails(3000), fails(3122)]).draft().unwrap();
    draft.assert_is("csi-driver-error", Certainty::Firm);
    let first = draft.remedies[0].command.as_deref().unwrap_or_default();
    assert!(first.contains("umount"), "{first}");
    assert!(draft.explanation.contains("with EIO"), "{}", draft.explanation);
}

/// blob-csi-driver#474: the driver compares devices, and takes a bind mount of the same one for a directory.
#[test]
fn a_mount_that_the_driver_takes_for_a_directory_is_unmounted_first() {
    let first = |text: &str| {
        let late = Late::of(with_driver(as_it_is));
        let point = late.pod.volumes[0].mounts[0].point.display().to_string();
        let text = text.replace("POINT", &point);
        let says = |at| Said { text: text.clone(), ..complains(Complaint::DriverError, at) };
        let draft = late.said([says(3000), says(3122)]).draft().unwrap();
        draft.assert_is("csi-driver-error", Certainty::Firm);
        draft.remedies[0].words().to_owned()
    };
    let removed =
        first("failed to unmount target \"POINT\": remove POINT: device or resource busy");
    assert!(removed.contains("umount "), "{removed}");
    for (other, act) in [
        ("umount POINT: device or resource busy", "end or unmount what uses "),
        ("remove POINT: permission denied", "look at who refuses root "),
        ("it is not so", "fix the error"),
    ] {
        assert!(first(other).starts_with(act), "{other}");
    }
}

/// vsphere-csi-driver#338.
#[test]
fn the_drivers_own_words_say_what_is_to_be_fixed() {
    let text = "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = Internal desc = error getting block device \
                for volume: 268e, err: lstat devtmpfs: no such file or directory";
    let says = |at| Said { text: text.into(), ..complains(Complaint::DriverError, at) };
    let draft = Late::of(with_driver(as_it_is)).said([says(3000), says(3122)]).draft().unwrap();
    let fix = "fix what the driver's error names: error getting block device for volume: 268e, err: lstat devtmpfs: no such \
               file or directory";
    assert_eq!(draft.remedies[0].words(), fix);
}

/// dell/csm#1782: the driver fails at a mount of its own, and its log names that.
#[test]
fn a_driver_that_fails_at_another_path_may_have_forgotten_nothing() {
    let found = |path: &str| {
        let says = |at| Said {
            text: "rpc error: code = Internal desc = unmount failed: invalid argument".into(),
            ..complains(Complaint::DriverError, at)
        };
        let own = Said {
            component: Component::CsiDriver,
            source: "log of csi-driver (pid 77), /var/log/pods/x".into(),
            text: format!("unmount failed: invalid argument ({path})"),
            ..complains(Complaint::DriverError, 3100)
        };
        let late = || {
            let late = Late::of(with_driver(as_it_is)).said([says(3000), own.clone(), says(3122)]);
            let mut pod = late.pod.clone();
            pod.volumes[0].mounts.clear();
            Late { pod, ..late }
        };
        let first = late().draft().unwrap().remedies[0].words().to_owned();
        (late().cause(), first)
    };
    let target = with_driver(as_it_is).path.join("mount").display().to_string();
    let (cause, first) = found(&target);
    assert_eq!(cause, Some(("csi-driver-not-idempotent", Certainty::Firm)), "{first}");
    let (cause, first) = found("/var/lib/kubelet/plugins/vxflexos/disks/3f5e");
    assert_eq!(cause, Some(("csi-driver-not-idempotent", Certainty::Likely)));
    assert!(first.starts_with("examine /var/lib/kubelet/plugins/vxflexos/disks/3f5e"), "{first}");
}

/// The driver's own log is evidence only, and decides nothing: other pods may use the same volume.
#[test]
fn a_line_of_the_drivers_log_is_evidence_and_not_a_complaint_of_kubelet() {
    let says = |at| Said {
        component: Component::CsiDriver,
        source: "log of csi-driver (pid 77), /var/log/pods/x".into(),
        text: "GRPC error: rpc error: code = NotFound desc = volume h".into(),
        ..complains(Complaint::DriverError, at)
    };
    let late = || Late::of(with_driver(as_it_is));
    assert_eq!(late().said([3000, 3122].map(says)).cause(), None);
    let both = [
        says(3120),
        complains(Complaint::DriverError, 3000),
        complains(Complaint::DriverError, 3122),
    ];
    assert_eq!(late().said(both.clone()).cause(), Some(("csi-driver-error", Certainty::Firm)));
    let facts = late().said(both).facts();
    assert!(facts.iter().any(|fact| fact.starts_with("the CSI driver said at ")), "{facts:?}");
}

#[test]
fn a_driver_that_reported_success_has_forgotten_at_the_first_sample() {
    let lost = ("csi-driver-lost-publish-state", Certainty::Firm);
    let well = || reports(Report::TornDown, 3000);
    let late = || Late::of(with_driver(as_it_is)).said([well()]);
    assert_eq!(late().cause(), Some(lost));
    assert_eq!(late().said([complains(Complaint::DriverError, 2900)]).cause(), Some(lost));
    // kubelet up to 1.29 fails to remove what is still mounted, once the driver has answered.
    let busy = [3000, 3122].map(|at| complains(Complaint::StillMounted, at));
    assert_eq!(Late::of(with_driver(as_it_is)).said(busy).cause(), Some(lost));
    // After its success the driver's state makes no difference.
    let gone = Late::of(with_driver(|process| *process = None)).said([well()]);
    assert_eq!(gone.cause(), Some((lost.0, Certainty::Likely)), "its mounts are gone, too");
    // The driver was called again since, and failed.
    let error = |at| complains(Complaint::DriverError, at);
    let again = late().said([error(3010), error(3132)]).cause();
    assert_eq!(again, Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(late().said([said(3010)]).cause(), None, "an error of another kind");
    // If its mounts are not known, the driver may have unmounted a mount that only it sees.
    let (id, certainty, _, unknown) =
        Late::of(csi(Registration::Listening)).said([well()]).found().unwrap();
    assert_eq!((id, certainty), (lost.0, Certainty::Likely));
    assert!(unknown[0].contains("csi-umount-wrong-namespace"), "{unknown:?}");
}

#[test]
fn a_driver_of_which_only_the_registrar_lives_is_down() {
    let gone = || Late::of(with_driver(|process| *process = None)).torn_down();
    let down = Some(("csi-driver-down", Certainty::Firm));
    assert_eq!(gone().cause(), None, "it may be a restart");
    assert_eq!(Late { seconds: 58, ..gone() }.cause(), None);
    assert_eq!(Late { seconds: 62, ..gone() }.cause(), down);
    let unavailable = |at| complains(Complaint::DriverDown, at);
    assert_eq!(gone().said([unavailable(3000), unavailable(3122)]).cause(), down);
    // kubelet could not connect, and a process listens by now: an old one, or one that was started since.
    let back = |started: u64| {
        let volume = with_driver(|process| {
            process.as_mut().unwrap().started = Monotonic(started * 1_000_000_000);
        });
        Late::of(volume).said([unavailable(3000), unavailable(3122)]).cause()
    };
    assert_eq!(back(3100), Some(("csi-driver-down", Certainty::Likely)));
    assert_eq!(back(3150), None, "kubelet's next attempt reaches it");
}

/// As captured when driver and registrar were killed: kubelet continues to call the driver.
#[test]
fn a_driver_whose_registrar_left_its_socket_is_registered_as_long_as_kubelet_calls_it() {
    use Complaint::{DriverDown, DriverError, DriverHangs, NoDriver};
    let said = |complaints: &[(Complaint, i64)]| {
        let said = complaints.iter().map(|(complaint, at)| complains(*complaint, *at));
        Late { seconds: 62, ..Late::of(csi(Registration::Deaf)) }.said(said).cause()
    };
    let down = [(DriverDown, 3000), (DriverDown, 3122)];
    assert_eq!(said(&down), Some(("csi-driver-down", Certainty::Firm)));
    let lost = [&down[..], &[(NoDriver, 3150), (NoDriver, 3180)]].concat();
    assert_eq!(said(&lost), Some(("csi-driver-not-registered", Certainty::Firm)));
    // The registrar alone has ended.
    let error = [&down[..], &[(DriverError, 3150), (DriverError, 3180)]].concat();
    assert_eq!(said(&error), Some(("csi-driver-error", Certainty::Firm)));
    let hangs = [&down[..], &[(DriverHangs, 3150), (DriverHangs, 3180)]].concat();
    assert_eq!(said(&hangs), Some(("csi-unpublish-hung-lock", Certainty::Firm)));
    // Whether kubelet has the driver in its list is not known.
    let (id, certainty) =
        Late { seconds: 62, ..Late::of(csi(Registration::Deaf)).torn_down() }.cause().unwrap();
    assert_eq!((id, certainty), ("csi-driver-not-registered", Certainty::Likely));
}

#[test]
fn a_driver_that_is_halted_has_not_forgotten() {
    let halted = |by: Halted| {
        let volume = with_driver(|process| process.as_mut().unwrap().halted = Some(by));
        Late::of(volume).torn_down()
    };
    let hangs = "csi-unpublish-hung-lock";
    assert_eq!(halted(Halted::Stopped).cause(), None, "for a moment, as by a debugger");
    let lasts = |by| Late { seconds: 62, ..halted(by) }.cause();
    assert_eq!(lasts(Halted::Stopped), Some((hangs, Certainty::Firm)));
    let group = "/sys/fs/cgroup/freezer/x".into();
    assert_eq!(lasts(Halted::Frozen { group }), Some((hangs, Certainty::Firm)));
    let waits = Halted::Waits { tid: 79, state: 'S', channel: "request_wait_answer".into() };
    assert_eq!(lasts(waits), Some((hangs, Certainty::Likely)));
    let error = |at| complains(Complaint::DriverHangs, at);
    let registered = || Late::of(with_driver(as_it_is));
    let aborted = registered().said([error(3000), error(3122)]).cause();
    assert_eq!(aborted, Some((hangs, Certainty::Firm)));
    // That the first call hangs shows only over time, unless kubelet has already waited for it.
    let aborted = |seconds| Late { seconds, ..registered().said([error(3193), error(3194)]) };
    assert_eq!(aborted(10).cause(), None);
    let timed_out = complains(Complaint::DriverTimesOut, 3192);
    let waited = |seconds| aborted(seconds).said([timed_out.clone()]);
    assert_eq!(waited(0).cause(), None, "it may come back at the second attempt");
    assert_eq!(waited(10).cause(), Some((hangs, Certainty::Firm)));
    // A late run does not repeat the wait that kubelet has made.
    let before = [complains(Complaint::DriverTimesOut, 3150), error(3151), error(3190)];
    let late = Late { seconds: 2, ..registered().said(before) };
    assert_eq!(late.cause(), Some((hangs, Certainty::Firm)));
    // As kubelet 1.36 reports a stopped driver: the connection is there, and no answer comes.
    let stopped = |seconds| {
        let volume = with_driver(|process| {
            process.as_mut().unwrap().halted = Some(Halted::Stopped);
        });
        let unavailable = |at| complains(Complaint::DriverHangs, at);
        Late { seconds, ..Late::of(volume).said([unavailable(3180), unavailable(3195)]) }
    };
    assert_eq!(stopped(0).cause(), None, "for a moment");
    assert_eq!(stopped(10).cause(), Some((hangs, Certainty::Firm)));
    // In a driver without a lock, the second call times out, too.
    let one = Late { seconds: 10, ..registered().said([timed_out.clone()]) };
    assert_eq!(one.cause(), Some((hangs, Certainty::Firm)));
    let well = reports(Report::TornDown, 3199);
    assert_ne!(waited(10).said([well]).cause().map(|it| it.0), Some(hangs));
}

/// ceph-csi#2123: a driver that locks the volume, and not each pod's mount, refuses all pods but one.
#[test]
fn a_driver_that_serves_one_pod_after_the_other_does_not_hang() {
    const OTHER: &str = "1f0e0d0c-1111-2222-3333-444455556666";
    let refused = |locked: &str, at| {
        let text = format!("rpc error: code = Aborted desc = {locked} already exists");
        Said { text, ..complains(Complaint::DriverHangs, at) }
    };
    let of_other = |said: Said| Said { uid: OTHER.into(), ..said };
    let cause = |locked: &str, others: Vec<Said>| {
        let own = [3000, 3122].map(|at| refused(locked, at));
        Late::of(with_driver(as_it_is)).said(own.into_iter().chain(others)).cause()
    };
    let done = |at| vec![of_other(reports(Report::TornDown, at))];
    let (volume, mount) = ("an operation with the given Volume ID h", UID);
    let hangs = |certainty| Some(("csi-unpublish-hung-lock", certainty));
    assert_eq!(cause(volume, done(3100)), Some(("csi-driver-error", Certainty::Firm)));
    assert_eq!(cause(volume, done(2990)), hangs(Certainty::Firm), "before this one began");
    assert_eq!(cause(mount, done(3100)), hangs(Certainty::Firm), "it locks each mount");
    let others_wait = vec![of_other(refused(volume, 3100))];
    assert_eq!(cause(volume, others_wait), hangs(Certainty::Likely), "it may be slow");
}

#[test]
fn threads_that_wait_one_after_the_other_do_not_hang() {
    let mut played = Played::new();
    for at in (10_u32..200).step_by(2) {
        let channel = "folio_wait_bit".into();
        let waits = Halted::Waits { tid: 80 + at % 4, state: 'D', channel };
        let volume = with_driver(|process| process.as_mut().unwrap().halted = Some(waits));
        assert!(played.sample(&pod(vec![volume]), at.into()).is_empty());
    }
}

#[test]
fn an_unmount_that_does_not_propagate_is_known_by_the_drivers_mounts() {
    let with = |reach| with_driver(|process| process.as_mut().unwrap().reach = reach);
    let well = || reports(Report::TornDown, 3000);
    let cut = Late::of(with(Reach::Cut { mounted: false })).said([well()]).cause();
    assert_eq!(cut, Some(("csi-umount-wrong-namespace", Certainty::Firm)));
    // While the driver's namespace has the mount, an unmount by the driver is not proven.
    let cut = Late::of(with(Reach::Cut { mounted: true })).said([well()]).cause();
    assert_eq!(cut, Some(("csi-driver-lost-publish-state", Certainty::Likely)));
    let silent = Late::of(with(Reach::Cut { mounted: false })).torn_down().cause();
    assert_eq!(silent, Some(("csi-umount-wrong-namespace", Certainty::Likely)));
}

#[test]
fn traces_of_other_components_show_since_when() {
    let late = || Late::of(with_driver(as_it_is)).torn_down();
    let (id, certainty, settled, unknown) = late().found().unwrap();
    assert_eq!((id, settled), ("csi-driver-lost-publish-state", true), "{unknown:?}");
    assert_eq!(certainty, Certainty::Possible, "{unknown:?}");
    // kubelet's log begins after the successful attempt, and has no other.
    let heard = Late { heard_since: Some(2000), ..late() }.cause();
    assert_eq!(heard, Some(("csi-driver-lost-publish-state", Certainty::Firm)));
    // The driver's own log has an error about the volume since.
    let says = Said {
        component: Component::CsiDriver,
        source: "log of csi-driver (pid 77), /var/log/pods/x".into(),
        ..complains(Complaint::DriverError, 3100)
    };
    let contradicted = Late { heard_since: Some(2000), ..late() }.said([says]).cause();
    assert_eq!(contradicted, Some(("csi-driver-lost-publish-state", Certainty::Likely)));
    // Since kubelet was restarted, no attempt was due.
    assert_eq!(Late { kubelet_since: 3100, ..late() }.cause(), None);
    let mut touched = late();
    touched.pod.changed = Some(second(3100));
    assert_eq!(touched.cause(), None);
}

#[test]
fn a_kubelet_that_was_started_after_the_end_may_have_lost_the_volume() {
    let late = |kubelet_since, heard_since| {
        let late = Late::of(with_driver(as_it_is)).torn_down();
        Late { kubelet_since, heard_since: Some(heard_since), ..late }
    };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late(2000, 2001).cause(), lost);
    assert_eq!(
        late(2000, 2001).said([reports(Report::TornDown, 2500)]).cause().unwrap().0,
        "csi-driver-lost-publish-state"
    );
    // The kubelet that was started last may not be the pod's.
    let two = Late { kubelets: vec![1, 2], ..late(2000, 2001) }.cause().unwrap();
    assert_eq!(two.0, "csi-driver-lost-publish-state");
    // The log was cut off, or kubelet ran before the pod's end.
    let cut_off = late(2000, 2600).found().unwrap();
    assert_eq!((cut_off.0, cut_off.1), ("csi-driver-lost-publish-state", Certainty::Likely));
    assert_eq!(late(50, 900).cause(), Some(("unmount-not-attempted", Certainty::Possible)));
}

#[test]
fn a_volume_that_kubelet_mounts_again_was_lost_to_it() {
    let mounts = |at| {
        let text = "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found".into();
        Said { text, ..complains(Complaint::MountFails, at) }
    };
    let late = || Late { kubelet_since: 500, ..Late::of(with_driver(as_it_is)).torn_down() };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late().said([mounts(3000), mounts(3122)]).cause(), lost);
    let once = late().said([mounts(3122)]).cause().unwrap();
    assert_ne!(once.0, "kubelet-restart-lost-volume", "it may have succeeded since");
    let running = late().said([mounts(200), mounts(300)]).cause().unwrap();
    assert_ne!(running.0, "kubelet-restart-lost-volume", "while the pod ran");
}

/// kubernetes#85834: the server answers again when kubelet ends the pod, and kubelet tries no mount any more.
#[test]
fn a_volume_that_kubelet_has_not_mounted_since_its_start_is_not_unmounted() {
    let of_log = |said: Said| Said { source: "log of 1".into(), ..said };
    let fails = |at| of_log(complains(Complaint::MountFails, at));
    let late = |heard_since, more: Vec<Said>| {
        let late = Late::of(with_driver(as_it_is)).torn_down();
        let late = Late { kubelet_since: 500, heard_since: Some(heard_since), ..late };
        late.said([fails(600), fails(700)]).said(more).cause()
    };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late(501, vec![]), lost);
    assert_ne!(late(550, vec![]), lost, "it may have been mounted before");
    for report in [Report::SetUp, Report::VolumeStep, Report::TornDown] {
        assert_ne!(late(501, vec![of_log(reports(report, 800))]), lost, "{report:?}");
    }
    let remounted = vec![of_log(reports(Report::SetUp, 550))];
    assert_ne!(late(501, remounted), lost, "a volume that is mounted is updated");
}

/// As in kubernetes issue 128739.
#[test]
fn a_mount_that_failed_after_the_deletion_is_not_tried_again() {
    let fails = |at| {
        let text = "MountVolume.SetUp failed: context deadline exceeded".into();
        Said { text, source: "log of 1".into(), ..complains(Complaint::MountFails, at) }
    };
    let to_go = |at| Said { volume: String::new(), ..reports(Report::ToGo, at) };
    let late = |said: Vec<Said>| {
        let mut late = Late::of(with_driver(as_it_is));
        late.pod.started = false;
        Late { heard_since: Some(1500), ..late }.said(said)
    };
    let lost = Some(("kubelet-restart-lost-volume", Certainty::Firm));
    assert_eq!(late(vec![to_go(1600), fails(1700)]).cause(), lost);
    let others = [
        vec![to_go(1800), fails(1700)],
        vec![fails(1700)],
        vec![to_go(1400), fails(1450)],
        vec![
            to_go(1600),
            fails(1700),
            Said { source: "log of 1".into(), ..reports(Report::VolumeStep, 1701) },
        ],
    ];
    for said in others {
        let found = late(said.clone()).cause();
        assert_ne!(found.map(|it| it.0), Some("kubelet-restart-lost-volume"), "{said:?}");
    }
}

#[test]
fn a_volume_that_kubelet_counts_only_as_attached_was_lost_to_it() {
    let late = |heard_since| {
        let late = Late::of(with_driver(as_it_is)).torn_down();
        Late { kubelet_since: 1001, heard_since: Some(heard_since), ..late }
    };
    let attached = |at| Said { source: "log of 1".into(), ..reports(Report::Attached, at) };
    let step = |at| Said { source: "log of 1".into(), ..reports(Report::VolumeStep, at) };
    let late_by = |at, said: Vec<Said>| {
        late(1500)
            .said([attached(at)])
            .said(said)
            .found()
            .map(|(id, certainty, ..)| (id, certainty))
    };
    let lost = |certainty| Some(("kubelet-restart-lost-volume", certainty));
    assert_eq!(late_by(3190, vec![]), lost(Certainty::Likely));
    assert_eq!(late_by(2000, vec![]), lost(Certainty::Firm));
    // kubelet may be about to mount it, has mounted it, was started again, or its log has a gap.
    let added = Said { volume: String::new(), ..reports(Report::Added, 2500) };
    let error = complains(Complaint::DriverHangs, 2500);
    for (at, said) in [
        (3195, vec![]),
        (2000, vec![step(2001)]),
        (2000, vec![added]),
        (2000, vec![error]),
        (1400, vec![]),
    ] {
        let found = late_by(at, said.clone());
        assert_ne!(found.map(|it| it.0), Some("kubelet-restart-lost-volume"), "{at} {said:?}");
    }
    // Another kubelet's log says nothing about it.
    let two = Late { kubelets: vec![1, 2], ..late(1500).said([attached(2000)]) };
    assert_eq!(two.cause().map(|it| it.0), Some("kubelet-restart-lost-volume"));
}

#[test]
fn a_driver_that_tries_to_unmount_nothing_stays_the_cause() {
    let started = Monotonic(1_000_000_000);
    let mut gone = pod(vec![with_driver(|process| process.as_mut().unwrap().started = started)]);
    gone.volumes[0].mounts.clear();
    let text = "rpc error: code = Internal desc = umount \"/v/mount\": Invalid argument";
    let mut played = Played::new();
    for at in [6, 8] {
        let error = Said { text: text.into(), ..complains(Complaint::DriverError, at) };
        played.0.take(Monotonic(8_000_000_000), What::Said(Box::new(error)));
    }
    let found = played.sample(&gone, 10);
    assert!(matches!(&*found, [Verdict::Found(_)]), "{found:?}");
    let mut op = umount(Some(Errno::EINVAL), 11.0, 1);
    op.target_id = gone.volumes[0].target_id;
    let over = played.0.take(op.end, What::Operation(Box::new(op))).verdicts;
    assert!(over.is_empty(), "{over:?}");
    let found = played.sample(&gone, 12);
    assert!(matches!(&*found, [Verdict::Found(_)]), "{found:?}");
}

/// aws-fsx-csi-driver#495: its `umount` is in the kernel, which has taken the mount from the table.
#[test]
fn a_driver_that_works_on_an_earlier_call_hangs_also_where_nothing_is_mounted_any_more() {
    let unmounted = |said: [Said; 2]| {
        let mut late = Late::of(with_driver(as_it_is)).said(said);
        late.pod.volumes[0].mounts.clear();
        late.cause()
    };
    let hangs = |at| complains(Complaint::DriverHangs, at);
    let its = Some(("csi-unpublish-hung-lock", Certainty::Likely));
    assert_eq!(unmounted([hangs(3000), hangs(3122)]), its);
    let times_out = complains(Complaint::DriverTimesOut, 3000);
    assert_eq!(unmounted([times_out, hangs(3122)]), its);
    let down = |at| complains(Complaint::DriverDown, at);
    assert_ne!(unmounted([down(3000), down(3122)]), its, "it is not there");
}

#[test]
fn after_a_boot_a_driver_may_have_nothing_to_unmount() {
    let error = |at| complains(Complaint::DriverError, at);
    let mut late = Late::of(with_driver(as_it_is)).said([error(3000), error(3122)]);
    late.pod.volumes[0].mounts.clear();
    (late.pod.started, late.pod.before_boot) = (false, true);
    assert_eq!(late.cause(), Some(("csi-driver-not-idempotent", Certainty::Firm)));
    // Without a boot, a step of the driver after its unmount may fail.
    let mut late = Late::of(with_driver(as_it_is)).said([error(3000), error(3122)]);
    late.pod.volumes[0].mounts.clear();
    assert_eq!(late.cause(), Some(("csi-driver-error", Certainty::Likely)));
    // As recorded from a driver that calls umount without a check.
    let says = |at| {
        let text =
            "rpc error: code = Internal desc = umount \"/v/mount\": Invalid argument (os error 22)";
        Said { text: text.into(), ..error(at) }
    };
    let mut late = Late::of(with_driver(as_it_is)).said([says(3000), says(3122)]);
    late.pod.volumes[0].mounts.clear();
    assert_eq!(late.cause(), Some(("csi-driver-not-idempotent", Certainty::Firm)));
    // The pod may be about to start again.
    let mut late = Late { seconds: 400, ..Late::of(with_driver(as_it_is)) };
    (late.pod.started, late.pod.before_boot) = (false, true);
    assert_eq!(late.cause(), None);
    let mut late = Late { seconds: 62, ..Late::of(csi(Registration::Unknown)) };
    (late.pod.started, late.pod.before_boot) = (false, true);
    late.pod.volumes[0].csi.as_mut().unwrap().data = VolumeData::Corrupt { size: 0 };
    assert_eq!(late.cause(), Some(("vol-data-missing-or-corrupt", Certainty::Likely)));
}
