//! device: facts against verdicts.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    causes::device::{
        block_volume::BlockVolumes, pinned::PinnedDevices, referenced::DeviceReferences,
    },
    event::What,
    model::{
        block_volume::{BlockVolume, DeviceUser},
        call::{Call, Outcome},
        errno::Errno,
        evidence::Certainty,
        holder::{Detached, How, MountedFrom, Snapshot, Through},
        identity::Component,
        mounts::{Mounts, NodeMounts},
        node::{NodeSample, PodState},
        path::JsonPath,
        said::{Complaint, Report, Said},
        time::Monotonic,
    },
    query::{Answer, Query},
    testing::{Alone, block_volume, failed, found, holder, holder_of, mounts, pod_state, snapshot},
    tracker::{Steps, TrackerId},
    verdict::{Draft, Verdict},
};

const VOLUME: &str = "kubernetes.io/csi/block.example^h-1";

fn at(second: u64) -> Monotonic {
    Monotonic(second * 1_000_000_000)
}

fn said(second: i64, error: &str) -> What {
    let time = Timestamp::from_second(second).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet", "u", time, error);
    let complaint = error.contains("busy").then_some(Complaint::MapBusy);
    What::Said(Box::new(Said { volume: VOLUME.into(), complaint, ..said }))
}

fn look(
    all: &mut Alone<BlockVolumes>,
    second: u64,
    populated: bool,
    change: impl FnOnce(&mut BlockVolume),
) -> Steps {
    let mut volume = block_volume("u", "pv");
    change(&mut volume);
    let pod = PodState { populated: Some(populated), devices: vec![volume], ..pod_state("u") };
    let sample = NodeSample { at: at(second), pods: vec![pod], ..NodeSample::default() };
    all.take(at(second), What::Sample(sample.into()))
}

fn ids(steps: Steps) -> Vec<(&'static str, Certainty)> {
    found(steps.verdicts).iter().map(|draft| (draft.id(), draft.certainty())).collect()
}

fn encrypted(volume: &mut BlockVolume) {
    volume.users = vec![DeviceUser {
        name: "dm-3".into(),
        what: "encrypted volume osd".into(),
        of: "sdb".into(),
        source: "/sys/class/block/sdb/holders/dm-3".into(),
    }];
}

#[test]
fn a_volume_that_kubelet_fails_to_unmap_is_reported_with_its_holder() {
    let mut all = Alone::<BlockVolumes>::new();
    all.take(at(1), said(1, "umount: /k/map: target is busy."));
    assert!(ids(look(&mut all, 2, true, |_| {})).is_empty(), "its containers run");
    // Only the log shows the failure.
    let findings = ids(look(&mut all, 4, false, |_| {}));
    assert_eq!(findings, [("raw-block-volume-in-use", Certainty::Likely)]);
    let steps = look(&mut all, 6, false, |_| {});
    let [query] = &steps.queries[..] else { panic!("{:?}", steps.queries) };
    assert!(query.path.ends_with("dev/u"), "{query:?}");
    let held = snapshot(vec![holder(How::Fd, Through::Itself, Some(true))]);
    let answer = Box::new(Answer::Holders(Ok(held)));
    let query = Box::new(query.clone());
    let drafts = found(all.take(at(7), What::Answer { query, answer }).verdicts);
    assert_eq!(drafts[0].certainty(), Certainty::Firm);
    assert_eq!(drafts[0].blocks_deletion, Some(true));
    let facts: Vec<&str> = drafts[0].evidence.iter().map(|fact| fact.fact.as_str()).collect();
    assert!(facts.iter().any(|fact| fact.contains("volumeDevices/kubernetes.io~csi/pv")));
    assert!(facts.iter().any(|fact| fact.contains("has it open")), "{facts:?}");
}

