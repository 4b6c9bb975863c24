//! Sockets: who is understood there, and what is left of them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use nix::sys::signal::Signal;
use podstuck_csi_driver::proto::registration::{
    InfoRequest, RegistrationStatus, registration_client::RegistrationClient,
};

use common::{Driver, PATIENCE, Running, channel, run};

mod common;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The kinds of the frames that are about stream 1, until it ends.
fn answer(mut stream: UnixStream) -> Vec<u8> {
    let mut kinds = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let [a, b, c, kind, flags, .., last] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).unwrap();
        if last == 1 {
            kinds.push(kind);
            if kind == RST_STREAM || flags & END_STREAM != 0 {
                return kinds;
            }
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// As kubelet 1.20 calls it: the authority is the socket's path.
#[test]
fn a_client_that_takes_the_path_for_the_authority_is_answered() {
    let driver = Driver::start(&[]);
    let headers: [(&[u8], &[u8]); 6] = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/csi.v1.Identity/GetPluginInfo"),
        (b":authority", b"/var/lib/kubelet/plugins/csi.podstuck/csi.sock"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ];
    let mut stream = UnixStream::connect(&driver.running.socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    let block = loona_hpack::Encoder::new().encode(headers);
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &block)).unwrap();
    // An empty message: not compressed, of no length.
    stream.write_all(&frame(DATA, END_STREAM, 1, &[0; 5])).unwrap();
    assert_eq!(answer(stream), [HEADERS, DATA, HEADERS], "{}", driver.running.log());
}

#[test]
fn a_driver_that_is_asked_to_end_leaves_its_socket_unless_asked() {
    let mut leaves = Driver::start(&[]);
    leaves.running.signal(Signal::SIGTERM);
    assert!(leaves.running.wait().success());
    assert!(leaves.running.socket.exists());
    let refused = UnixStream::connect(&leaves.running.socket).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    let mut removes = Driver::start(&["--remove-socket"]);
    removes.running.signal(Signal::SIGTERM);
    assert!(removes.running.wait().success());
    assert!(!removes.running.socket.exists());
}

/// A call that hangs does not keep the driver from ending, and a socket that was left is replaced.
#[test]
fn a_driver_ends_while_it_hangs_and_starts_again() {
    let mut driver = Driver::start(&[]);
    let target = driver.target("a");
    driver.fault("hang");
    run(async {
        let hangs = driver.unpublish("v1", &target);
        let ends = async {
            while !driver.running.log().contains("never be answered") {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            driver.running.signal(Signal::SIGTERM);
        };
        let (answer, ()) = tokio::join!(hangs, ends);
        assert!(answer.is_err(), "{answer:?}");
    });
    assert!(driver.running.wait().success());
    driver.restart();
}

#[test]
fn what_is_no_socket_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("precious");
    fs::write(&file, "data").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_podstuck-csi-driver"))
        .args(["registrar", "--registration-socket", "precious"])
        .args(["--csi-socket", "/csi.sock", "--name", "n"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("] precious is no socket\n"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "data");
}

fn registrar(directory: &Path) -> Running {
    let arguments =
        ["registrar", "--registration-socket", "reg.sock", "--csi-socket", "/plugins/csi.sock"];
    Running::start(directory, "reg.sock", &[&arguments[..], &["--name", "csi.podstuck"]].concat())
}

#[test]
fn a_registrar_names_the_driver_and_takes_its_socket_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut running = registrar(directory.path());
    run(async {
        let mut client = RegistrationClient::new(channel(&running.socket));
        let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "csi.podstuck"));
        assert_eq!(info.endpoint, "/plugins/csi.sock");
        assert_eq!(info.supported_versions, ["1.0.0"]);
        let registered = RegistrationStatus { plugin_registered: true, ..Default::default() };
        client.notify_registration_status(registered).await.unwrap();
    });
    running.signal(Signal::SIGTERM);
    assert!(running.wait().success());
    assert!(!running.socket.exists());
}

#[test]
fn a_registrar_that_is_refused_ends_with_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut running = registrar(directory.path());
    run(async {
        let refusal = RegistrationStatus { error: "no such driver".into(), ..Default::default() };
        let mut client = RegistrationClient::new(channel(&running.socket));
        // It may be gone before it has answered.
        let _ = client.notify_registration_status(refusal).await;
    });
    assert_eq!(running.wait().code(), Some(1));
    assert!(
        running.log().contains("kubelet did not register \"csi.podstuck\": \"no such driver\"")
    );
}
