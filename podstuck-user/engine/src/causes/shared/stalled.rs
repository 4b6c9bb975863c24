//! Block devices that complete no request, followed to the last one, and what serves that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    command::Step,
    model::{
        chain::Who,
        disk::{Disk, NvmeController, ServedBy},
        evidence::Source,
        mounts::Device,
        node::NodeSample,
        path::safe_path,
        shell::word,
        time::Monotonic,
    },
    verdict::Draft,
};

/// How long a device must complete nothing. A busy disk completes a request within milliseconds, and the kernel resets a
/// controller after 30 s at the earliest.
const LASTS: Duration = Duration::from_secs(5);
/// Devices below each other.
const DEPTH: usize = 16;

/// The devices of the last sample that have requests in flight.
#[derive(Default)]
pub(crate) struct Stalled {
    disks: Vec<Disk>,
    /// By device: the number of completed requests, and since when it is this.
    since: BTreeMap<Device, (u64, Monotonic)>,
    at: Monotonic,
}

/// A device that does not answer: the last one below the device in question.
#[derive(Clone, Copy)]
pub(crate) struct Silent<'a> {
    pub(crate) disk: &'a Disk,
    /// Since when it has completed nothing; `None` for a suspended one.
    since: Option<Monotonic>,
    at: Monotonic,
}

impl Stalled {
    /// Takes the devices of a sample.
    pub(crate) fn sampled(&mut self, sample: &NodeSample) {
        let known = std::mem::take(&mut self.since);
        for disk in sample.disks.iter().filter(|disk| disk.in_flight > 0) {
            let is_same = |(done, _): &&(u64, Monotonic)| *done == disk.done;
            let known = known.get(&disk.device).filter(is_same).copied();
            self.since.insert(disk.device, known.unwrap_or((disk.done, sample.at)));
        }
        self.disks.clone_from(&sample.disks);
        self.at = sample.at;
    }

    /// The device that keeps this one from answering; `None` where it answers, or has nothing to do.
    pub(crate) fn below(&self, device: Device) -> Option<Silent<'_>> {
        let disk = self.disks.iter().find(|disk| disk.device == device)?;
        let mut last = self.silent(disk)?;
        for _ in 0..DEPTH {
            let below = self.disks.iter().filter(|disk| last.disk.below.contains(&disk.name));
            let Some(next) = below.filter_map(|disk| self.silent(disk)).next() else { break };
            last = next;
        }
        Some(last)
    }

    /// All devices that do not answer and have none below that does not.
    pub(crate) fn all(&self) -> Vec<Silent<'_>> {
        let last = self.disks.iter().filter_map(|disk| self.below(disk.device));
        let mut seen = BTreeSet::new();
        last.filter(|silent| seen.insert(silent.disk.device)).collect()
    }

    fn silent<'a>(&'a self, disk: &'a Disk) -> Option<Silent<'a>> {
        let (at, since) = (self.at, self.since.get(&disk.device).map(|(_, since)| *since));
        if disk.is_suspended() {
            return Some(Silent { disk, since: None, at });
        }
        since.filter(|since| at.since(*since) >= LASTS)?;
        Some(Silent { disk, since, at })
    }
}