/// vsphere-csi-driver#338: no process holds it, and the driver fails by itself.
#[test]
fn a_driver_that_fails_is_named_where_no_process_holds_the_device() {
    let error = "blockMapper.UnmapPodDevice failed: rpc error: code = Internal desc = error getting block device for \
        volume: h-1, err: lstat devtmpfs: no such file or directory";
    let published = |volume: &mut BlockVolume| {
        let point = volume.leads_to.clone().unwrap();
        volume.mounts.push(crate::testing::mounted(&point, 78));
    };
    let finding = |error: &str, holders: Vec<_>| {
        let mut all = Alone::<BlockVolumes>::new();
        let What::Said(line) = said(1, error) else { panic!() };
        let complaint = Some(Complaint::DriverError);
        all.take(at(1), What::Said(Box::new(Said { complaint, ..*line })));
        look(&mut all, 2, false, published);
        let steps = look(&mut all, 4, false, published);
        let [query] = &steps.queries[..] else { panic!("{:?}", steps.queries) };
        let answer = Box::new(Answer::Holders(Ok(snapshot(holders))));
        let query = Box::new(query.clone());
        found(all.take(at(5), What::Answer { query, answer }).verdicts).pop().unwrap()
    };
    let draft = finding(error, Vec::new());
    draft.assert_is("raw-block-volume-in-use", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), "CSI driver block.example");
    let first = draft.remedies[0].words();
    assert!(first.contains("umount ") && first.contains("/publish/pv/u"), "{first}");
    let held = finding(error, vec![holder(How::Fd, Through::Itself, Some(true))]);
    assert_ne!(holder_of(&held.held_by), "CSI driver block.example");
    let busy = finding("rpc error: code = Internal desc = umount: target is busy", Vec::new());
    assert_eq!(busy.held_by, None);
}

/// csm#1042: kubelet has mapped a file, because the driver's mount of the device is not on the node.
#[test]
fn a_map_on_which_a_file_is_mounted_is_unmounted_by_hand() {
    let error = "blkUtil.DetachFileDevice failed. globalUnmapPath:/k/dev, podUID: u, bindMount: true: failed to remove file \
        /k/dev/u: remove /k/dev/u: device or resource busy";
    let finding = |what: &str| {
        let mut all = Alone::<BlockVolumes>::new();
        all.take(at(1), said(1, error));
        let steps = look(&mut all, 4, false, |volume| {
            let map = volume.map.clone().unwrap();
            let mount = crate::testing::mounted(&map, 78);
            volume.mounts = vec![crate::model::mounted::Mounted { what: what.into(), ..mount }];
        });
        found(steps.verdicts).pop().unwrap()
    };
    let file = finding("directory /k/publish/u of /dev/vda (ext4), device 254:0");
    file.assert_is("raw-block-volume-in-use", Certainty::Likely);
    assert_eq!(holder_of(&file.held_by), "kubelet");
    let first = file.remedies[0].words();
    assert!(first.contains("umount ") && first.contains("/dev/u"), "{first}");
    let has = |draft: &Draft| draft.remedies.iter().any(|it| it.words().contains("Bidirectional"));
    assert!(has(&file) && file.explanation.contains("no device"), "{}", file.explanation);
    let device = finding("directory /sdb of udev (devtmpfs), device 0:6");
    assert!(!has(&device) && device.remedies[0].words().contains("umount "));
}

#[test]
fn a_device_that_is_made_of_it_is_likely_what_keeps_it() {
    let mut all = Alone::<BlockVolumes>::new();
    assert!(ids(look(&mut all, 2, false, encrypted)).is_empty(), "kubelet needs a moment");
    let findings = ids(look(&mut all, 40, false, encrypted));
    assert_eq!(findings, [("raw-block-volume-in-use", Certainty::Likely)]);
    let over = look(&mut all, 42, false, |_| {}).verdicts;
    assert!(matches!(over[..], [Verdict::Over { .. }]), "{over:?}");
}

/// kubernetes#110163: kubelet's loop device is not detached while LVM has a volume on it.
#[test]
fn of_devices_that_are_made_of_one_another_the_last_goes_first() {
    let user = |name: &str, of: &str| DeviceUser {
        name: name.into(),
        what: String::new(),
        of: of.into(),
        source: String::new(),
    };
    let first = |users: Vec<DeviceUser>| {
        let mut all = Alone::<BlockVolumes>::new();
        all.take(at(1), said(1, "umount: /k/map: target is busy."));
        let on_it = |volume: &mut BlockVolume| volume.users.clone_from(&users);
        look(&mut all, 2, false, on_it);
        let steps = look(&mut all, 4, false, on_it);
        let [query] = &steps.queries[..] else { panic!("{:?}", steps.queries) };
        let held = snapshot(vec![holder(How::Loop, Through::Itself, Some(true))]);
        let (answer, query) = (Box::new(Answer::Holders(Ok(held))), Box::new(query.clone()));
        let draft = found(all.take(at(5), What::Answer { query, answer }).verdicts).pop().unwrap();
        (
            holder_of(&draft.held_by),
            draft.remedies.iter().map(|it| it.words().to_string()).collect::<Vec<_>>(),
        )
    };
    let (who, ways) = first(vec![user("loop3", "/k/map"), user("dm-4", "loop3")]);
    assert_eq!(who, "dm-4 is built on loop3");
    assert!(ways[0].contains("vgchange --activate n"), "{ways:?}");
    assert!(ways.iter().all(|way| !way.contains("losetup -d")), "it has no effect: {ways:?}");
    let (who, ways) = first(vec![user("loop3", "/k/map"), user("loop5", "/dev/loop3")]);
    assert_eq!(who, "loop5 is built on /dev/loop3");
    assert!(
        ways[0].contains("losetup -d /dev/loop5") && ways[0].contains("/sys/block/loop5"),
        "{ways:?}"
    );
    let (_, ways) = first(vec![user("loop3", "/k/map")]);
    assert!(ways[0].contains("losetup -d /dev/loop3"), "{ways:?}");
}

