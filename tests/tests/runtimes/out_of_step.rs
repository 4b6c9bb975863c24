//! dockerd and containerd out of step in both directions, a shim that cannot run, and a dockerd that reads requests
//! and answers none.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use podstuck_tests::{Running, slowdown, watch};
use serde_json::Value;

use super::{
    Ending, Runtimes, by_container::ask, by_daemon::signal, daemons::until, finding, obey, output,
};

const OUT_OF_STEP: &str = "docker-containerd-state-desync";

/// The event of its end is lost, as where containerd is killed for memory with what it has started.
#[test]
fn one_that_has_ended_and_that_docker_says_is_up() {
    let Some(mut runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("lost");
    let id = runtimes.inspect("lost", "{{.Id}}");
    let (shim, init) = runtimes.shim_of_docker("lost");
    let mut live = watch(&["--container", "lost"]);
    runtimes.kill_containerd();
    // In this order: a shim tells containerd, when that is back, what has ended.
    for pid in [shim, init] {
        signal(pid, Signal::SIGKILL);
    }
    until("both have ended", || !is_there(shim) && !is_there(init));
    runtimes.start_containerd();
    assert_eq!(runtimes.inspect("lost", "{{.State.Status}}"), "running");
    let found = finding(&mut live, OUT_OF_STEP, "new");
    assert_eq!(runtimes.inspect("lost", "{{.State.Status}}"), "running", "dockerd does not notice");
    let (answer, status) = ask("lost", &["--timeout", "60s"]);
    let late = &answer["causes"][0];
    assert_eq!((&late["id"], status), (&OUT_OF_STEP.into(), Some(1)), "{answer:#}");
    for found in [&found, late] {
        assert_eq!(
            (&found["certainty"], &found["blocks_deletion"]),
            (&"firm".into(), &true.into()),
            "{found:#}"
        );
        assert_eq!(
            (&found["container"], &found["container_name"]),
            (&id.as_str().into(), &"lost".into())
        );
        let facts = found["evidence"].to_string();
        assert!(facts.contains(&format!("with process {init}")), "{facts}");
        assert!(facts.contains("its shim is gone"), "{facts}");
    }
    obey(late);
    let verify = late["remedies"][0]["verify"].as_str().unwrap();
    let mut check = std::process::Command::new("sh");
    output({
        check.arg("-c").arg(verify);
        check
    });
    assert_eq!(runtimes.inspect("lost", "{{.State.Status}}"), "exited");
    finding(&mut live, OUT_OF_STEP, "cleared");
    output(runtimes.docker(&["rm", "lost"]));
    let _ = live.stop();
}

/// What dockerd has written is changed while it does not run, as a disk that was full leaves what is old.
#[test]
fn one_that_lives_and_that_docker_says_has_exited() {
    let Some(mut runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("alive");
    let id = runtimes.inspect("alive", "{{.Id}}");
    let (shim, init) = runtimes.shim_of_docker("alive");
    runtimes.kill_dockerd();
    let file = runtimes.top().join("data/docker/containers").join(&id).join("config.v2.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let state = config["State"].as_object_mut().unwrap();
    state.insert("Running".into(), false.into());
    state.insert("Pid".into(), 0.into());
    state.insert("FinishedAt".into(), Timestamp::now().to_string().into());
    fs::write(&file, config.to_string()).unwrap();
    runtimes.start_dockerd_with(&["--live-restore"]);
    assert_eq!(runtimes.inspect("alive", "{{.State.Status}}"), "exited");
    assert!(is_there(init));

    let mut live = watch(&["--container", "alive"]);
    let found = finding(&mut live, OUT_OF_STEP, "new");
    assert_eq!((&found["certainty"], &found["container"]), (&"firm".into(), &id.as_str().into()));
    let facts = found["evidence"].to_string();
    assert!(facts.contains(&format!("its shim (pid {shim}) started before that")), "{facts}");
    assert!(facts.contains(&format!("its first process (pid {init}) is alive")), "{facts}");
    obey(&found);
    until("it ends", || !is_there(init));
    // Docker 28 has containerd forget the task by itself; 20.10 does not.
    thread::sleep(Duration::from_secs(2));
    if is_there(shim) {
        runtimes.obey(&found, 1);
    }
    until("its shim ends", || !is_there(shim));
    finding(&mut live, OUT_OF_STEP, "cleared");
    output(runtimes.docker(&["rm", "alive"]));
    let _ = live.stop();
}

#[test]
fn a_shim_that_a_signal_has_stopped() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("kept");
    let (shim, _) = runtimes.shim_of_docker("kept");
    let id = runtimes.inspect("kept", "{{.Id}}");
    let mut live = watch(&["--container", "kept"]);
    let mut node = watch(&[]);
    signal(shim, Signal::SIGSTOP);
    let mut remove = runtimes.docker(&["rm", "-f", "kept"]).stdout(Stdio::null()).spawn().unwrap();
    let found = finding(&mut live, "shim-hung", "new");
    let of_node = node.wait_for("the shim, of the node", |line| {
        line["type"] == "finding" && line["container"] == id.as_str()
    });
    let (answer, status) = ask("kept", &["--timeout", "60s"]);
    let late = &answer["causes"][0];
    assert_eq!((&late["id"], status), (&"shim-hung".into(), Some(1)), "{answer:#}");
    for found in [&found, &of_node, late] {
        assert_eq!((&found["id"], &found["certainty"]), (&"shim-hung".into(), &"firm".into()));
        assert_eq!(found["container_name"], "kept", "{found:#}");
        let facts = found["evidence"].to_string();
        assert!(facts.contains(&format!("(pid {shim}), the container's shim")), "{facts}");
    }
    assert_eq!((&found["blocks_deletion"], &late["blocks_deletion"]), (&true.into(), &true.into()));
    obey(late);
    let _ = remove.wait();
    let _ = runtimes.docker(&["rm", "-f", "kept"]).output();
    finding(&mut live, "shim-hung", "cleared");
    let _ = (live.stop(), node.stop());
}

#[test]
fn a_shim_of_containerds_that_a_signal_has_stopped() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_ctr("plain");
    let tasks = output(runtimes.ctr(&["task", "list", "--quiet"]));
    assert_eq!(tasks, "plain");
    let pids = output(runtimes.ctr(&["task", "ps", "plain"]));
    let init: u32 =
        pids.lines().nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{init}/stat")).unwrap();
    let shim = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    let shim: u32 = shim.parse().unwrap();
    signal(shim, Signal::SIGSTOP);
    let (answer, status) = ask("plain", &["--timeout", "60s"]);
    let found = &answer["causes"][0];
    assert_eq!((&found["id"], status), (&"shim-hung".into(), Some(1)), "{answer:#}");
    assert_eq!((&found["certainty"], &found["container"]), (&"firm".into(), &"plain".into()));
    obey(found);
    runtimes.kill_ctr("plain");
    runtimes.delete_ctr("plain");
}

/// A plugin that dockerd asks before it does anything: it accepts every connection and answers only who it is.
struct Mute {
    socket: PathBuf,
}

impl Mute {
    fn new(name: &str) -> Self {
        let socket = Path::new("/run/docker/plugins").join(format!("{name}.sock"));
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            let mut kept: Vec<UnixStream> = Vec::new();
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut request = [0; 4096];
                let length = client.read(&mut request).unwrap_or(0);
                if request[..length].starts_with(b"POST /Plugin.Activate") {
                    let body = r#"{"Implements":["authz"]}"#;
                    let length = body.len();
                    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\
                        Content-Type: application/vnd.docker.plugins.v1.1+json\r\n";
                    let _ = write!(client, "{head}Content-Length: {length}\r\n\r\n{body}");
                } else {
                    kept.push(client);
                }
            }
        });
        Self { socket }
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

