//! The image: its layout, and its programs in containers of runc's with what the plugin's and the agent's pod are given.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use podstuck_tests::{lab, requires, root_and_btf, slowdown};
use serde_json::{Value, json};

use super::as_by_systemd::AsBySystemd;
use super::made::{VERSION, architecture, artefact, done, has, made, tool};
use super::plugin::printed_pod;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../podstuck-user/agent/chart");

/// The layout, unpacked.
struct Layout(tempfile::TempDir);

impl Layout {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = artefact(&format!("podstuck-{VERSION}-image.tar"));
        done(tool("tar").arg("-xf").arg(image).arg("-C").arg(folder.path()));
        Self(folder)
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.0.path().join(name)).unwrap()).unwrap()
    }

    /// A blob, which must be as long as its descriptor says, and have its checksum.
    fn blob(&self, descriptor: &Value) -> PathBuf {
        let digest = descriptor["digest"].as_str().unwrap();
        let path = self.0.path().join("blobs").join(digest.replace(':', "/"));
        let size = fs::metadata(&path).unwrap().len();
        assert_eq!(descriptor["size"], size, "{descriptor}");
        assert_eq!(digest, sum(&path), "{descriptor}");
        path
    }

    fn json(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(&fs::read(self.blob(descriptor)).unwrap()).unwrap()
    }

    /// The manifest and the configuration for these processors.
    fn own(&self) -> (Value, Value) {
        let index = self.json(&self.read("index.json")["manifests"][0]);
        let manifests = index["manifests"].as_array().unwrap();
        let own = json!({ "architecture": architecture(), "os": "linux" });
        let found = manifests.iter().find(|manifest| manifest["platform"] == own).unwrap();
        let manifest = self.json(found);
        let config = self.json(&manifest["config"]);
        (manifest, config)
    }

    /// Unpacks its one layer.
    fn unpack(&self, to: &Path) {
        let (manifest, _) = self.own();
        let layer = self.blob(&manifest["layers"][0]);
        done(tool("tar").arg("-xzpf").arg(layer).arg("-C").arg(to));
    }
}

fn sum(path: &Path) -> String {
    let said = done(tool("sha256sum").arg(path));
    format!("sha256:{}", said.split_whitespace().next().unwrap())
}

#[test]
fn the_layout_is_one_by_the_specification() {
    requires!(made());
    let layout = Layout::new();
    assert_eq!(layout.read("oci-layout")["imageLayoutVersion"], "1.0.0");
    let named = &layout.read("index.json")["manifests"][0]["annotations"];
    let name = format!("docker.io/library/podstuck:{VERSION}");
    assert_eq!(named["io.containerd.image.name"], name);
    let (manifest, config) = layout.own();
    assert_eq!(config["config"]["Entrypoint"], json!(["/podstuck"]));
    assert_eq!((&config["os"], &config["architecture"]), (&json!("linux"), &json!(architecture())));
    // Of the layer as it is unpacked, not as it is stored.
    let unpacked = layout.0.path().join("layer.tar");
    let mut gzip = tool("gzip");
    gzip.arg("-dc").arg(layout.blob(&manifest["layers"][0]));
    let status = gzip.stdout(File::create(&unpacked).unwrap()).status().unwrap();
    assert!(status.success());
    assert_eq!(config["rootfs"]["diff_ids"], json!([sum(&unpacked)]));
}

/// A container of the image, with what a container of this pod may do. Nothing of it is left.
pub struct Container {
    top: tempfile::TempDir,
    id: String,
}

impl Container {
    fn new(args: &[&str], pod: &Value) -> Self {
        let top = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/run").unwrap();
        let id = top.path().file_name().unwrap().to_string_lossy().into_owned();
        let this = Self { top, id };
        fs::create_dir(this.at("rootfs")).unwrap();
        let layout = Layout::new();
        layout.unpack(&this.at("rootfs"));
        let (_, image) = layout.own();
        let config = this.config(&image["config"], args, &pod["spec"]);
        fs::write(this.at("config.json"), config.to_string()).unwrap();
        this
    }