#[test]
fn without_a_log_line_or_a_holder_nothing_is_blamed() {
    let mut all = Alone::<BlockVolumes>::new();
    for second in [2, 40, 80] {
        assert!(ids(look(&mut all, second, false, |_| {})).is_empty());
    }
    // An error before an unmap, or one of long ago, is no fault.
    all.take(at(81), said(81, "x"));
    let What::Said(done) = said(82, "UnmapVolume succeeded") else { panic!() };
    let done = Said { report: Some(Report::Unmapped), ..*done };
    all.take(at(82), What::Said(Box::new(done)));
    assert!(ids(look(&mut all, 84, false, |_| {})).is_empty());
    all.take(at(90), said(90, "x"));
    assert_eq!(ids(look(&mut all, 92, false, |_| {})).len(), 1);
    assert!(ids(look(&mut all, 900, false, |_| {})).is_empty());
}

/// The node's namespace is 1, like that of the sample's calls; 5 is another one.
fn sample(pinned: &mut Alone<PinnedDevices>, second: u64, node: bool, other: bool) -> Steps {
    sample_between(pinned, [second, second], node, other)
}

/// A sample that is read from one second to another.
fn sample_between(
    pinned: &mut Alone<PinnedDevices>,
    [begun, over]: [u64; 2],
    node: bool,
    other: bool,
) -> Steps {
    let line = format!("9 2 7:0 / {VOLUME} rw - ext4 /dev/loop0 rw\n");
    let table =
        |pid, there: bool| Arc::new(Mounts { pid, ..mounts(if there { &line } else { "" }) });
    let tables = BTreeMap::from([(1, table(1, node)), (5, table(77, other))]);
    let [begun, at] = [begun, over].map(|second| Monotonic(second * 1_000_000_000));
    let mounts = NodeMounts { tables, host: Some(1) };
    let sample = NodeSample { at, begun: Some(begun), mounts, ..NodeSample::default() };
    pinned.take(at, What::Sample(Arc::new(sample)))
}

fn unmounted() -> Alone<PinnedDevices> {
    let mut pinned = Alone::<PinnedDevices>::new();
    sample(&mut pinned, 0, true, true);
    let mut op = failed(Call::Umount2, Errno::EBUSY, "", 1.0);
    op.path = VOLUME.into();
    op.outcome = Outcome::OK;
    pinned.ask(&op);
    pinned
}

fn answer(pinned: &mut Alone<PinnedDevices>, query: &Query, taken: Snapshot) -> Vec<Verdict> {
    let (query, answer) = (Box::new(query.clone()), Box::new(Answer::Holders(Ok(taken))));
    pinned.take(Monotonic(20_000_000_000), What::Answer { query, answer }).verdicts
}

#[test]
fn a_mount_in_another_namespace_is_reported_and_then_over() {
    let mut pinned = unmounted();
    assert!(sample(&mut pinned, 2, false, true).queries.is_empty(), "too soon");
    let queries = sample(&mut pinned, 4, false, true).queries;
    let held = snapshot(vec![holder(How::Mount, Through::Itself, None)]);
    let said = answer(&mut pinned, &queries[0], held);
    let [Verdict::Found(draft)] = &said[..] else { panic!("no finding: {said:?}") };
    assert_eq!(
        (draft.id(), draft.blocks_deletion),
        ("leaked-superblock-blocks-device", Some(false))
    );
    assert!(draft.remedies[0].words().ends_with("umount --internal-only --namespace 77 /v"));
    let queries = sample(&mut pinned, 6, false, false).queries;
    let said = answer(&mut pinned, &queries[0], snapshot(Vec::new()));
    let pinned_device = TrackerId::PinnedDevice;
    assert!(
        matches!(said[..], [Verdict::Over { tracker, .. }] if tracker == pinned_device),
        "{said:?}"
    );
    assert!(pinned.tracker.devices.is_empty());
}

