//! The image: its layout, and its programs in containers of runc's with what the plugin's and the agent's pod are given.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use podstuck_tests::{requires, root_and_btf, slowdown};
use serde_json::{Value, json};

use super::made::{VERSION, architecture, artefact, done, has, made, tool};
use super::plugin::printed_pod;

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

/// tracefs, which systemd mounts on every host; mounted by the test where it is not, until this is dropped.
struct Tracing {
    is_ours: bool,
}

const TRACING: &str = "/sys/kernel/tracing";

impl Tracing {
    fn mounted() -> Self {
        let is_ours = !Path::new(TRACING).join("events").is_dir();
        if is_ours {
            let none = None::<&str>;
            mount(Some("tracefs"), TRACING, Some("tracefs"), MsFlags::empty(), none).unwrap();
        }
        Self { is_ours }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = umount2(TRACING, MntFlags::MNT_DETACH);
        }
    }
}

/// A container of the image, with what a container of this pod may do. Nothing of it is left.
struct Container {
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

    fn at(&self, name: &str) -> PathBuf {
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
            "linux": {"namespaces": namespaces},
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
    let _tracing = Tracing::mounted();
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
fn agents_pod(state: &Path) -> Value {
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

#[test]
fn the_agent_counts_with_what_its_manifest_gives_it() {
    requires!(made(), has("runc"), root_and_btf());
    let _tracing = Tracing::mounted();
    let state = tempfile::tempdir().unwrap();
    let pod = agents_pod(state.path());
    let args = pod["spec"]["containers"][0]["args"].as_array().unwrap().iter();
    let args: Vec<&str> =
        ["--no-events"].into_iter().chain(args.map(|it| it.as_str().unwrap())).collect();
    let container = Container::new(&args, &pod);
    let mut runc = container.to_run();
    let agent =
        runc.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let has_counted = || {
        let metrics = fs::read_to_string(state.path().join("export/node-metrics.txt"));
        metrics.is_ok_and(|text| text.contains("\npodstuck_calls_total{syscall=\"unlink"))
    };
    let begun = Instant::now();
    while !has_counted() && begun.elapsed() < Duration::from_secs(60) * slowdown() {
        thread::sleep(Duration::from_millis(200));
    }
    let is_well = has_counted();
    let _ = container.runc().args(["kill", &container.id, "TERM"]).status();
    let output = agent.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(is_well && output.status.success(), "{}: {said}", output.status);
    println!("measured: the agent's own deletions are counted after {:.1?}", begun.elapsed());
}
