//! The directory that the kernel itself has resolved, where a hook reports it: then it does not matter what a path
//! reads like.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use nix::mount::{MsFlags, mount};
use podstuck_common::record::reason;
use podstuck_node::identity::target_root;
use podstuck_probe::{
    decode::Record,
    kernel::hooks::{DirectoryHook, Form},
};
use podstuck_tests::{
    Mounted, RMDIR, UID, UNLINK, add_up, call, empty_dir, of_type, requires, root_and_btf, skip,
    summary, watch,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::observer::{check, counted, disk, elsewhere, failed, hooked, observe, words};

/// Two places, of which the first has a volume; `None` if the kernel does not report directories here.
fn places() -> Option<(TempDir, TempDir, PathBuf)> {
    let (top, other) = (disk(), elsewhere());
    let volume = empty_dir(top.path());
    // This starts it.
    observe(|| ());
    let hooked_in = |form: Form| DirectoryHook::ALL.iter().all(|hook| hooked(&hook.hook(form)));
    if !hooked_in(Form::Function) && !hooked_in(Form::Kprobe) {
        skip("directories are not reported here: no probe on security_path_unlink");
        return None;
    }
    Some((top, other, volume))
}

fn target_of(volume: &Path) -> u64 {
    target_root(volume).unwrap().1.target
}

/// What was counted for the target meanwhile.
fn difference(
    before: &BTreeMap<String, u64>,
    mut now: BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    for (what, calls) in before {
        *now.get_mut(what).unwrap() -= calls;
    }
    now.retain(|_, calls| *calls != 0);
    now
}

/// Makes calls; their records, their own tally, and what of them was counted for a volume's target.
fn made(args: &[&Path], volume: &Path) -> (Vec<Record>, Value, BTreeMap<String, u64>) {
    let target = target_of(volume);
    let before = counted(target);
    let mut tally = Value::Null;
    let records = observe(|| tally = call(&words("apart", args)));
    (records, tally, difference(&before, counted(target)))
}

/// The file is removed by a path that leads to it: each call is counted for its volume, and is reported by the
/// object's own name.
fn expect_counted(args: &[&Path], file: &Path, volume: &Path) {
    fs::write(file, "").unwrap();
    let (records, tally, counted) = made(args, volume);
    assert_eq!(tally[UNLINK]["ok"], 1, "{tally}");
    assert_eq!(counted, add_up(&[&tally]), "{args:?}");
    check(failed(&records), file);
}

#[test]
fn a_link_in_a_namespace_of_its_own_leads_to_the_volume() {
    requires!(root_and_btf());
    let Some((_top, other, volume)) = places() else { return };
    fs::create_dir(volume.join("dir")).unwrap();
    symlink(volume.join("dir"), other.path().join("link")).unwrap();
    let file = volume.join("dir/file");
    expect_counted(&[&other.path().join("link/file")], &file, &volume);
}

#[test]
fn going_up_leads_to_the_volume() {
    requires!(root_and_btf());
    let Some((_top, other, volume)) = places() else { return };
    let file = volume.join("file");
    let above = volume.parent().unwrap();
    expect_counted(&[&above.join("../kubernetes.io~empty-dir/data/file")], &file, &volume);
    // Where a link leads, above is not where the text says.
    fs::create_dir(volume.join("dir")).unwrap();
    symlink(volume.join("dir"), other.path().join("link")).unwrap();
    expect_counted(&[&other.path().join("link/../file")], &file, &volume);
}

#[test]
fn a_mount_namespace_that_was_not_read_yet_is_understood() {
    requires!(root_and_btf());
    let Some((top, other, volume)) = places() else { return };
    fs::write(volume.join("file"), "").unwrap();
    let there = other.path().join(volume.strip_prefix(top.path()).unwrap()).join("file");
    let (records, tally, counted) = made(&[&there, top.path(), other.path()], &volume);
    assert_eq!(counted, add_up(&[&tally]));
    assert_eq!(counted, [(format!("{RMDIR} ENOTDIR"), 1), (format!("{UNLINK} ok"), 1)].into());
    let record = failed(&records);
    // As the caller sees it.
    assert_eq!(record.path(), there);
    assert_eq!((record.head.target, record.head.flaws), (target_of(&volume), 0));
}

#[test]
fn what_only_reads_like_a_volume_is_not_counted_for_it() {
    requires!(root_and_btf());
    let Some((_top, other, volume)) = places() else { return };
    let outside = other.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, volume.join("out")).unwrap();
    fs::create_dir(outside.join("dir")).unwrap();
    symlink(outside.join("dir"), volume.join("in")).unwrap();
    for path in ["out/file", "in/../file"] {
        fs::write(outside.join("file"), "").unwrap();
        let (records, tally, counted) = made(&[&volume.join(path)], &volume);
        assert_eq!((&tally[RMDIR]["ENOTDIR"], &tally[UNLINK]["ok"]), (&1.into(), &1.into()));
        assert_eq!(counted, BTreeMap::new(), "{path}");
        assert!(records.iter().all(|record| record.head.target != target_of(&volume)));
    }
}

