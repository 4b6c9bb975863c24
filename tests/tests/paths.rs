//! Full paths of objects in every form in which a call can name them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::mount::{MsFlags, mount, umount};
use podstuck::{
    decode::{CUT_MARK, Record, decode},
    identity::{markers, target_root},
    kernel::{layout, load},
    source::ring::Ring,
};
use podstuck_common::{
    config::Config,
    record::{flaw, reason},
};
use podstuck_tests::{call, empty_dir, forms, root_and_btf};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Probes in the kernel, and the end of the ring that they write to.
struct Observer {
    ring: Ring,
    _probes: load::Probes,
    runtime: Runtime,
}

thread_local! {
    // A test has a thread of its own: the verifier, which takes its time, runs once a test.
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// What the probes report while `work` runs.
fn observe(work: impl FnOnce()) -> Vec<Record> {
    OBSERVER.with_borrow_mut(|observer| observer.get_or_insert_with(Observer::start).observe(work))
}

impl Observer {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let inside = runtime.enter();
        let layout = layout::read(Path::new(layout::BTF_PATH));
        let config = Config {
            slow_ns: u64::MAX,
            only_pod: 0,
            only_path: 0,
            own_tgid: std::process::id(),
            reserved: 0,
            markers: markers(),
        };
        let mut probes = load::load(&layout, &config, forms(), false).expect("loading probes");
        let ring = Ring::take(&mut probes.ebpf).unwrap();
        drop(inside);
        Self { ring, _probes: probes, runtime }
    }

    fn observe(&mut self, work: impl FnOnce()) -> Vec<Record> {
        let Self { ring, runtime, .. } = self;
        runtime.block_on(async {
            // What others did in between is not the work's.
            while !ring.rest().is_empty() {}
            work();
            let mut records = Vec::new();
            while let Ok(Ok(batch)) =
                tokio::time::timeout(Duration::from_millis(300), ring.next()).await
            {
                records.extend(batch.iter().map(|bytes| decode(bytes).expect("decodable")));
            }
            records
        })
    }
}

/// The failed call's record (ENOTDIR or ENOTEMPTY, as the callers provoke).
fn failed(records: &[Record]) -> &Record {
    let ours = |r: &&Record| matches!(r.head.errno, 20 | 39) && r.head.target != 0;
    records.iter().find(ours).unwrap_or_else(|| panic!("no failure among {}", records.len()))
}

fn disk() -> TempDir {
    tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/var/tmp").unwrap()
}

