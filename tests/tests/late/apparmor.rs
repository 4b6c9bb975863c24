//! AppArmor, by a real kernel's decisions, with the profiles that `xtask/src/vm/apparmor.rs` loads into a guest.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_testing::api_server::{Answer, ApiServer};
use podstuck_tests::{Ending, http_get, lab, obey, podstuck, requires, root_and_btf, slowdown};
use serde_json::{Value, json};

use super::{Container, Node, answer, klog, logrus};

const CONTAINER: &str = "a1b2c3d4e5f60718293a4b5c6d7e8f905c0d1e2f3a4b5c6d7e8f90a1b2c3d4e5";
const PROFILES: &str = "/sys/kernel/security/apparmor/profiles";

fn profiles() -> Result<(), &'static str> {
    let loaded = fs::read_to_string(PROFILES).unwrap_or_default();
    let has = |name: &str| loaded.contains(&format!("{name} (enforce)"));
    let all = ["podstuck-agent", "podstuck-test-runtime", "podstuck-test-container"];
    if all.into_iter().all(has) { Ok(()) } else { Err("no AppArmor with the tests' profiles") }
}

/// Runs a command of the shell under a profile.
fn under(profile: &str, command: &str) -> Command {
    by(Command::new("sh"), profile, command)
}

fn by(mut shell: Command, profile: &str, command: &str) -> Command {
    let script = format!("echo 'exec {profile}' >/proc/self/attr/exec && exec {command}");
    shell.args(["-c", &script]);
    shell
}

/// runc#4281: the runtime has a profile of its own, from which the container's accepts no signal.
#[test]
fn a_signal_that_apparmor_denies_the_runtime_is_named_and_the_printed_command_ends_the_process() {
    requires!(root_and_btf(), profiles());
    let (node, _daemon) = Node::beside(61, "containerd");
    let mut command = under("podstuck-test-container", "sleep 600");
    let mut container = Container::of(&node.uid, CONTAINER, &mut command);
    let pid = container.process.id();
    let is_confined = || {
        let current = fs::read_to_string(format!("/proc/{pid}/attr/current"));
        current.unwrap_or_default().starts_with("podstuck-test-container")
    };
    while !is_confined() {
        std::thread::yield_now();
    }
    // As runc, whose name the kernel logs.
    let kills = format!("sh -c 'printf runc >/proc/self/comm; kill -9 {pid}'");
    let output = under("podstuck-test-runtime", &kills).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("Permission denied"), "{output:?}");
    let (name, uid) = (node.name(), &node.uid);
    let pod = format!("pod=\"shop/{name}\" podUID=\"{uid}\"");
    let error = format!(
        "failed to kill container \\\"{CONTAINER}\\\": unknown error after kill: runc did not terminate successfully: exit \
         status 1: unable to signal init: permission denied\\n: unknown"
    );
    let of_runtime = |ago| {
        let text =
            format!("msg=\"StopContainer for \\\"{CONTAINER}\\\" failed\" error=\"{error}\"");
        logrus(ago, "error", &text)
    };
    let of_kubelet = |ago| {
        let error = error.replace('\\', "\\\\\\");
        let text = format!(
            "\"Error syncing pod, skipping\" err=\"failed to \\\"KillContainer\\\" for \\\"app\\\" with KillContainerError: \
             \\\"rpc error: code = Unknown desc = {error}\\\"\" {pod}"
        );
        klog(ago, 'E', &text)
    };
    let killing = format!(
        "\"Killing container with a grace period\" {pod} containerName=\"app\" containerID=\"containerd://{CONTAINER}\" \
         gracePeriod=30"
    );
    fs::write(node.log("containerd"), of_runtime(200) + &of_runtime(20)).unwrap();
    let text = klog(400, 'I', &killing) + &of_kubelet(200) + &of_kubelet(20);
    fs::write(node.log("kubelet"), text).unwrap();
    let (lines, _) = node.ask("20s");
    let answer = answer(&lines);
    let cause = &answer["causes"][0];
    assert_eq!(cause["id"], "apparmor-signal-denied", "{answer:#}");
    let evidence = cause["evidence"].to_string();
    let denied = denied_to("podstuck-test-container");
    assert!(evidence.contains("profile=\\\"podstuck-test-container\\\""), "{denied:#?} {cause:#}");
    obey(cause["remedies"][0]["command"].as_str().unwrap());
    container.process.wait().unwrap();
}

/// What AppArmor has denied the processes of a profile, by the kernel's log.
fn denied_to(profile: &str) -> Vec<String> {
    let log = Command::new("dmesg").output().unwrap();
    let by = format!("profile=\"{profile}\"");
    let is_denied = |line: &&str| line.contains("apparmor=\"DENIED\"") && line.contains(&by);
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    log.lines().filter(is_denied).map(str::to_owned).collect()
}

/// The agent and the watch that it starts, under the profile of their container: all probes are attached, the stuck pod is
/// found and has its Event, metrics and health are served, and nothing that they do is denied.
#[test]
fn the_agents_profile_permits_what_it_does() {
    requires!(root_and_btf(), profiles());
    let (stuck, ready) = lab("immutable-attribute", &[]);
    let [uid, root] = ["pod_uid", "kubelet_root"].map(|key| ready[key].as_str().unwrap());
    // A guest has no network.
    obey("ip link set lo up");
    let server = ApiServer::serve(|request| Answer::Text(201, request.body.clone()));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let agent = format!(
        "{} --node n1 --listen 127.0.0.1:{port} --kubeconfig {} -- --kubelet-root {root} --api never",
        podstuck().with_file_name("podstuck-agent").display(),
        server.kubeconfig().display(),
    );
    // The manifest's capabilities.
    let mut shell = Command::new("setpriv");
    shell.arg("--bounding-set=-all,+bpf,+perfmon,+sys_ptrace,+dac_read_search").arg("sh");
    let mut agent = Ending::start(by(shell, "podstuck-agent", &agent).stdout(Stdio::piped()));
    // The lines of the watch.
    let printed = BufReader::new(agent.stdout.take().unwrap()).lines();
    let mut lines = printed.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let start = lines.next();
    let denied = denied_to("podstuck-agent");
    let start = start.unwrap_or_else(|| panic!("{denied:#?}"));
    assert_eq!((&start["probes_missing"], denied), (&json!([]), vec![]), "{start:#}");
    stuck.resume();
    let of_pod = |line: &Value| line["type"] == "finding" && line["pod"]["uid"] == uid;
    assert_eq!(lines.find(of_pod).unwrap()["id"], "immutable-attribute");
    let get = |path: &str| http_get(port, path).unwrap();
    // The first Event comes within a minute.
    let end = Instant::now() + Duration::from_secs(120) * slowdown();
    let is_done = || {
        let is_written = server.requests().iter().any(|path| path.contains("/events"));
        is_written
            && get("/healthz").contains("200 OK")
            && get("/metrics").contains("immutable-attribute")
    };
    while !is_done() {
        assert!(Instant::now() < end, "{:?}\n{}", server.requests(), get("/healthz"));
        thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(denied_to("podstuck-agent"), Vec::<String>::new());
    drop(agent);
    stuck.stop();
}
