//! Processes that pretend to be another component, by their name and by the control groups that they make.

use podstuck_tests::{of_type, requires, root_and_btf, summary, user_namespaces, watch};

use crate::{
    tenant::runc,
    victim::{Scene, in_words},
};

/// It makes and removes the victim's volume below its own root, again and again.
const KUBELET: &str = r#"cp /bin/sh /tmp/kubelet; mkdir -p /evil
    ROOT_DIR=/evil /tmp/kubelet -c 'echo ready; while :; do
        d=/evil/pods/$UID/volumes/kubernetes.io~empty-dir/data
        mkdir -p $d; rmdir $d; rm -r /evil/pods; sleep 0.1; done' kubelet --root-dir=/evil"#;

#[test]
fn a_kubelet_in_a_container_is_none() {
    requires!(root_and_btf(), runc(), user_namespaces());
    let mut pretenders = Vec::new();
    let mut scene = Scene::begin("immutable-attribute", |tenant, ready| {
        let script = in_words(KUBELET, ready);
        pretenders.push(tenant.begins(&script));
        let own = script
            .replace("/tmp/kubelet -c", "unshare --user --map-root-user --mount /tmp/kubelet -c");
        pretenders.push(tenant.begins(&own.replace("cp /bin/sh /tmp/kubelet;", "")));
    });
    let found = scene.cause_is_found();
    // One that looks for the node's kubelets by itself.
    let (lines, _) = watch(&[]).stop();
    let roots = &of_type(&lines, "start")[0]["roots_searched"];
    assert!(!roots.to_string().contains("evil"), "{roots:#}");
    let seen = summary(&lines)["completeness"]["look_alikes"].as_u64();
    assert!(seen.is_some(), "{lines:#?}");
    let summary = scene.end(&found);
    let completeness = &summary["completeness"];
    assert!(completeness["look_alikes"].as_u64().unwrap() > 0, "{completeness:#}");
    assert!(
        completeness["look_alike"].as_str().unwrap().contains("/evil/pods"),
        "{completeness:#}"
    );
}

/// Below the group of a container lie groups that read like the victim's and like those of CRI-O's monitor. Who is
/// in them is called as the node's programs are, and tries to remove the object of the finding, which he is given as
/// a directory of the host.
#[test]
fn control_groups_that_a_container_makes_are_its_own() {
    requires!(root_and_btf(), runc());
    let id = "ab".repeat(32);
    let volumes = ("pods/$UID/volumes/kubernetes.io~empty-dir", "/victim");
    let mut scene = Scene::begin_with("immutable-attribute", &[volumes], |_, _| {});
    let found = scene.cause_is_found();
    let object = found["call"]["path"].as_str().unwrap();
    let (_, below) = object.split_once("kubernetes.io~empty-dir/").unwrap();
    scene.tenant_does(&format!(
        r#"made=0
        for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
            [ -f $tree/cgroup.procs ] || continue
            for group in pod$UID/{id} crio-conmon-{id}.scope pod$UID/crio-conmon-{id}.scope; do
                mkdir -p $tree/$group || continue
                (echo 0 > $tree/$group/cgroup.procs && exec sleep 600) >/dev/null 2>&1 &
                for name in kubelet conmon containerd-shim umount; do
                    cp /bin/sh /tmp/$name
                    (echo 0 > $tree/$group/cgroup.procs &&
                        exec /tmp/$name -c 'rm -f /victim/{below}; rmdir /victim/{below}; :') 2>/dev/null
                    made=$((made+1))
                done
            done
        done
        [ $made -gt 0 ]"#
    ));
    let summary = scene.end(&found);
    // They were seen.
    let refused = summary["by_outcome"]["unlinkat"]["EPERM"].as_u64().unwrap();
    assert!(refused >= found["count"].as_u64().unwrap() + 4, "{summary:#}");
}
