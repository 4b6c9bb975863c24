use super::*;

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";

fn roots() -> TargetRoots {
    let mut roots = TargetRoots::new(None);
    assert!(roots.add(TargetRoot::of_host("/var/lib/kubelet/", Holds::Pods)));
    assert!(!roots.add(TargetRoot::of_host("/var/lib/kubelet", Holds::Pods)));
    assert!(roots.add(TargetRoot::of_host("/var/lib/docker", Holds::Data)));
    assert!(roots.add(TargetRoot::of_host("/run/containerd", Holds::PluginData)));
    roots.found(0, "/data/kubelet".into());
    roots.set_views([(7, vec![("/host/kubelet".into(), 0)])].into());
    roots
}

fn root(roots: &TargetRoots, view: u32, path: &str) -> Option<PathBuf> {
    roots.locate_in(view, Path::new(path)).map(|(root, _)| root)
}

#[test]
fn one_target_has_one_name_whatever_its_path_is_called() {
    let roots = roots();
    let rest = format!("pods/{UID}/volumes/p/v");
    let name = Some(PathBuf::from(format!("/data/kubelet/{rest}")));
    assert_eq!(root(&roots, HOST_VIEW, &format!("/var/lib/kubelet/{rest}/a/b")), name);
    assert_eq!(root(&roots, HOST_VIEW, &format!("/data/kubelet/{rest}")), name);
    assert_eq!(root(&roots, 7, &format!("/host/kubelet/{rest}")), name);
    let id = path_hash(name.as_ref().unwrap().as_os_str().as_bytes());
    let elsewhere = format!("/mnt/host/kubelet/{rest}/x");
    assert_eq!(roots.find(id, Path::new(&elsewhere)), name);
    assert_eq!(roots.find(id, Path::new("/mnt/other")), None);
}

/// A call there that the probes did not know yet is in no unknown directory.
#[test]
fn a_given_kubelets_root_is_known_by_each_of_its_paths() {
    let mut roots = roots();
    roots.add(TargetRoot::of_host("/kubelet", Holds::Pods).seen_by(5, 9));
    let knows = |path: &str, namespace| roots.has_pods_of(Path::new(path), namespace);
    assert!(knows("/var/lib/kubelet", 3) && knows("/data/kubelet", 3) && knows("/kubelet", 9));
    assert!(!knows("/kubelet", 3), "of another namespace");
    assert!(!knows("/var/lib/docker", 3), "it holds no pods");
    assert!(!knows("/var/lib/kubelet/plugins/x", 3));
}

#[test]
fn a_path_with_the_text_of_a_target_is_no_target() {
    let roots = roots();
    let pod = format!("pods/{UID}/volumes/p/v");
    assert_eq!(root(&roots, HOST_VIEW, &format!("/srv/{pod}")), None);
    assert_eq!(root(&roots, 8, &format!("/var/lib/kubelet/{pod}")), None, "another view");
    assert_eq!(root(&roots, HOST_VIEW, &format!("/var/lib/kubelet/plugins/x/{pod}")), None);
    assert_eq!(root(&roots, HOST_VIEW, &format!("/var/lib/docker/{pod}")), None);
    let mut believing = TargetRoots::new(None);
    believing.believe_text(true);
    assert!(root(&believing, HOST_VIEW, &format!("/srv/{pod}")).is_some());
}

#[test]
fn the_nearest_root_counts() {
    let mut roots = roots();
    roots.add(TargetRoot::of_host("/var/lib/docker/volumes/node/_data/kubelet", Holds::Pods));
    let inner = format!("/var/lib/docker/volumes/node/_data/kubelet/pods/{UID}/volumes/p/v");
    assert_eq!(root(&roots, HOST_VIEW, &inner), Some(inner.clone().into()));
    let outer = "/var/lib/docker/volumes/node/_data/lib";
    assert_eq!(root(&roots, HOST_VIEW, outer), Some("/var/lib/docker/volumes/node".into()));
    let bundle = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc";
    assert_eq!(root(&roots, HOST_VIEW, &format!("{bundle}/rootfs")), Some(bundle.into()));
}

#[test]
fn there_are_no_more_roots_than_the_probes_have_space_for() {
    let mut roots = TargetRoots::new(None);
    for number in 0..ROOTS + 3 {
        roots.add(TargetRoot::of_host(format!("/k/{number}"), Holds::Pods));
    }
    assert_eq!((roots.all().len(), roots.dropped()), (ROOTS - 1, 4));
}

#[test]
fn roots_of_namespaces_that_are_gone_make_room() {
    let mut roots = TargetRoots::new(None);
    let root = |namespace| TargetRoot::of_host("/k", Holds::Pods).seen_by(1, namespace);
    for namespace in 1..ROOTS as u32 {
        assert!(roots.make_room(|_| false).is_empty(), "there is room");
        assert!(roots.add(root(namespace)));
    }
    assert!(roots.make_room(|_| true).is_empty());
    assert!(!roots.add(root(100)));
    assert_eq!(roots.make_room(|namespace| namespace != 3), [2]);
    assert!(roots.add(root(100)) && !roots.add(root(101)));
    assert_eq!(roots.all()[2].seen_by, Some((1, 100)));
    assert_eq!(roots.dropped(), 2);
}