/// `umount2` with `MNT_DETACH` succeeds while a file is open. No mount table has the mount any more.
#[test]
fn a_detached_mount_that_an_open_file_keeps_is_named() {
    let mut pinned = unmounted();
    sample(&mut pinned, 2, false, false);
    let queries = sample(&mut pinned, 4, false, false).queries;
    let from = |root: &str| MountedFrom {
        fs_type: "ext4".into(),
        source: "/dev/loop0".into(),
        root: JsonPath(root.into()),
    };
    let mut open = holder(How::Fd, Through::Detached, None);
    open.mount.namespace = None;
    open.mount.detached = Some(Detached::Known(from("/")));
    let mut other = open.clone();
    (other.pid, other.mount.id) = (Some(78), 10);
    other.mount.detached = Some(Detached::Known(from("/sub")));
    let said = answer(&mut pinned, &queries[0], snapshot(vec![open, other]));
    let [Verdict::Found(draft)] = &said[..] else { panic!("no finding: {said:?}") };
    let facts: Vec<&str> = draft.evidence.iter().map(|it| it.fact.as_str()).collect();
    let expected = [
        "backup (pid 77) has it open: /v/x; mount 9 of /dev/loop0 of type ext4, which is no \
         longer in any mount namespace, and was the one that was unmounted",
        "backup (pid 78) has it open: /v/x; mount 10 of directory /sub of /dev/loop0 (ext4), which \
         is no longer in any mount namespace",
    ];
    assert_eq!(facts[facts.len() - 2..], expected);
    assert!(draft.explanation.contains("`umount -l`"), "{}", draft.explanation);
}

#[test]
fn a_device_that_the_node_still_uses_is_no_leak() {
    let mut pinned = unmounted();
    for second in [2, 4, 6] {
        let steps = sample(&mut pinned, second, true, true);
        assert!(steps.queries.is_empty() && steps.verdicts.is_empty());
    }
    assert!(pinned.tracker.devices.is_empty());
}

#[test]
fn a_sample_during_the_unmount_decides_nothing() {
    let mut pinned = unmounted();
    assert!(sample_between(&mut pinned, [0, 3], true, true).queries.is_empty(), "read before it");
    assert!(sample(&mut pinned, 5, false, true).queries.is_empty());
    assert_eq!(sample(&mut pinned, 7, false, true).queries.len(), 1);
    // A sample may read the table after the unmount, and arrive before the unmount does.
    let mut pinned = Alone::<PinnedDevices>::new();
    sample(&mut pinned, 0, true, true);
    sample_between(&mut pinned, [0, 2], false, true);
    let mut op = failed(Call::Umount2, Errno::EBUSY, "", 1.0);
    (op.path, op.outcome) = (VOLUME.into(), Outcome::OK);
    pinned.ask(&op);
    assert_eq!(pinned.tracker.devices.len(), 1);
}

#[test]
fn a_container_that_ends_soon_is_no_leak() {
    let mut pinned = unmounted();
    sample(&mut pinned, 2, false, true);
    let queries = sample(&mut pinned, 4, false, false).queries;
    assert!(answer(&mut pinned, &queries[0], snapshot(Vec::new())).is_empty());
    assert!(pinned.tracker.devices.is_empty());
}

const STAGED: &str = "/k/plugins/kubernetes.io/csi/d.example/0a/globalmount";
const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

fn said_of_referenced(second: i64, complaint: Option<Complaint>, text: &str) -> What {
    let time = Timestamp::from_second(second).unwrap();
    let said = Said::new(Component::Kubelet, "log of kubelet", "", time, text);
    let report = complaint.is_none().then_some(Report::DeviceReleased);
    let volume = "kubernetes.io/csi/d.example^h".into();
    What::Said(Box::new(Said { volume, complaint, report, ..said }))
}

fn refused(second: i64) -> What {
    let text = format!(
        "The device mount path \"{STAGED}\" is still mounted by other references [/mnt/copy]"
    );
    said_of_referenced(second, Some(Complaint::DeviceMounted), &text)
}

fn referenced_verdicts(
    all: &mut Alone<DeviceReferences>,
    second: u64,
    table: &str,
) -> Vec<Verdict> {
    let tables = [(1, Arc::new(mounts(table)))].into();
    let mounts = NodeMounts { tables, host: Some(1) };
    let sample = NodeSample { at: at(second), mounts, ..NodeSample::default() };
    all.take(at(second), What::Sample(sample.into())).verdicts
}

fn only(verdicts: Vec<Verdict>) -> Draft {
    let mut drafts = found(verdicts);
    assert_eq!(drafts.len(), 1, "{drafts:?}");
    drafts.remove(0)
}

