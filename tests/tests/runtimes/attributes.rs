//! Directories that may not lose their entries, in what Docker removes: seen live, and asked about afterwards.

use std::path::PathBuf;

use podstuck_tests::{diagnose, of_type, watch};
use serde_json::Value;

use super::{
    Runtimes, assert_actor, assert_complete, by_container::ask, chattr, finding, obey, output,
};

/// An attribute of a directory in a layer keeps the file in it.
fn keeps(attribute: &str, cause: &str) {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("kept");
    let id = runtimes.inspect("kept", "{{.Id}}");
    let layer = PathBuf::from(runtimes.inspect("kept", "{{.GraphDriver.Data.UpperDir}}"));
    output(runtimes.docker(&["exec", "kept", "sh", "-c", "mkdir -p /d/e; touch /d/e/f"]));
    let folder = layer.join("d/e");
    let folder = folder.to_str().unwrap();
    chattr(&format!("+{attribute}"), folder);

    let mut live = watch(&["--container", "kept"]);
    assert!(!runtimes.docker(&["rm", "-f", "kept"]).output().unwrap().status.success());
    let found = finding(&mut live, cause, "new");
    assert_actor(&found, "dockerd", runtimes.dockerd());
    let (answer, _) = ask("kept", &["--timeout", "60s"]);
    for found in [&found, &answer["causes"][0]] {
        assert_eq!(
            (&found["id"], &found["certainty"]),
            (&cause.into(), &"firm".into()),
            "{answer:#}"
        );
        let path = found["call"]["path"].as_str().unwrap();
        assert!(path == folder || path == format!("{folder}/f"), "{path}");
        assert_eq!(found["volume"]["plugin"], "container-layer");
        assert_eq!(
            (&found["container"], &found["container_name"]),
            (&id.clone().into(), &"kept".into())
        );
    }
    obey(&answer["causes"][0]);
    runtimes.obey(&answer["causes"][0], 1);
    assert!(!layer.exists());
    finding(&mut live, cause, "cleared");
    let (lines, _) = live.stop();
    assert_complete(&lines);
}

#[test]
fn an_immutable_directory_in_a_layer() {
    keeps("i", "immutable-attribute");
}

#[test]
fn an_append_only_directory_in_a_layer() {
    keeps("a", "append-only-attribute");
}

/// Of a volume with a name, which is deleted by itself: that its container is gone is no reason to forget whose it was.
#[test]
fn an_immutable_directory_in_a_volume() {
    let Some(runtimes) = Runtimes::start() else { return };
    let args = ["run", "-d", "--name", "owner", "--network", "none", "-v", "named:/data", "bb:1"];
    output(runtimes.docker(&args));
    let id = runtimes.inspect("owner", "{{.Id}}");
    let folder = runtimes.volume("owner").join("d");
    output(runtimes.docker(&["exec", "owner", "sh", "-c", "mkdir /data/d; touch /data/d/f"]));
    chattr("+i", folder.to_str().unwrap());

    let mut live = watch(&["--container", "owner"]);
    output(runtimes.docker(&["rm", "-f", "owner"]));
    let removed = runtimes.docker(&["volume", "rm", "named"]).output().unwrap();
    assert!(!removed.status.success());
    let found = finding(&mut live, "immutable-attribute", "new");
    assert_actor(&found, "dockerd", runtimes.dockerd());
    assert_eq!((&found["container"], &found["container_name"]), (&id.into(), &"owner".into()));
    assert_eq!(found["volume"]["plugin"], "docker-volume");
    // Docker does not retry, and records the attempt nowhere: later, nothing shows that the volume is to be removed.
    let (lines, status) =
        diagnose(&["--path", folder.to_str().unwrap(), "--timeout", "8s"]).finish();
    let answer: &Value = of_type(&lines, "diagnosis").last().unwrap();
    assert_eq!((answer["causes"].as_array().unwrap().len(), status.code()), (0, Some(0)));
    obey(&found);
    output(runtimes.docker(&["volume", "rm", "named"]));
    assert!(!folder.exists());
    finding(&mut live, "immutable-attribute", "cleared");
    let (lines, _) = live.stop();
    assert_complete(&lines);
}

/// An immutable layer of a container that is not being removed keeps nothing.
#[test]
fn an_immutable_directory_of_a_container_that_stays() {
    let Some(runtimes) = Runtimes::start() else { return };
    runtimes.run_docker("stays");
    output(runtimes.docker(&["exec", "stays", "sh", "-c", "mkdir /d; touch /d/f"]));
    let layer = PathBuf::from(runtimes.inspect("stays", "{{.GraphDriver.Data.UpperDir}}"));
    let folder = layer.join("d");
    chattr("+i", folder.to_str().unwrap());
    let (answer, status) = ask("stays", &["--timeout", "8s"]);
    assert_eq!((answer["causes"].as_array().unwrap().len(), status), (0, Some(5)), "{answer:#}");
    chattr("-i", folder.to_str().unwrap());
}
