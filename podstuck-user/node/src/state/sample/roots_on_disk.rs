//! Reads kubelets' root directories in one sample, so that one that does not answer keeps no other from being read.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::state::pod_dirs::{PodOnDisk, ReadPods, RootOnDisk};
use podstuck_confine::{
    alive,
    back_off::BackOff,
    helper::{Failure, ask_in_parts, is_hanging},
};
use podstuck_model::{degraded::Feed, mounts::Device, query::NoAnswer};

/// How long the reading of all roots but the first may take together in one sample, without those that do not answer.
const SHARE: Duration = Duration::from_secs(2);
/// Roots in which a helper hangs. There is room for one more (`Budget::Pods`), which is the first one's. In one sample, no
/// more are waited for.
const HUNG_ROOTS: usize = 3;

/// A root, and the file system that it lies on: another process may have another one there.
pub(super) type Disk = (PathBuf, Option<Device>);

/// Each root has a helper of its own. One that did not answer is asked less and less often, and after the others: so
/// none of them keeps the others from being read.
#[derive(Debug, Default)]
pub(super) struct Shares {
    again: BTreeMap<Disk, BackOff>,
    /// The helper that hangs in each.
    hanging: BTreeMap<Disk, u32>,
}

/// The time that the roots of one sample have taken.
#[derive(Debug, Default)]
struct Taken {
    answering: Duration,
    silent: usize,
}

impl Shares {
    /// Whether a root is read in this sample.
    fn may_read(&mut self, root: &Disk, is_first: bool, taken: &Taken) -> bool {
        self.hanging.retain(|_, helper| is_hanging(*helper));
        if self.hanging.contains_key(root) {
            return false;
        }
        let has_room =
            taken.answering < SHARE && taken.silent < HUNG_ROOTS && self.hanging.len() < HUNG_ROOTS;
        is_first
            || (has_room && self.again.get_mut(root).is_none_or(|it| it.is_due(Instant::now())))
    }

    fn took(&mut self, root: &Disk, helper: Option<u32>, has_failed: bool) {
        if has_failed {
            self.again.entry(root.clone()).or_default();
        } else {
            self.again.remove(root);
        }
        if let Some(helper) = helper {
            self.hanging.insert(root.clone(), helper);
        }
    }
}

/// A root, the process as which it is read, and where it is for that.
pub(super) type Place = (PathBuf, Option<u32>, OsString);

/// Whether its file system answered.
fn came_to((_, pid, path): &Place, answer: bool) {
    alive::came_to(pid.unwrap_or_else(std::process::id), Path::new(path), answer);
}

/// What is read of roots in one sample.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// What was read in the sample before.
    before: BTreeMap<PathBuf, RootOnDisk>,
    read: BTreeMap<PathBuf, RootOnDisk>,
    unread: BTreeSet<PathBuf>,
}

impl Reading {
    /// With what was read in the sample before.
    pub(super) fn after_sample(before: BTreeMap<PathBuf, RootOnDisk>) -> Self {
        Self { before, ..Self::default() }
    }

    /// One could not be read in one of the ways.
    pub(super) fn fail(&mut self, root: PathBuf) {
        self.unread.insert(root);
    }

    fn take(&mut self, (root, pid, path): Place, answer: Result<Option<RootOnDisk>, String>) {
        let failed = answer.as_ref().err().map(String::as_str);
        alive::looked(Feed::Node, Path::new(&path), failed);
        match answer {
            Ok(Some(answer)) => self.add(root, pid, answer),
            Ok(None) => {}
            Err(_) => self.fail(root),
        }
    }