    /// A file of its bundle.
    pub fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn runc(&self) -> Command {
        let mut runc = tool("runc");
        runc.arg("--root").arg(self.at("state"));
        runc
    }

    fn to_run(&self) -> Command {
        let mut runc = self.runc();
        runc.args(["run", "--bundle"]).arg(self.top.path()).arg(&self.id);
        runc
    }

    fn run(&self) -> (Option<i32>, String) {
        let mut runc = self.to_run();
        let output = runc.stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Whether the kernel filters the system calls of its first process.
    fn is_filtered(&self) -> bool {
        let state: Value =
            serde_json::from_str(&done(self.runc().args(["state", &self.id]))).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", state["pid"])).unwrap();
        status.lines().any(|line| line == "Seccomp:\t2")
    }

    /// As kubelet and a runtime make it of the pod's description.
    fn config(&self, image: &Value, args: &[&str], spec: &Value) -> Value {
        let container = &spec["containers"][0];
        let security = &container["securityContext"];
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{security}");
        let added = security["capabilities"]["add"].as_array().unwrap().iter();
        let may: Vec<String> = added.map(|one| format!("CAP_{}", one.as_str().unwrap())).collect();
        let program = container["command"].get(0).unwrap_or(&image["Entrypoint"][0]);
        let mut words = vec![program.as_str().unwrap()];
        words.extend(args);
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}),
            json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
                "options": ["nosuid", "noexec", "nodev", "ro"]}),
        ];
        for mount in container["volumeMounts"].as_array().unwrap() {
            let volumes = spec["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
            let access = if mount["readOnly"] == true { "ro" } else { "rw" };
            mounts.push(json!({"destination": mount["mountPath"], "type": "bind",
                "source": volume["hostPath"]["path"], "options": ["rbind", "rslave", access]}));
        }
        let mut namespaces = vec!["ipc", "uts", "mount", "network"];
        if spec["hostPID"] != true {
            namespaces.push("pid");
        }
        let namespaces: Vec<Value> =
            namespaces.into_iter().map(|kind| json!({"type": kind})).collect();
        let mut linux = json!({"namespaces": namespaces});
        if security["seccompProfile"]["type"] == "Localhost" {
            let name = security["seccompProfile"]["localhostProfile"].as_str().unwrap();
            let profile = fs::read(format!("{CHART}/files/{name}")).unwrap();
            linux["seccomp"] = serde_json::from_slice(&profile).unwrap();
        }
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": security["runAsUser"], "gid": 0},
                "args": words,
                "env": image["Env"],
                "cwd": image["WorkingDir"],
                "noNewPrivileges": security["allowPrivilegeEscalation"] == false,
                "capabilities": {"bounding": may, "effective": may, "permitted": may},
            },
            "root": {"path": "rootfs", "readonly": security["readOnlyRootFilesystem"]},
            "mounts": mounts,
            "linux": linux,
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.runc().args(["delete", "--force", &self.id]).output();
    }
}

#[test]
fn the_images_program_traces_with_the_least_privilege() {
    requires!(made(), has("runc"), root_and_btf());
    let _machine = AsBySystemd::new();
    let pod = printed_pod();
    let version = Container::new(&["--version"], &pod).run();
    assert_eq!(version, (Some(0), format!("podstuck {VERSION}\n")));
    let (status, said) =
        Container::new(&["doctor", "--host-root", "/host", "--api", "never"], &pod).run();
    assert_eq!(status, Some(0), "{said}");
    // What it is not given, it does not need: without the host's process ids it cannot run, and says so.
    let mut alone = pod;
    alone["spec"]["hostPID"] = false.into();
    let (status, said) = Container::new(&["doctor", "--host-root", "/host"], &alone).run();
    assert_ne!(status, Some(0), "{said}");
}

