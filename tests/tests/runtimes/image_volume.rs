//! An image that is a volume of a pod, which a process of the node uses: containerd cannot unmount it, and does not
//! stop the pod's sandbox. kubelet is a process of that name that sleeps, its directory is made by hand, and its
//! requests are the test's: no kubelet that is as old as those that tests can build asks for image volumes.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use podstuck_tests::{diagnose, of_type, skip, watch};
use serde_json::Value;

use super::{
    Ending, Runtimes,
    cri::{Cri, PodConfig, PodMetadata},
    obey,
};

const UID: &str = "3c1f7a52-90d4-4b6e-8a17-6f2d0e5b9c41";

/// The one image volume of a sandbox.
fn volume(runtimes: &Runtimes, sandbox: &str) -> PathBuf {
    let volumes = "containerd/io.containerd.grpc.v1.cri/image-volumes";
    let of_sandbox = runtimes.top().join(volumes).join(sandbox);
    fs::read_dir(of_sandbox).unwrap().next().unwrap().unwrap().path()
}

/// What is left of the pod in kubelet's directory: nothing of the volume.
fn kubelet(root: &Path) -> Ending {
    fs::create_dir_all(root.join("pods").join(UID).join("volumes")).unwrap();
    fs::create_dir_all(root.join("pods").join(UID).join("containers/main")).unwrap();
    let program = root.join("kubelet");
    symlink("/bin/sleep", &program).unwrap();
    Ending::start(Command::new(program).arg("600").stderr(Stdio::null()))
}

#[test]
fn an_image_volume_that_a_process_of_the_node_uses() {
    let Some(mut runtimes) = Runtimes::start() else { return };
    if !runtimes.has_image_volumes() {
        return skip("image volumes take containerd 2.1 or later");
    }
    runtimes.restart_containerd_with_cri();
    let cri = Cri::at(&runtimes.top().join("containerd.sock"));
    let metadata = PodMetadata { name: "web".into(), uid: UID.into(), namespace: "shop".into() };
    let config = PodConfig::new(metadata, runtimes.cgroup_of_pod(UID));
    let sandbox = cri.run_sandbox(&config);
    let container = cri.run_with_image_volume(&sandbox, &config, "docker.io/library/bb:1");
    let volume = volume(&runtimes, &sandbox);
    let root = tempfile::tempdir().unwrap();
    let _kubelet = kubelet(root.path());
    let mut holder = {
        // The test itself must not keep it open.
        let file = fs::File::open(volume.join("bin/busybox")).unwrap();
        Ending::start(Command::new("sleep").arg("3600").stdin(file))
    };
    let root = root.path().to_str().unwrap();
    let mut watch = watch(&["--kubelet-root", root]);
    cri.ask("StopContainer", &container).unwrap();
    for _ in 0..2 {
        let refused = cri.ask("StopPodSandbox", &sandbox).unwrap_err();
        let said = refused.message();
        assert!(said.contains("failed to unmount image volume component"), "{said}");
        assert!(said.ends_with("device or resource busy"), "{said}");
    }
    let is_found = |line: &Value| {
        line["id"] == "image-volume-busy"
            && line["certainty"] == "firm"
            && line["pod"]["uid"] == UID
    };
    watch.wait_for("the held image volume", is_found);
    let asked = ["--pod-uid", UID, "--kubelet-root", root];
    let (lines, status) = diagnose(&asked).finish();
    let answer = *of_type(&lines, "diagnosis").last().unwrap();
    watch.stop();
    let found = &answer["causes"][0];
    assert_eq!(
        (&found["id"], &found["certainty"], &found["blocks_deletion"]),
        (&"image-volume-busy".into(), &"firm".into(), &true.into()),
        "{answer:#}"
    );
    assert_eq!(status.code(), Some(1), "{answer:#}");
    assert_eq!(found["call"]["path"], volume.to_str().unwrap(), "{found:#}");
    assert!(names(found, holder.id()), "{found:#}");
    obey(found);
    holder.wait().unwrap();
    for (request, id) in [
        ("StopPodSandbox", &sandbox),
        ("RemoveContainer", &container),
        ("RemovePodSandbox", &sandbox),
    ] {
        cri.ask(request, id).unwrap();
    }
    assert!(!volume.exists(), "{}", volume.display());
}

fn names(found: &Value, pid: u32) -> bool {
    found["evidence"].to_string().contains(&format!("pid {pid}"))
}
