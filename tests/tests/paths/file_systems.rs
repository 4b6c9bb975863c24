//! File systems on which device and inode numbers, as they are shown, repeat or differ: subvolumes of btrfs, and
//! overlays. A pod's directory is the kernel's own object there, too, and a copy of it is not.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use nix::mount::{MsFlags, mount};
use podstuck_tests::{
    BTRFS, Disk, Mounted, RMDIR, UID, UNLINK, add_up, done, empty_dir, has_btrfs, requires,
    root_and_btf, settle, summary, watch,
};
use tempfile::TempDir;

use crate::linked_root::calls;

/// Mounts that go with the test, the last one first.
struct Points {
    mounted: Vec<Mounted>,
    top: TempDir,
}

impl Points {
    fn new() -> Self {
        Self { top: tempfile::tempdir().unwrap(), mounted: Vec::new() }
    }

    /// A new directory to mount on.
    fn point(&mut self, name: &str) -> PathBuf {
        let point = self.top.path().canonicalize().unwrap().join(name);
        fs::create_dir(&point).unwrap();
        self.mounted.insert(0, Mounted(point.clone()));
        point
    }
}

fn number(directory: &Path) -> u64 {
    fs::metadata(directory).unwrap().ino()
}

/// Below the root calls are the pod's. Below each copy, whose directory of pods has the same number, they are not.
fn only_the_roots_calls_count(root: &Path, copies: &[PathBuf]) {
    let volume = empty_dir(root);
    let others: Vec<PathBuf> = copies.iter().map(|copy| empty_dir(copy)).collect();
    for copy in copies {
        assert_eq!(number(&copy.join("pods")), number(&root.join("pods")), "{}", copy.display());
    }
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root.to_str().unwrap()]);
    settle();
    calls(&volume);
    others.iter().for_each(|other| calls(other));
    let (lines, _) = watching.stop();
    let counted = add_up(&[&summary(&lines)["by_outcome"]]);
    // On arm64 two of them are the same call.
    let mut expected = BTreeMap::new();
    for call in [
        format!("{RMDIR} EBUSY"),
        "umount2 EBUSY".into(),
        "umount2 ok".into(),
        format!("{RMDIR} ok"),
        format!("{UNLINK} ok"),
        "unlinkat ok".into(),
    ] {
        *expected.entry(call).or_insert(0) += 1;
    }
    assert_eq!(counted, expected, "{lines:#?}");
}

#[test]
fn a_root_in_a_subvolume_of_btrfs_is_distinguished_from_one_with_the_same_numbers() {
    requires!(root_and_btf(), has_btrfs());
    let mut mounted = Points::new();
    let point = mounted.point("disk");
    let _disk = Disk::mount(&point, 256 << 20, BTRFS, "");
    let [own, other] = ["own", "other"].map(|name| {
        let subvolume = point.join(name);
        done(Command::new("btrfs").args(["subvolume", "create"]).arg(&subvolume));
        subvolume.join("kubelet")
    });
    let device = |path: &Path| fs::metadata(path.parent().unwrap()).unwrap().dev();
    assert_ne!(device(&own), device(&other), "two subvolumes");
    only_the_roots_calls_count(&own, &[other]);
}

#[test]
fn a_root_in_an_overlay_is_distinguished_from_its_layer_and_another_overlay_of_it() {
    requires!(root_and_btf());
    let mut mounted = Points::new();
    let disk = mounted.point("disk");
    let none = None::<&str>;
    mount(Some("podstuck-test"), &disk, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    let lower = disk.join("lower");
    empty_dir(&lower.join("kubelet"));
    let [own, other] = ["own", "other"].map(|name| {
        let [upper, work] = ["upper", "work"].map(|part| disk.join(format!("{name}-{part}")));
        fs::create_dir(&upper).unwrap();
        fs::create_dir(&work).unwrap();
        let point = mounted.point(name);
        let [lower, upper, work] = [&lower, &upper, &work].map(|path| path.display());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let options = Some(options.as_str());
        mount(Some("podstuck-test"), &point, Some("overlay"), MsFlags::empty(), options).unwrap();
        point.join("kubelet")
    });
    only_the_roots_calls_count(&own, &[other, lower.join("kubelet")]);
}