    fn add(&mut self, root: PathBuf, pid: Option<u32>, mut answer: RootOnDisk) {
        answer.pods.iter_mut().for_each(|pod| pod.seen_by = pid);
        let unchanged: HashSet<&str> = answer.unchanged.iter().map(String::as_str).collect();
        let before = self.before.get(&root).into_iter().flat_map(|root| &root.pods);
        let same = before.filter(|it| it.seen_by == pid && unchanged.contains(it.uid.as_str()));
        answer.pods.extend(same.cloned());
        let known = self.read.entry(root).or_default();
        known.pods.append(&mut answer.pods);
        known.registered.append(&mut answer.registered);
        known.drivers.append(&mut answer.drivers);
        known.maps.append(&mut answer.maps);
        known.registry_changed = known.registry_changed.max(answer.registry_changed);
        // By its own root directory a process names it as its mounts do, which ours need not.
        known.link = answer.link.filter(|_| pid.is_some()).or(known.link.take());
    }

    /// Reads them, root by root, as they are given. One that does not answer is not waited for a second time, and not by
    /// the others.
    pub(super) fn read(
        &mut self,
        left: Vec<(Disk, Place)>,
        shares: &mut Shares,
        is_known: impl Fn(&PodOnDisk) -> bool,
    ) {
        let mut disks: Vec<(Disk, Vec<Place>)> = Vec::new();
        for (disk, place) in left {
            match disks.iter_mut().find(|(known, _)| *known == disk) {
                Some((_, places)) => places.push(place),
                None => disks.push((disk, vec![place])),
            }
        }
        let first = disks.first().map(|(disk, _)| disk.clone());
        disks.sort_by_key(|(disk, _)| shares.again.contains_key(disk));
        let mut taken = Taken::default();
        for (disk, places) in disks {
            if !shares.may_read(&disk, first.as_ref() == Some(&disk), &taken) {
                self.fail(disk.0);
                continue;
            }
            let begun = Instant::now();
            if self.read_root(&disk, places, shares, &is_known) {
                taken.answering += begun.elapsed();
            } else {
                taken.silent += 1;
            }
        }
    }

    /// Whether it has answered.
    fn read_root(
        &mut self,
        disk: &Disk,
        mut left: Vec<Place>,
        shares: &mut Shares,
        is_known: impl Fn(&PodOnDisk) -> bool,
    ) -> bool {
        let asked = left.iter().map(|(root, pid, path)| {
            let before = self.before.get(root).into_iter().flat_map(|root| &root.pods);
            let known = before.filter(|pod| pod.seen_by == *pid && is_known(pod));
            ((*pid, path.clone()), known.map(|pod| pod.uid.clone()).collect())
        });
        let roots = asked.collect();
        let mut answers = Vec::new();
        let asked = ask_in_parts(ReadPods { roots }, |answer| answers.push(answer));
        let answered = answers.len().min(left.len());
        for (place, answer) in left.drain(..answered).zip(answers) {
            shares.took(disk, None, answer.is_err());
            came_to(&place, true);
            self.take(place, answer);
        }
        let (Err(why), Some(place)) = (asked, left.first().cloned()) else { return true };
        let helper = if let Failure::Hung { helper, .. } = &why { Some(*helper) } else { None };
        shares.took(disk, helper, true);
        if helper.is_some() {
            came_to(&place, false);
        }
        self.take(place, Err(NoAnswer::from(why).to_string()));
        helper.is_none()
    }