/// The pod of the agent's manifest, with this directory in place of the one that it keeps its state in.
pub fn agents_pod(state: &Path) -> Value {
    let manifest =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../podstuck-user/agent/podstuck-agent.yaml");
    let text = fs::read_to_string(manifest).unwrap();
    let set = text.split("\n---\n").find(|it| it.contains("\nkind: DaemonSet\n")).unwrap();
    let mut set: Value = serde_saphyr::from_str(set).unwrap();
    let mut pod = set["spec"]["template"].take();
    let mut volumes = pod["spec"]["volumes"].as_array_mut().unwrap().iter_mut();
    volumes.find(|it| it["name"] == "state").unwrap()["hostPath"]["path"] =
        state.to_str().unwrap().into();
    pod
}

/// Runs the agent of this pod, with these options of its watch, until something is so; what it has printed.
pub fn run_agent(pod: &Value, options: &[&str], is_so: &dyn Fn(&Container) -> bool) -> String {
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap().iter();
    let args = ["--no-events"].into_iter().chain(args.map(|it| it.as_str().unwrap()));
    let args: Vec<&str> = args.chain(options.iter().copied()).collect();
    let container = Container::new(&args, pod);
    let (out, error) = (container.at("out"), container.at("error"));
    let mut runc = container.to_run();
    runc.stdin(Stdio::null());
    runc.stdout(File::create(&out).unwrap()).stderr(File::create(&error).unwrap());
    let mut agent = runc.spawn().unwrap();
    let begun = Instant::now();
    let limit = Duration::from_secs(120) * slowdown();
    while !is_so(&container) && begun.elapsed() < limit && agent.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(200));
    }
    let is_well = is_so(&container);
    println!("measured: until then {:.1?}", begun.elapsed());
    let _ = container.runc().args(["kill", &container.id, "TERM"]).status();
    let status = agent.wait().unwrap();
    let said = fs::read_to_string(out).unwrap() + &fs::read_to_string(error).unwrap();
    assert!(is_well && status.success(), "{status}: {said}");
    said
}

/// Whether the agent's own deletions are counted.
pub fn has_counted(state: &Path) -> bool {
    let metrics = fs::read_to_string(state.join("export/node-metrics.txt"));
    metrics.is_ok_and(|text| text.contains("\npodstuck_calls_total{syscall=\"unlink"))
}

#[test]
fn the_agent_counts_with_what_its_manifest_gives_it() {
    requires!(made(), has("runc"), root_and_btf());
    let _machine = AsBySystemd::new();
    let state = tempfile::tempdir().unwrap();
    run_agent(&agents_pod(state.path()), &[], &|_| has_counted(state.path()));
}

/// Under the profile that the chart has for it, from its start to a finding and its end.
#[test]
fn the_agent_finds_a_stuck_pod_under_its_seccomp_profile() {
    requires!(made(), has("runc"), root_and_btf());
    let _machine = AsBySystemd::new();
    let state = tempfile::tempdir().unwrap();
    let mut pod = agents_pod(state.path());
    pod["spec"]["containers"][0]["securityContext"]["seccompProfile"] =
        json!({"type": "Localhost", "localhostProfile": "seccomp.json"});
    let (stuck, ready) = lab("immutable-attribute", &[]);
    let [uid, root] = ["pod_uid", "kubelet_root"].map(|key| ready[key].as_str().unwrap());
    stuck.resume();
    let options = ["--kubelet-root", root];
    let said = run_agent(&pod, &options, &|container| {
        let lines = fs::read_to_string(container.at("out")).unwrap();
        let is_found = |line: &str| line.contains("\"immutable-attribute\"") && line.contains(uid);
        has_counted(state.path()) && lines.lines().any(is_found) && container.is_filtered()
    });
    stuck.stop();
    // The profile refuses what the pod's capabilities do not permit either: no probe and no source is lost.
    let start: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(start["probes_missing"], json!([]), "{start}");
    let profile = fs::read_to_string(format!("{CHART}/files/seccomp.json")).unwrap();
    for call in ["mount", "setns", "unshare", "ptrace", "chroot", "init_module", "io_uring_setup"] {
        assert!(!profile.contains(&format!("\"{call}\"")), "{call}");
    }
}