#[test]
fn a_reference_that_is_there_is_firm_and_over_when_it_is_gone() {
    let mut all = Alone::<DeviceReferences>::new();
    let staged = format!("9 2 8:16 / {STAGED} rw - ext4 /dev/sdb rw\n");
    let copy = "10 2 8:16 / /mnt/copy rw - ext4 /dev/sdb rw\n";
    assert!(
        referenced_verdicts(&mut all, 1, &format!("{staged}{copy}")).is_empty(),
        "kubelet says nothing"
    );
    all.take(at(2), refused(2));
    let draft = only(referenced_verdicts(&mut all, 3, &format!("{staged}{copy}")));
    draft.assert_is("device-still-referenced", Certainty::Firm);
    assert_eq!(draft.blocks_deletion, Some(false));
    let commands: Vec<_> = draft.remedies.iter().filter_map(|it| it.command.as_deref()).collect();
    assert!(commands.len() == 1 && commands[0].contains("/mnt/copy"), "{commands:?}");
    let said = referenced_verdicts(&mut all, 5, &staged);
    assert!(matches!(said[..], [Verdict::Over { .. }]), "{said:?}");
}

#[test]
fn kubelets_own_mounts_and_other_directories_are_no_references() {
    let mut all = Alone::<DeviceReferences>::new();
    all.take(at(2), refused(2));
    let table = format!(
        "9 2 8:16 / {STAGED} rw - ext4 /dev/sdb rw\n\
         10 2 8:16 / /rootfs{STAGED} rw - ext4 /dev/sdb rw\n\
         11 2 8:16 /sub /mnt/sub rw - ext4 /dev/sdb rw\n\
         12 2 8:32 / /mnt/other rw - ext4 /dev/sdc rw\n"
    );
    assert!(referenced_verdicts(&mut all, 3, &table).is_empty());
}

#[test]
fn a_pods_own_mount_is_to_be_diagnosed_and_not_unmounted() {
    let mut all = Alone::<DeviceReferences>::new();
    all.take(at(2), refused(2));
    let volume = format!("/k/pods/{UID}/volumes/kubernetes.io~csi/pv/mount");
    let table = format!(
        "9 2 8:16 / {STAGED} rw - ext4 /dev/sdb rw\n10 2 8:16 / {volume} rw - ext4 /dev/sdb rw\n"
    );
    let draft = only(referenced_verdicts(&mut all, 3, &table));
    assert!(draft.remedies.iter().all(|remedy| remedy.command.is_none()), "{:?}", draft.remedies);
    assert!(draft.remedies[0].words().contains(UID));
}

#[test]
fn what_only_the_log_says_is_likely_and_grows_old() {
    let in_use = "the device is in use when it was no longer expected to be in use";
    let mut all = Alone::<DeviceReferences>::new();
    all.take(at(2), said_of_referenced(2, Some(Complaint::DeviceInUse), in_use));
    let draft = only(referenced_verdicts(&mut all, 3, ""));
    assert!(draft.certainty() < Certainty::Firm);
    let late = referenced_verdicts(&mut all, 400, "");
    assert!(matches!(late[..], [Verdict::Over { .. }]), "{late:?}");
    all.take(at(401), said_of_referenced(401, Some(Complaint::DeviceInUse), in_use));
    assert_eq!(found(referenced_verdicts(&mut all, 402, "")).len(), 1);
    let done = all.take(at(403), said_of_referenced(403, None, "UnmountDevice succeeded")).verdicts;
    assert!(matches!(done[..], [Verdict::Over { .. }]), "{done:?}");
    assert!(referenced_verdicts(&mut all, 404, "").is_empty());
}

#[test]
fn a_raw_device_that_is_mapped_for_a_pod_is_still_referenced() {
    let mut all = Alone::<DeviceReferences>::new();
    let text = "The device \"/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev\" is still referenced from \
                other Pods [/k/plugins/kubernetes.io/csi/volumeDevices/pv/dev/u]";
    all.take(at(2), said_of_referenced(2, Some(Complaint::DeviceMapped), text));
    let mut with = |second: u64, devices| {
        let pods = vec![PodState { devices, ..pod_state("u") }];
        let sample = NodeSample { at: at(second), pods, ..NodeSample::default() };
        only(all.take(at(second), What::Sample(sample.into())).verdicts).certainty()
    };
    assert_eq!(with(3, vec![block_volume("u", "pv")]), Certainty::Firm);
    assert_eq!(with(4, vec![block_volume("u", "other")]), Certainty::Likely);
}