    /// All roots that are known, by what was read before of those that could not be read in any way, and these.
    pub(super) fn after(mut self) -> (BTreeMap<PathBuf, RootOnDisk>, Vec<PathBuf>) {
        self.unread.retain(|root| !self.read.contains_key(root));
        for root in &self.unread {
            self.read.extend(self.before.remove_entry(root));
        }
        (self.read, self.unread.into_iter().collect())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::state::pod_dirs::Times;

    pub(in super::super) fn on_disk_pod(uid: &str) -> PodOnDisk {
        PodOnDisk {
            uid: uid.into(),
            file: None,
            times: Times::default(),
            volumes: Vec::new(),
            devices: Vec::new(),
            seen_by: None,
        }
    }

    #[test]
    fn what_could_not_be_read_stays_as_it_was_and_is_named() {
        let with = |uid: &str| RootOnDisk { pods: vec![on_disk_pod(uid)], ..RootOnDisk::default() };
        let place = |root: &str, pid| (PathBuf::from(root), pid, OsString::from("/nonexistent"));
        let uids = |roots: &BTreeMap<PathBuf, RootOnDisk>, root: &str| -> Vec<String> {
            let known = roots.get(Path::new(root));
            known.into_iter().flat_map(|root| &root.pods).map(|pod| pod.uid.clone()).collect()
        };
        let mut reading = Reading::default();
        reading.take(place("/a", None), Ok(Some(with("1"))));
        reading.take(place("/b", None), Ok(Some(with("2"))));
        let (roots, unread) = reading.after();
        assert!(unread.is_empty());
        let mut reading = Reading::after_sample(roots);
        reading.take(place("/a", None), Err("it hangs".into()));
        reading.take(place("/a", Some(7)), Ok(None));
        reading.fail("/b".into());
        reading.take(place("/b", Some(7)), Ok(Some(with("3"))));
        reading.fail("/c".into());
        let (roots, unread) = reading.after();
        assert_eq!((uids(&roots, "/a"), uids(&roots, "/b")), (vec!["1".into()], vec!["3".into()]));
        assert_eq!(unread, ["/a", "/c"].map(PathBuf::from), "as another sees it, /b has answered");
        assert_eq!(roots[Path::new("/b")].pods[0].seen_by, Some(7));
    }

    #[test]
    fn a_directory_that_was_not_read_again_is_as_it_was_and_one_that_is_gone_is_not() {
        let place = |pid| (PathBuf::from("/a"), pid, OsString::from("/nonexistent"));
        let root = |read: &[&str], unchanged: &[&str]| RootOnDisk {
            pods: read.iter().map(|uid| on_disk_pod(uid)).collect(),
            unchanged: unchanged.iter().map(|uid| (*uid).to_owned()).collect(),
            ..RootOnDisk::default()
        };
        let mut reading = Reading::default();
        reading.take(place(None), Ok(Some(root(&["1", "2"], &[]))));
        reading.take(place(Some(7)), Ok(Some(root(&["1"], &[]))));
        let (before, _) = reading.after();
        let mut reading = Reading::after_sample(before);
        reading.take(place(None), Ok(Some(root(&["3"], &["1"]))));
        reading.take(place(Some(7)), Ok(Some(root(&[], &[]))));
        let (roots, _) = reading.after();
        let pods: Vec<_> =
            roots[Path::new("/a")].pods.iter().map(|pod| (&*pod.uid, pod.seen_by)).collect();
        assert_eq!(pods, [("3", None), ("1", None)]);
    }

    #[test]
    fn no_root_takes_the_share_of_another() {
        let mut shares = Shares::default();
        let none = Taken::default();
        let [own, slow, other] = ["/a", "/b", "/c"].map(|root| (PathBuf::from(root), None));
        let elsewhere = (slow.0.clone(), Some(Device { major: 7, minor: 1 }));
        shares.took(&slow, None, true);
        // One that did not answer is asked again, and then less often; the others are, in each sample, and so is
        // another file system at its place.
        assert!(shares.may_read(&slow, false, &none) && !shares.may_read(&slow, false, &none));
        for _ in 0..2 {
            assert!(shares.may_read(&own, true, &none) && shares.may_read(&other, false, &none));
            assert!(shares.may_read(&elsewhere, false, &none));
        }
        // What the others have taken together is not the first one's.
        for much in [
            Taken { answering: SHARE, silent: 0 },
            Taken { silent: HUNG_ROOTS, ..Taken::default() },
        ] {
            assert!(shares.may_read(&own, true, &much) && !shares.may_read(&other, false, &much));
        }
        shares.took(&slow, None, false);
        assert!(shares.may_read(&slow, false, &none) && shares.may_read(&slow, false, &none));
    }
}
