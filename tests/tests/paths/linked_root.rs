//! A kubelet's root that is a symbolic link: by the link and by where it leads, a pod is one and the same.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    thread::sleep,
    time::Duration,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount, umount2},
    unistd::{UnlinkatFlags, unlink, unlinkat},
};
use podstuck_tests::{
    RMDIR, UID, UNLINK, add_up, empty_dir, requires, root_and_btf, settle, summary, watch,
};

/// One call of each kind that fails and one that succeeds, all below this directory.
pub(crate) fn calls(volume: &Path) {
    let (file, busy) = (volume.join("file"), volume.join("busy"));
    fs::create_dir(&busy).unwrap();
    mount(Some("podstuck-test"), &busy, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    assert_eq!(fs::remove_dir(&busy).unwrap_err().raw_os_error(), Some(nix::libc::EBUSY));
    let held = File::create(busy.join("held")).unwrap();
    assert_eq!(umount(&busy).unwrap_err(), nix::Error::EBUSY);
    drop(held);
    umount(&busy).unwrap();
    fs::remove_dir(&busy).unwrap();
    fs::write(&file, "").unwrap();
    unlink(&file).unwrap();
    fs::write(&file, "").unwrap();
    unlinkat(File::open(volume).unwrap(), "file", UnlinkatFlags::NoRemoveDir).unwrap();
}

#[test]
fn a_pod_is_the_same_by_a_link_to_kubelets_root_and_by_where_it_leads() {
    requires!(root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let top = top.path().canonicalize().unwrap();
    let (real, link) = (top.join("data/kubelet"), top.join("kubelet"));
    let volume = empty_dir(&real);
    symlink(&real, &link).unwrap();
    for named in [&link, &real] {
        let options = ["--pod-uid", UID, "--kubelet-root", named.to_str().unwrap()];
        let watching = watch(&options);
        settle();
        let mut ways = 1;
        calls(&volume);
        if named == &link {
            // Of a link that no option names, nothing is known by its text.
            calls(&link.join(volume.strip_prefix(&real).unwrap()));
            ways += 1;
        }
        let (lines, _) = watching.stop();
        let counted = add_up(&[&summary(&lines)["by_outcome"]]);
        let mut expected = BTreeMap::new();
        for call in [RMDIR, "umount2"] {
            *expected.entry(format!("{call} EBUSY")).or_insert(0) += ways;
        }
        for call in ["umount2", RMDIR, UNLINK, "unlinkat"] {
            *expected.entry(format!("{call} ok")).or_insert(0) += ways;
        }
        assert_eq!(counted, expected, "{}: {lines:#?}", named.display());
    }
}

/// What is mounted there goes with the test, also where that fails.
struct Stacked<'a>(&'a Path);

impl Drop for Stacked<'_> {
    fn drop(&mut self) {
        while umount2(self.0, MntFlags::MNT_DETACH).is_ok() {}
    }
}

/// Mounted twice, as by a search for the mount by the path with the link in it.
#[test]
fn what_stays_mounted_below_a_link_to_kubelets_root_is_said_to_stay_for_that() {
    requires!(root_and_btf());
    let top = tempfile::tempdir().unwrap();
    let top = top.path().canonicalize().unwrap();
    let (real, link) = (top.join("data/kubelet"), top.join("kubelet"));
    let volume = empty_dir(&real);
    symlink(&real, &link).unwrap();
    let by_link = link.join(volume.strip_prefix(&real).unwrap());
    let tmpfs = Some("tmpfs");
    let mounted = Stacked(&volume);
    for _ in 0..2 {
        mount(tmpfs, &by_link, tmpfs, MsFlags::empty(), None::<&str>).unwrap();
    }
    let mut watching = watch(&["--pod-uid", UID, "--kubelet-root", link.to_str().unwrap()]);
    settle();
    for _ in 0..4 {
        let refused = fs::remove_dir(&by_link).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(nix::libc::EBUSY));
        sleep(Duration::from_millis(1500));
    }
    let found = watching.wait_for("finding", |line| line["id"] == "kubelet-root-symlink");
    let command = found["remedies"][0]["command"].as_str().unwrap().to_owned();
    let obeyed = Command::new("sh").args(["-c", &command]).status().unwrap();
    watching.stop();
    drop(mounted);
    assert_eq!(
        (&found["id"], &found["certainty"]),
        (&"kubelet-root-symlink".into(), &"likely".into()),
        "{found:#}"
    );
    let evidence = found["evidence"].to_string();
    let leads = format!("{} is a symbolic link to {}", link.display(), real.display());
    assert!(evidence.contains(&leads) && evidence.contains("2 mounts are stacked"), "{found:#}");
    assert!(obeyed.success(), "{command}");
    fs::remove_dir(&by_link).unwrap();
}
