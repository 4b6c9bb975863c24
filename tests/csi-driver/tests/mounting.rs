//! What is mounted and what is left: the real program, in a mount namespace of the test's own.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    collections::HashMap,
    fs,
    os::{linux::fs::MetadataExt, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_csi_driver::proto::csi::{
    NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnstageVolumeRequest,
};
use podstuck_testing::requires;
use tonic::Code;

use common::{Driver, files, mounts_at, own_mounts, publication, root, run, text};

mod common;

#[test]
fn a_volume_is_published_and_unpublished() {
    requires!(root());
    own_mounts();
    let mut driver = Driver::start(&[]);
    let target = driver.target("a");
    run(driver.publish(publication("v1", &target))).unwrap();
    // Again, as by a kubelet that did not hear the answer.
    run(driver.publish(publication("v1", &target))).unwrap();
    assert_eq!(mounts_at(&target), 1);
    fs::write(target.join("rows"), "data").unwrap();
    let kept = driver.directory.path().join("state/volumes/v1/rows");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "data");

    driver.restart();
    run(driver.unpublish("v1", &target)).unwrap();
    assert!(!target.exists() && kept.exists());
    // Twice, as the specification wants it.
    run(driver.unpublish("v1", &target)).unwrap();
}

#[test]
fn what_is_forgotten_stays_mounted_and_unpublishing_it_is_ok() {
    requires!(root());
    own_mounts();
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    run(driver.publish(publication("v1", &target))).unwrap();
    driver.fault("forget");
    run(driver.unpublish("v1", &target)).unwrap();
    assert_eq!(mounts_at(&target), 1);
    let state = fs::read_to_string(driver.directory.path().join("state/state.json")).unwrap();
    assert!(state.contains(r#""Published":null"#), "{state}");
    // It does not come back with the end of the fault.
    driver.fault("none");
    run(driver.unpublish("v1", &target)).unwrap();
    assert_eq!(mounts_at(&target), 1);
    let said = format!("] volume \"v1\" is not published at {target:?}, nothing to do\n");
    assert_eq!(driver.running.log().matches(&said).count(), 2, "{}", driver.running.log());
}

/// What a driver answers whose volume is served by a process that has ended.
#[test]
fn a_volume_without_its_server_is_an_error_until_it_is_unmounted() {
    requires!(root());
    own_mounts();
    let beside =
        Path::new(env!("CARGO_BIN_EXE_podstuck-csi-driver")).with_file_name("podstuck-fuse");
    if !beside.is_file() || !Path::new("/dev/fuse").exists() {
        podstuck_testing::skip("takes podstuck-fuse beside the driver, and /dev/fuse");
        return;
    }
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    let attributes = HashMap::from([("backing".to_owned(), "fuse".to_owned())]);
    let publication =
        NodePublishVolumeRequest { volume_context: attributes, ..publication("v1", &target) };
    run(driver.publish(publication)).unwrap();
    fs::write(target.join("rows"), "data").unwrap();
    end_server(&target);
    assert_eq!(run(driver.unpublish("v1", &target)).unwrap_err(), Code::Internal);
    let (log, said) = (driver.running.log(), ": transport endpoint is not connected");
    assert!(log.contains(said), "{log}");
    umount2(&target, MntFlags::empty()).unwrap();
    run(driver.unpublish("v1", &target)).unwrap();
    assert!(!target.exists());
}

/// Ends the process that serves a file system.
fn end_server(target: &Path) {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let words = |process: &Path| fs::read(process.join("cmdline")).unwrap_or_default();
    let is_server = |process: &PathBuf| {
        let words = words(process);
        let mut words = words.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"/podstuck-fuse"))
            && words.next() == Some(target.as_os_str().as_bytes())
    };
    let server = all.filter(|path| path.join("cmdline").exists()).find(is_server).unwrap();
    let pid = server.file_name().unwrap().to_str().unwrap().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    // The kernel ends the connection with its last descriptor.
    while fs::metadata(target).is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn elsewhere_is_not_here() {
    requires!(root());
    own_mounts();
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    run(driver.publish(publication("v1", &target))).unwrap();
    driver.fault("elsewhere");
    for _ in 0..2 {
        run(driver.unpublish("v1", &target)).unwrap();
        assert_eq!(mounts_at(&target), 1);
    }
    driver.fault("none");
    run(driver.unpublish("v1", &target)).unwrap();
    assert_eq!((mounts_at(&target), target.exists()), (0, false));
}

#[test]
fn who_is_not_idempotent_fails_where_nothing_is_mounted() {
    requires!(root());
    own_mounts();
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    run(driver.publish(publication("v1", &target))).unwrap();
    // As after a reboot.
    umount2(&target, MntFlags::empty()).unwrap();
    driver.fault("not-idempotent");
    assert_eq!(run(driver.unpublish("v1", &target)), Err(Code::Internal));
    assert!(driver.running.log().contains("Invalid argument"), "{}", driver.running.log());
    driver.fault("none");
    run(driver.unpublish("v1", &target)).unwrap();
    assert!(!target.exists());

    driver.fault("not-idempotent");
    run(driver.publish(publication("v1", &target))).unwrap();
    run(driver.unpublish("v1", &target)).unwrap();
    assert!(!target.exists());
    assert_eq!(run(driver.unpublish("v1", &target)), Err(Code::Internal));
}

#[test]
fn a_volume_in_use_is_not_unmounted() {
    requires!(root());
    own_mounts();
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    run(driver.publish(publication("v1", &target))).unwrap();
    let open = fs::File::create(target.join("open")).unwrap();
    assert_eq!(run(driver.unpublish("v1", &target)), Err(Code::Internal));
    assert_eq!(mounts_at(&target), 1);
    drop(open);
    run(driver.unpublish("v1", &target)).unwrap();
    assert_eq!(mounts_at(&target), 0);
}

#[test]
fn memory_has_a_device_of_its_own_and_read_only_is_kept() {
    requires!(root());
    own_mounts();
    let driver = Driver::start(&[]);
    let (bound, by_handle, by_attribute) =
        (driver.target("a"), driver.target("b"), driver.target("c"));
    let mut read_only = publication("v1", &bound);
    read_only.readonly = true;
    run(driver.publish(read_only)).unwrap();
    run(driver.publish(publication("tmpfs-1", &by_handle))).unwrap();
    let mut memory = publication("v2", &by_attribute);
    memory.volume_context = HashMap::from([("backing".to_owned(), "tmpfs".to_owned())]);
    run(driver.publish(memory)).unwrap();

    let device = |path| fs::metadata(path).unwrap().st_dev();
    assert_eq!(device(bound.as_path()), device(bound.parent().unwrap()));
    assert_ne!(device(by_handle.as_path()), device(bound.as_path()));
    assert_ne!(device(by_attribute.as_path()), device(by_handle.as_path()));
    assert!(fs::write(bound.join("file"), "").is_err());
    fs::write(by_handle.join("file"), "").unwrap();
    for (volume, target) in [("v1", &bound), ("tmpfs-1", &by_handle), ("v2", &by_attribute)] {
        run(driver.unpublish(volume, target)).unwrap();
        assert_eq!((mounts_at(target), target.exists()), (0, false));
    }
}

#[test]
fn a_staged_volume_is_bound_from_its_staging_path() {
    requires!(root());
    own_mounts();
    let driver = Driver::start(&["--stage"]);
    let target = driver.target("a");
    let staging = driver.target("globalmount");
    fs::create_dir(&staging).unwrap();
    let mut publish = publication("tmpfs-1", &target);
    publish.staging_target_path = text(&staging);
    let early = run(driver.publish(publish.clone())).unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "{early}");

    let stage = NodeStageVolumeRequest {
        volume_id: "tmpfs-1".to_owned(),
        staging_target_path: text(&staging),
        volume_capability: files(),
        ..Default::default()
    };
    run(async { driver.node().node_stage_volume(stage).await }).unwrap();
    run(driver.publish(publish)).unwrap();
    fs::write(target.join("rows"), "data").unwrap();
    assert!(staging.join("rows").exists());

    let unstage = NodeUnstageVolumeRequest {
        volume_id: "tmpfs-1".to_owned(),
        staging_target_path: text(&staging),
    };
    let unstage = || run(async { driver.node().node_unstage_volume(unstage.clone()).await });
    assert_eq!(unstage().unwrap_err().code(), Code::FailedPrecondition);
    run(driver.unpublish("tmpfs-1", &target)).unwrap();
    unstage().unwrap();
    unstage().unwrap();
    assert_eq!((mounts_at(&staging), staging.exists()), (0, true));
}

#[test]
fn usage_is_that_of_the_file_system() {
    requires!(root());
    own_mounts();
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    run(driver.publish(publication("tmpfs-1", &target))).unwrap();
    fs::write(target.join("rows"), [0; 8192]).unwrap();
    let asked = |path: &str| NodeGetVolumeStatsRequest {
        volume_id: "tmpfs-1".to_owned(),
        volume_path: path.to_owned(),
    };
    let stats = |path: &str| run(async { driver.node().node_get_volume_stats(asked(path)).await });
    let usage = stats(&text(&target)).unwrap().into_inner().usage;
    assert_eq!((usage[0].total, usage[0].used), (16 << 20, 8192));
    assert_eq!(usage[1].used, 2, "the root and the file: {usage:?}");
    assert_eq!(stats("/not/there").unwrap_err().code(), Code::NotFound);
}