impl Silent<'_> {
    /// Adds that it does not answer, and what serves it.
    pub(crate) fn tell(self, draft: &mut Draft) {
        let Disk { name, in_flight, .. } = self.disk;
        if let Some(since) = self.since {
            let lasts = self.at.since(since).as_secs();
            draft.fact_since(
                format!(
                    "{name} has {in_flight} {} in flight and has completed none for {lasts} s at least",
                    if *in_flight == 1 { "request" } else { "requests" }
                ),
                Source::proc("/proc/diskstats"),
                since,
            );
        }
        if let Some((words, file)) = self.served() {
            draft.fact(format!("{name} is {words}"), Source::file(self.attribute(file)));
        }
    }

    /// The device as what a process waits for.
    pub(crate) fn words(self) -> String {
        let name = &self.disk.name;
        let served = self.served().map(|(words, _)| format!(" ({words})")).unwrap_or_default();
        match self.since {
            Some(_) => format!("{name}{served} to complete a request"),
            None => format!("{name}{served} to be resumed"),
        }
    }

    fn attribute(self, file: &str) -> String {
        format!("/sys/class/block/{}/{file}", self.disk.name)
    }

    /// What it is, and the attribute that shows it.
    fn served(self) -> Option<(String, &'static str)> {
        Some(match self.disk.served_by.as_ref()? {
            ServedBy::File { path, mount } => {
                let on = mount.as_ref().map(|mount| format!(", on {mount}")).unwrap_or_default();
                (format!("a loop device of the file {}{on}", safe_path(path)), "loop/backing_file")
            }
            ServedBy::Mapper { name, kind, is_suspended } => {
                let kind = if kind.is_empty() { "device" } else { kind };
                let is = if *is_suspended { ", which is suspended" } else { "" };
                (format!("the {kind} {name} of the device mapper{is}"), "dm/suspended")
            }
            ServedBy::Iscsi { target, portal, state } => (
                format!("a disk of the iSCSI target {target} at {portal}; its session is {state}"),
                "device",
            ),
            ServedBy::FibreChannel { port, state } => {
                (format!("a disk behind the Fibre Channel port {port}, which is {state}"), "device")
            }
            ServedBy::Nvme { controllers } => {
                let all: Vec<String> = controllers.iter().map(controller).collect();
                (format!("a disk of the NVMe controller {}", all.join(" and ")), "device")
            }
            ServedBy::Nbd { pid: Some(pid) } => {
                (format!("a network block device that process {pid} has connected"), "pid")
            }
            ServedBy::Nbd { pid: None } => {
                ("a network block device that no process has connected".into(), "pid")
            }
            ServedBy::Rbd { image } => {
                (format!("the RBD image {image} of a Ceph cluster"), "device")
            }
            ServedBy::Scsi { state } => {
                (format!("a SCSI disk in the state {state}"), "device/state")
            }
        })
    }

    /// The device and what serves it.
    pub(crate) fn who(self) -> Who {
        let served = self.served().map(|(words, _)| format!(", {words}")).unwrap_or_default();
        Who::object(&self.disk.name).and(&served)
    }

    /// Adds what brings it back; `doubt` is a clause on whether the call waits for it.
    pub(crate) fn release(self, draft: &mut Draft, doubt: &str) {
        const LOST: &str = "none; removing the device instead makes its requests fail, and what was not yet written \
            is lost";
        let name = &self.disk.name;
        let bring_back = match &self.disk.served_by {
            Some(ServedBy::Mapper { name: mapped, is_suspended: true, .. }) => {
                let check = format!("[ \"$(cat {})\" = 1 ]", self.attribute("dm/suspended"));
                draft.remedy(
                    Step::new(
                        format!("resume the device {mapped} of the device mapper{doubt}"),
                        format!("dmsetup resume {}", word(mapped)),
                    )
                    .only_if(check, "it is suspended".into()),
                    "low, unless a snapshot or a new table in progress has suspended it: check that first",
                );
                return;
            }
            Some(ServedBy::File { path, mount }) => {
                let on = mount.as_ref().map(|mount| format!(" on {mount}")).unwrap_or_default();
                format!(
                    "the file system of the file {}{on}: its server, or its disk",
                    safe_path(path)
                )
            }
            Some(ServedBy::Iscsi { target, portal, .. }) => {
                format!(
                    "the iSCSI target {target} at {portal} (`iscsiadm --mode session` lists the sessions)"
                )
            }
            Some(ServedBy::FibreChannel { port, .. }) => {
                format!("the Fibre Channel port {port}, or another path to the disk")
            }
            Some(ServedBy::Nvme { controllers }) => {
                let all: Vec<String> = controllers.iter().map(controller).collect();
                format!("the NVMe controller {}", all.join(" or "))
            }
            Some(ServedBy::Nbd { .. }) => format!("the server of the network block device {name}"),
            Some(ServedBy::Rbd { image }) => {
                format!("the Ceph cluster with the RBD image {image} (`ceph health`, on a monitor)")
            }
            Some(ServedBy::Mapper { name: mapped, kind, .. }) if kind == "multipath device" => {
                format!(
                    "a path of the multipath device {mapped} (`multipath -ll` lists them); or let its requests fail, \
                     where it queues them without a path: `multipathd disablequeueing map {mapped}`"
                )
            }
            _ => format!("the disk {name}"),
        };
        draft.advice(format!("bring back {bring_back}{doubt}"), LOST);
    }
}

fn controller(controller: &NvmeController) -> String {
    let NvmeController { name, transport, address, state } = controller;
    format!("{name} ({transport} {address}, {state})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, minor: u32, done: u64, below: &[&str]) -> Disk {
        let below = below.iter().map(|name| (*name).to_owned()).collect();
        let device = Device { major: 253, minor };
        Disk { name: name.into(), device, in_flight: 1, done, below, served_by: None }
    }

    fn sampled(samples: &[(u64, Vec<Disk>)]) -> Stalled {
        let mut stalled = Stalled::default();
        for (second, disks) in samples {
            let at = Monotonic(second * 1_000_000_000);
            stalled.sampled(&NodeSample { at, disks: disks.clone(), ..NodeSample::default() });
        }
        stalled
    }

    fn last(stalled: &Stalled, minor: u32) -> Option<&str> {
        let silent = stalled.below(Device { major: 253, minor })?;
        Some(&silent.disk.name)
    }

    #[test]
    fn the_last_device_that_completes_nothing_counts() {
        let all = |done| {
            let (sda, sdb) = (disk("sda", 1, done, &[]), disk("sdb", 2, 9, &[]));
            vec![disk("dm-0", 0, 4, &["sda", "sdb"]), sda, sdb]
        };
        let stalled = sampled(&[(1, all(5)), (7, all(6))]);
        assert_eq!(last(&stalled, 0), Some("sdb"), "sda has completed a request");
        assert_eq!(last(&stalled, 1), None);
        let names: Vec<&str> = stalled.all().iter().map(|it| it.disk.name.as_str()).collect();
        assert_eq!(names, ["sdb"]);
        assert_eq!(last(&sampled(&[(1, all(5)), (3, all(5))]), 0), None, "too brief");
        assert_eq!(last(&sampled(&[(1, all(5)), (4, Vec::new()), (7, all(5))]), 0), None);
    }

    #[test]
    fn a_suspended_device_needs_no_time() {
        let mapper = |is_suspended| ServedBy::Mapper {
            name: "data".into(),
            kind: String::new(),
            is_suspended,
        };
        let of = |is_suspended| {
            let disk = disk("dm-3", 3, 0, &[]);
            Disk { in_flight: 0, served_by: Some(mapper(is_suspended)), ..disk }
        };
        assert_eq!(last(&sampled(&[(1, vec![of(true)])]), 3), Some("dm-3"));
        assert_eq!(last(&sampled(&[(1, vec![of(false)])]), 3), None);
    }
}
