//! Docker whose layers are containerd's snapshots, as of a new installation of 29 and, when asked for, since 24.

use podstuck_tests::skip;
use procfs::process::Process;

use super::{Runtimes, assert_complete, chattr, finding, obey, output, watch};

/// Where a container writes: the upper directory of its root file system.
fn upper(runtimes: &Runtimes, id: &str) -> String {
    let namespace = Process::new(runtimes.dockerd().cast_signed()).unwrap();
    let mounts = namespace.mountinfo().unwrap().0;
    let root =
        mounts.into_iter().find(|it| it.mount_point.ends_with(id) && it.fs_type == "overlay");
    root.unwrap().super_options["upperdir"].clone().unwrap()
}

#[test]
fn an_immutable_file_in_a_layer() {
    let Some(mut runtimes) = Runtimes::start() else { return };
    let version = output(runtimes.docker(&["version", "--format", "{{.Server.Version}}"]));
    let major: u32 = version.split('.').next().unwrap().parse().unwrap();
    if major < 24 {
        skip(format!("Docker {version} has layers of its own only"));
        return;
    }
    runtimes.kill_dockerd();
    let as_of_29 = ["--feature", "containerd-snapshotter=true", "--storage-driver", "overlayfs"];
    runtimes.start_dockerd_with(&as_of_29);
    runtimes.import_image();
    runtimes.run_docker("guarded");
    let id = runtimes.inspect("guarded", "{{.Id}}");
    output(runtimes.docker(&["exec", "guarded", "sh", "-c", "mkdir -p /d/e; touch /d/e/f /d/g"]));
    let file = format!("{}/d/e/f", upper(&runtimes, &id));
    chattr("+i", &file);

    let mut live = watch(&["--container", "guarded"]);
    let _ = runtimes.docker(&["rm", "-f", "guarded"]).output().unwrap();
    let found = finding(&mut live, "immutable-attribute", "new");
    assert_eq!(found["call"]["path"], file);
    assert_eq!(found["volume"]["plugin"], "container-layer");
    assert_eq!((&found["container"], &found["container_name"]), (&id.into(), &"guarded".into()));
    obey(&found);
    let (lines, _) = live.stop();
    assert_complete(&lines);
}
