//! A running agent, and helpers to wait for its effects.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podstuck_test_node::ControlPlane;
use podstuck_tests::{Ending, podstuck, slowdown};

pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/chart");
/// Maximum wait. The first Event comes within a minute, and one Event follows a minute: pods of tests beside this one may
/// be before. The lab retries every two minutes in the end.
const LIMIT: Duration = Duration::from_secs(480);
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            println!("measured: {what} after {:.1?}", begun.elapsed());
            return found;
        }
        assert!(begun.elapsed() < LIMIT * slowdown(), "no {what}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Whether this machine has a program; the error says how to get it.
pub(crate) fn has(program: &str) -> Result<(), String> {
    let mut help = Command::new(program);
    let help = help.arg("--help").stdout(Stdio::null()).stderr(Stdio::null());
    help.status().map(drop).map_err(|_| format!("no {program}: `cargo xtask test` gets it"))
}

/// Whether a program succeeds, and its whole output.
pub(crate) fn said(command: &mut Command) -> (bool, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

pub(crate) fn done(command: &mut Command) -> String {
    let (is_done, text) = said(command);
    assert!(is_done, "{command:?}: {text}");
    text
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The agent of this build.
pub(crate) fn own() -> PathBuf {
    env!("CARGO_BIN_EXE_podstuck-agent").into()
}

/// A running agent.
pub(crate) struct Agent {
    child: Ending,
    pub(crate) port: u16,
    pub(crate) out: PathBuf,
}

impl Agent {
    pub(crate) fn start(top: &Path, plane: &ControlPlane, root: &str) -> Self {
        Self::start_with(top, plane, root, &[])
    }

    /// With these variables.
    pub(crate) fn start_with(
        top: &Path,
        plane: &ControlPlane,
        root: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let kubeconfig = plane.kubeconfig();
        let words = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--", "--kubelet-root", root];
        let words = [&words[..], &["--api", "never"]].concat();
        let agent = Self::spawn(top, &own(), &podstuck(), &words, environment);
        wait_for("ready agent", || (agent.get("/readyz").0 == 200).then_some(()));
        agent
    }

    /// Starts an agent with this watch program.
    pub(crate) fn with(top: &Path, watch: &Path, options: &[&str]) -> Self {
        Self::spawn(top, &own(), watch, options, &[])
    }

    /// Starts this program with this watch program.
    pub(crate) fn spawn(
        top: &Path,
        program: &Path,
        watch: &Path,
        options: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let port = free_port();
        let out = top.join("agent.jsonl");
        let mut command = Command::new(program);
        command
            .args(["--node", "n1", "--listen", &format!("127.0.0.1:{port}"), "--podstuck"])
            .arg(watch)
            .arg("--directory")
            .arg(top.join("run"))
            .args(options)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap());
        Self { child: Ending::start(&mut command), port, out }
    }

    /// Status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let (status, body) = self.get_as(path, "*/*");
        (status, String::from_utf8(body).unwrap())
    }

    /// Status and body in a type that is accepted.
    pub(crate) fn get_as(&self, path: &str, accept: &str) -> (u16, Vec<u8>) {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return (0, Vec::new());
        };
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: agent\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let body = answer.split_off(end);
        let status = str::from_utf8(&answer).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        (status, body)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn watch(&self) -> i32 {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        fs::read_to_string(children).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        let watch = self.watch();
        kill(Pid::from_raw(self.pid()), signal).unwrap();
        let status = self.child.wait().unwrap();
        wait_for("end of the watch", || {
            (!Path::new(&format!("/proc/{watch}")).exists()).then_some(())
        });
        status.code()
    }
}