#[test]
fn a_dockerd_that_reads_requests_and_answers_none() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("kept");
    let name = format!("podstuck-mute-{}", std::process::id());
    let _mute = Mute::new(&name);
    let mut live = watch(&[]);
    runtimes.reload_dockerd(&format!(r#"{{"authorization-plugins":["{name}"]}}"#));
    let client = |args: &[&str]| {
        Ending::start(runtimes.docker(args).stdout(Stdio::null()).stderr(Stdio::null()))
    };
    // The configuration is read again some time after the signal.
    until("dockerd answers no request", || {
        let mut asked = client(&["ps"]);
        thread::sleep(Duration::from_millis(500) * slowdown());
        asked.try_wait().unwrap().is_none()
    });
    let waiting = [client(&["ps"]), client(&["version"])];
    let found = silent(&mut live, &runtimes);
    let facts = found["evidence"].to_string();
    for (client, words) in waiting.iter().zip(["docker ps", "docker version"]) {
        assert!(facts.contains(&format!("{words} (pid {}, for ", client.id())), "{facts}");
    }
    assert_eq!(found["certainty"], "firm", "{found:#}");
    assert!(found["explanation"].as_str().unwrap().contains("does not answer"), "{found:#}");
    let (answer, status) = ask("kept", &["--timeout", "60s"]);
    let late = &answer["causes"][0];
    assert_eq!((&late["id"], status), (&"runtime-hang".into(), Some(1)), "{answer:#}");
    assert_eq!((&late["container_name"], &late["blocks_deletion"]), (&"kept".into(), &true.into()));
    // It writes what its threads wait for, and goes on.
    obey(late);
    until("its stacks", || {
        let log = fs::read_to_string(runtimes.top().join("dockerd.log")).unwrap_or_default();
        log.contains("goroutine stacks")
    });
    runtimes.reload_dockerd("{}");
    drop(waiting);
    live.wait_for("its end", |line| line["id"] == "runtime-hang" && line["state"] == "cleared");
    assert_eq!(output(runtimes.docker(&["ps", "--quiet"])).lines().count(), 1);
    let _ = live.stop();
}

/// What is said of this dockerd: others may run on this machine.
fn silent(live: &mut Running, runtimes: &Runtimes) -> Value {
    let explains = format!("dockerd (pid {})", runtimes.dockerd());
    live.wait_for("runtime-hang", |line| {
        line["id"] == "runtime-hang"
            && line["certainty"] == "firm"
            && line["explanation"].as_str().is_some_and(|it| it.starts_with(&explains))
    })
}

fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
