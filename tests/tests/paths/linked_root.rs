//! A kubelet's root that is a symbolic link: by the link and by where it leads, a pod is one and the same.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
};

use nix::{
    mount::{MsFlags, mount, umount},
    unistd::{UnlinkatFlags, unlink, unlinkat},
};
use podstuck_tests::{
    RMDIR, UID, UNLINK, add_up, empty_dir, requires, root_and_btf, settle, summary, watch,
};

/// One call of each kind that fails and one that succeeds, all below this directory.
fn calls(volume: &Path) {
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
            // Of a link that nobody has named, nothing is known by its text.
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