#[test]
fn the_last_name_of_a_path_is_found_in_any_form() {
    requires!(root_and_btf());
    let Some((_top, other, volume)) = places() else { return };
    symlink(&volume, other.path().join("link")).unwrap();
    let through = other.path().join("link").into_os_string().into_string().unwrap();
    let (name, longest) = ("file".to_owned(), "n".repeat(255));
    for name in [&name, &longest] {
        for way in ["/", "//", "/./", &"/.".repeat(120), &"/./".repeat(1000)] {
            let path = PathBuf::from(format!("{through}{way}/{name}"));
            expect_counted(&[&path], &volume.join(name), &volume);
        }
    }
    // A slash at the end is no name.
    let full = volume.join("full");
    fs::create_dir_all(full.join("dir")).unwrap();
    for end in ["/", "///"] {
        let path = PathBuf::from(format!("{through}/full{end}"));
        let (records, tally, counted) = made(&[&path], &volume);
        assert_eq!(tally[RMDIR]["ENOTEMPTY"], 1, "{tally}");
        assert_eq!(counted.get(&format!("{RMDIR} ENOTEMPTY")), Some(&1));
        check(failed(&records), &full);
    }
}

#[test]
fn what_fails_before_the_directory_is_reported_counts_by_its_text() {
    requires!(root_and_btf());
    const EROFS: u16 = 30;
    let top = disk();
    let volume = empty_dir(top.path());
    let point = volume.join("read-only");
    fs::create_dir(&point).unwrap();
    let point = Mounted::bind(&point, point.clone());
    let none = None::<&str>;
    let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, &*point, none, read_only, none).unwrap();
    observe(|| ());
    let file = point.join("file");
    let (records, tally, counted) = made(&[&file], &volume);
    assert_eq!(counted, add_up(&[&tally]));
    assert_eq!(tally[RMDIR]["EROFS"], 1, "{tally}");
    let record = records.iter().find(|record| record.head.errno == EROFS).expect("a record");
    check(record, &file);
    // When it succeeds after that, it is reported: by a caller who sees the same directories.
    observe(|| {
        call(&words("rmdir", &[&file]));
    });
    let writable = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    mount(none, &*point, none, writable, none).unwrap();
    fs::write(&file, "").unwrap();
    let records = observe(|| {
        call(&words("unlink", &[&file]));
    });
    let recovered = records.iter().find(|r| r.head.reason & reason::RECOVERED != 0);
    assert_eq!(recovered.expect("a recovery").path(), file);
    let (_, tally, counted) = made(&[&volume.join("none/file")], &volume);
    assert_eq!(tally[UNLINK]["ENOENT"], 1, "{tally}");
    assert_eq!(counted, add_up(&[&tally]));
}

#[test]
fn a_whole_run_counts_them_for_the_pod() {
    requires!(root_and_btf());
    let (top, other) = (elsewhere(), elsewhere());
    let volume = empty_dir(top.path());
    let [link, point, outside] = ["link", "point", "outside"].map(|name| other.path().join(name));
    symlink(&volume, &link).unwrap();
    fs::create_dir(&point).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, volume.join("out")).unwrap();
    let file = volume.join("file");
    let root = top.path().to_str().unwrap();
    let watching = watch(&["--pod-uid", UID, "--kubelet-root", root]);
    let (by_link, above) = (link.join("file"), link.join("../data/file"));
    let mounted = point.join(file.strip_prefix(top.path()).unwrap());
    let ways = [vec![by_link.as_path()], vec![&above], vec![&mounted, top.path(), &point]];
    let tallies = ways.map(|args| {
        fs::write(&file, "").unwrap();
        call(&words("apart", &args))
    });
    fs::write(outside.join("file"), "").unwrap();
    call(&words("apart", &[&volume.join("out/file")]));
    let (lines, _) = watching.stop();
    let start = of_type(&lines, "start")[0];
    let attached = start["probes_attached"].as_array().unwrap();
    let hooked_in = |form: Form| attached.contains(&DirectoryHook::Unlink.hook(form).into());
    if !hooked_in(Form::Function) && !hooked_in(Form::Kprobe) {
        return skip("directories are not reported here: no probe on security_path_unlink");
    }
    let counted = add_up(&[&summary(&lines)["by_outcome"]]);
    assert_eq!(counted, add_up(&tallies.each_ref()));
}
