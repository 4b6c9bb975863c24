//! What is answered where nothing is mounted: these need no root.

use std::{fs, path::Path, time::Duration};

use podstuck_csi_driver::proto::csi::{
    GetPluginInfoRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest, ProbeRequest,
    VolumeCapability,
    node_service_capability::{Type, rpc},
    volume_capability::{AccessType, BlockVolume},
};
use tokio::time::timeout;
use tonic::Code;

use common::{Driver, publication, run};

mod common;

#[test]
fn unpublishing_fails_as_ordered_at_each_call() {
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    let unpublish = |volume: &str| run(driver.unpublish(volume, &target));
    assert_eq!(unpublish("v1"), Ok(()), "without a file");
    for (fault, code) in
        [("not-found", Code::NotFound), ("internal", Code::Internal), ("aborted", Code::Aborted)]
    {
        driver.fault(fault);
        assert_eq!(unpublish("v1"), Err(code), "{fault}");
        driver.fault(&format!(r#"{{"fault": "{fault}", "volume": "v1"}}"#));
        assert_eq!((unpublish("v1"), unpublish("v2")), (Err(code), Ok(())), "{fault}");
    }
    driver.fault("explode");
    assert_eq!(unpublish("v1"), Err(Code::FailedPrecondition));
    driver.fault("none");
    assert_eq!(unpublish("v1"), Ok(()));
}

#[test]
fn who_hangs_keeps_the_volume_s_lock_until_it_ends() {
    let mut driver = Driver::start(&[]);
    let target = driver.target("a");
    driver.fault("hang");
    let answered =
        run(async { timeout(Duration::from_millis(300), driver.unpublish("v1", &target)).await });
    assert!(answered.is_err(), "{answered:?}");
    driver.fault("none");
    assert_eq!(run(driver.unpublish("v1", &target)), Err(Code::Aborted));
    assert_eq!(run(driver.unpublish("v2", &target)), Ok(()));
    driver.restart();
    assert_eq!(run(driver.unpublish("v1", &target)), Ok(()));
}

#[test]
fn a_call_is_a_line_of_the_log() {
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    driver.fault("internal");
    run(driver.unpublish("v1", &target)).unwrap_err();
    let log = driver.running.log();
    let line = log.lines().last().unwrap();
    let (header, text) = line.split_once("] ").unwrap();
    assert!(header.starts_with('E') && header.contains(" node.rs:"), "{line}");
    assert_eq!(
        text,
        format!(
            "GRPC call: NodeUnpublishVolume volume=\"v1\" target={target:?} result=Internal \
             message=\"volume \\\"v1\\\" cannot be detached\""
        )
    );
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let driver = Driver::start(&[]);
    let target = driver.target("a");
    let refused = |volume: &str, target: &Path| run(driver.unpublish(volume, target));
    assert_eq!(refused("", &target), Err(Code::InvalidArgument));
    assert_eq!(refused("../v1", &target), Err(Code::InvalidArgument));
    assert_eq!(refused("v1", Path::new("")), Err(Code::InvalidArgument));
    assert_eq!(refused("v1", Path::new("pods/a")), Err(Code::InvalidArgument));
    let mut block = publication("v1", &target);
    block.volume_capability =
        Some(VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})) });
    assert_eq!(run(driver.publish(block)).unwrap_err().code(), Code::InvalidArgument);
    let mut nothing = publication("v1", &target);
    nothing.volume_capability = None;
    assert_eq!(run(driver.publish(nothing)).unwrap_err().code(), Code::InvalidArgument);
    assert!(!target.exists());
}

#[test]
fn it_says_who_it_is_and_what_it_can() {
    let capabilities = |driver: &Driver| {
        let asked = NodeGetCapabilitiesRequest {};
        let answer = run(async { driver.node().node_get_capabilities(asked).await }).unwrap();
        let types = answer.into_inner().capabilities.into_iter().map(|capability| {
            let Some(Type::Rpc(rpc)) = capability.r#type else { panic!("no rpc") };
            rpc.r#type()
        });
        types.collect::<Vec<_>>()
    };
    let driver = Driver::start(&[]);
    assert_eq!(capabilities(&driver), [rpc::Type::GetVolumeStats]);
    run(async {
        let info = driver.identity().get_plugin_info(GetPluginInfoRequest {}).await.unwrap();
        assert_eq!(info.into_inner().name, "csi.podstuck.test");
        driver.identity().probe(ProbeRequest {}).await.unwrap();
        let info = driver.node().node_get_info(NodeGetInfoRequest {}).await.unwrap();
        assert_eq!(info.into_inner().node_id, "n1");
    });
    let stages = Driver::start(&["--stage"]);
    let both = [rpc::Type::GetVolumeStats, rpc::Type::StageUnstageVolume];
    assert_eq!(capabilities(&stages), both);
}

#[test]
fn a_driver_that_would_not_fail_as_ordered_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("fault"), "explode").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_podstuck-csi-driver"))
        .args(["driver", "--socket", "s", "--state", "state", "--control", "fault"])
        .args(["--name", "n", "--node-id", "i"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("fault says no fault: unknown variant `explode`"), "{said}");
}
