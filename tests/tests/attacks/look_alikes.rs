//! Paths that read like the victim's.

use std::path::{Path, PathBuf};

use podstuck_tests::{requires, root_and_btf, slowdown, user_namespaces};

use crate::{
    tenant::runc,
    victim::{Scene, in_words},
};

#[test]
fn a_look_alike_of_the_victims_volume_belongs_to_no_pod() {
    requires!(root_and_btf(), runc());
    let mut scene = Scene::begin("immutable-attribute", |tenant, ready| {
        tenant.does(&in_words("mkdir -p $VOLUME/d && touch $VOLUME/d/f", ready));
    });
    let found = scene.cause_is_found();
    // The same object succeeds, the volume is renamed, goes, and comes again: none of it is the victim's.
    scene.tenant_does(
        "set -e; for n in 1 2 3 4 5; do mkdir -p $VOLUME/d; touch $VOLUME/d/f; rm $VOLUME/d/f
            mv $VOLUME $VOLUME.old; mv $VOLUME.old $VOLUME; rm -r $ROOT; done",
    );
    let summary = scene.end(&found);
    let completeness = &summary["completeness"];
    assert!(completeness["look_alikes"].as_u64().unwrap() >= 5, "{completeness:#}");
    assert!(completeness["look_alike"].is_string(), "{completeness:#}");
}

/// Who may make a user namespace mounts there what he likes, where he likes.
#[test]
fn mounts_over_the_victims_paths_belong_to_no_pod() {
    requires!(root_and_btf(), runc(), user_namespaces());
    let mut scene = Scene::begin("immutable-attribute", |_, _| {});
    let found = scene.cause_is_found();
    let script = "set -e; for n in 1 2 3 4 5; do
            mkdir -p $ROOT; mount -t tmpfs mine $ROOT; mkdir -p $VOLUME; mount -t tmpfs mine $VOLUME
            touch $VOLUME/f; rm $VOLUME/f; umount $VOLUME; rm -r $VOLUME; umount $ROOT; done";
    scene.tenant_does(&format!("unshare --user --map-root-user --mount sh -c '{script}'"));
    let summary = scene.end(&found);
    let completeness = &summary["completeness"];
    assert!(completeness["look_alikes"].as_u64().unwrap() >= 5, "{completeness:#}");
}

#[test]
fn a_renamed_directory_hides_no_pod() {
    requires!(root_and_btf(), runc());
    // By text, all that lies below the new place were the tenant's volume from then on.
    let mut scene = Scene::begin("immutable-attribute", |tenant, ready| {
        let root = Path::new(ready["root"].as_str().unwrap());
        let top: PathBuf = root.components().take(2).collect();
        let top = top.display();
        tenant.does(&format!("rm -rf {top}; mkdir -p /volumes/b && mv /volumes/b {top}"));
    });
    // And once more while it is watched.
    scene.tenant_does("rm -rf /var; mkdir -p /volumes/b && mv /volumes/b /var");
    let found = scene.cause_is_found();
    scene.end(&found);
}

#[test]
fn a_hundred_thousand_invented_pods_displace_no_real_one() {
    requires!(root_and_btf(), runc());
    let count = 100_000 / u64::from(slowdown());
    let mut scene = Scene::begin("immutable-attribute", |_, _| {});
    let top = "/dev/shm/var/lib/kubelet";
    // The pod's removal begins among them.
    let begun = format!("echo ready; exec /tenant invent {top} {count}");
    let inventing = scene.tenant_begins(&begun);
    let found = scene.cause_is_found();
    assert!(inventing.succeeds());
    let summary = scene.end(&found);
    let completeness = &summary["completeness"];
    assert!(completeness["look_alikes"].as_u64().unwrap() >= count, "{completeness:#}");
    assert!(completeness["look_alike"].as_str().unwrap().contains(top), "{completeness:#}");
}