fn words<'a>(verb: &'a str, rest: &[&'a Path]) -> Vec<&'a OsStr> {
    [OsStr::new(verb)].into_iter().chain(rest.iter().map(|p| p.as_os_str())).collect()
}

/// One failing call on `object`, whose record must name it fully and agree with the text about
/// the target.
fn expect(verb: &str, arguments: &[&Path], object: &Path) {
    let records = observe(|| {
        call(&words(verb, arguments));
    });
    let record = failed(&records);
    assert_eq!(record.path(), object);
    assert_eq!(record.head.flaws, 0);
    let (_, trail) = target_root(object).expect("the text has a target");
    assert_eq!(trail.target, record.head.target, "kernel and text disagree");
}

#[test]
fn by_descriptor_by_absolute_path_and_from_the_working_directory() {
    if !root_and_btf() {
        return;
    }
    let top = disk();
    let volume = empty_dir(top.path());
    let file = volume.join("file");
    fs::write(&file, "").unwrap();
    expect("at", &[&volume, Path::new("file")], &file);
    expect("rmdir", &[&file], &file);
    expect("cwd", &[&volume, Path::new("./file")], &file);
    let above = volume.parent().unwrap();
    expect("cwd", &[above, Path::new("data//file")], &file);
    expect("at", &[above, Path::new("data/file")], &file);
}

#[test]
fn names_of_any_byte_and_of_255() {
    if !root_and_btf() {
        return;
    }
    let top = disk();
    let volume = empty_dir(top.path());
    for name in [b"\xff\xfe \x1b[31m\n".as_slice(), &[b'n'; 255], b"..x", b"."] {
        let name = Path::new(OsStr::from_bytes(name));
        let dir = volume.join("dir");
        fs::create_dir_all(&dir).unwrap();
        if name == Path::new(".") {
            continue;
        }
        fs::write(dir.join(name), "").unwrap();
        expect("at", &[&dir, name], &dir.join(name));
        // The name as a directory on the way, too.
        let deep = volume.join(name);
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        expect("at", &[&deep, Path::new("file")], &deep.join("file"));
    }
}

#[test]
fn a_directory_renamed_while_it_is_open_has_its_new_name() {
    if !root_and_btf() {
        return;
    }
    let top = disk();
    let volume = empty_dir(top.path());
    let (old, new) = (volume.join("old"), volume.parent().unwrap().join("other").join("new"));
    fs::create_dir_all(new.parent().unwrap()).unwrap();
    fs::create_dir(&old).unwrap();
    fs::write(old.join("file"), "").unwrap();
    let records = observe(|| {
        call(&words("renamed", &[&old, &new, Path::new("file")]));
    });
    let failures: Vec<&Record> = records.iter().filter(|r| r.head.errno == 20).collect();
    let paths: Vec<PathBuf> = failures.iter().map(|r| r.path()).collect();
    assert_eq!(paths, [old.join("file"), new.join("file")]);
    for (record, path) in failures.iter().zip(&paths) {
        assert_eq!(target_root(path).unwrap().1.target, record.head.target, "{path:?}");
    }
}

#[test]
fn through_a_bind_mount_and_inside_a_chroot() {
    if !root_and_btf() {
        return;
    }
    let top = disk();
    let volume = empty_dir(top.path());
    let source = top.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/file"), "").unwrap();
    let point = volume.join("bound");
    fs::create_dir(&point).unwrap();
    let none = None::<&str>;
    mount(Some(&source), &point, none, MsFlags::MS_BIND, none).unwrap();
    let result = std::panic::catch_unwind(|| {
        let records = observe(|| {
            call(&words("at", &[&point.join("sub"), Path::new("file")]));
        });
        let record = failed(&records);
        assert_eq!(record.path(), point.join("sub/file"));
        assert_eq!((record.head.depth, record.head.mount_depth), (3, 1));
        // Inside a chroot the caller says `/pods/...`; the node sees the whole path.
        let inside = Path::new("/").join(point.strip_prefix(top.path()).unwrap()).join("sub/file");
        let records = observe(|| {
            call(&words("chroot", &[top.path(), &inside]));
        });
        assert_eq!(failed(&records).path(), point.join("sub/file"));
    });
    umount(&point).unwrap();
    result.unwrap();
}

#[test]
fn deep_and_long_paths() {
    if !root_and_btf() {
        return;
    }
    let top = disk();
    let volume = empty_dir(top.path());
    // 200 levels: all of them.
    let object = deep(&volume, "d", 200);
    let records = observe(|| {
        call(&words("descend", &[&volume, Path::new("d"), Path::new("200")]));
    });
    assert_eq!(failed(&records).path(), object);
    fs::remove_dir_all(volume.join("d")).unwrap();
    // An argument as long as the kernel takes them.
    let name = "n".repeat(180);
    let mut long = volume.clone();
    while long.as_os_str().len() + name.len() + 6 < 4096 {
        long.push(&name);
    }
    fs::create_dir_all(&long).unwrap();
    let filler = 4095 - long.as_os_str().len() - 1;
    let file = long.join("f".repeat(filler.min(255)));
    fs::write(&file, "").unwrap();
    assert!(file.as_os_str().len() > 3900);
    expect("rmdir", &[&file], &file);
    let directory = file.parent().unwrap();
    let name = Path::new(file.file_name().unwrap());
    let records = observe(|| {
        call(&words("at", &[directory, name]));
    });
    let found = failed(&records);
    assert!(found.path() == file || found.head.flaws & flaw::CUT != 0);
}

#[test]
fn what_is_too_deep_is_marked_as_cut() {
    if !root_and_btf() {
        return;
    }
    let top = disk();
    let volume = empty_dir(top.path());
    let records = observe(|| {
        call(&words("descend", &[&volume, Path::new("d"), Path::new("400")]));
    });
    let cut = records.iter().find(|r| r.head.errno == 20 && r.head.flaws & flaw::CUT != 0);
    // Nothing is claimed about the target then, so the failure itself is not reported; the
    // directory's sample is, and says that it is incomplete.
    let record = cut.or(records.iter().find(|r| r.head.flaws & flaw::CUT != 0)).expect("a mark");
    let path = record.path();
    assert!(path.starts_with(Path::new("/").join(CUT_MARK)), "{path:?}");
    assert_eq!(record.head.target, 0);
}

fn deep(top: &Path, name: &str, levels: usize) -> PathBuf {
    let mut path = top.to_path_buf();
    path.extend(std::iter::repeat_n(name, levels));
    path.join("leaf")
}

#[test]
fn an_object_that_succeeds_long_after_it_failed_is_told() {
    if !root_and_btf() {
        return;
    }
    let top = disk();
    let volume = empty_dir(top.path());
    let inside = volume.join("dir/file");
    fs::create_dir(inside.parent().unwrap()).unwrap();
    fs::write(&inside, "").unwrap();
    let remove = || {
        call(&words("unlink", &[&inside]));
    };
    let records = observe(|| {
        call(&words("rmdir", &[&inside]));
        // Longer than an answer about a directory is believed.
        std::thread::sleep(Duration::from_millis(1500));
        remove();
    });
    let recovered = records.iter().find(|r| r.head.reason & reason::RECOVERED != 0);
    assert_eq!(recovered.expect("a recovery").path(), inside);
}
