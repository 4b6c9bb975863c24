use super::*;

const A: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const B: &str = "1f0e0d0c-1111-2222-3333-444455556666";
const STATIC: &str = "0123456789abcdef0123456789abcdef";
const LOCAL: &[u8] = b"1 1 8:0 / / rw - ext4 /dev/sda rw\n";

fn host(dirs: &[String]) -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    for dir in dirs {
        fs::create_dir_all(host.path().join(dir)).unwrap();
    }
    host
}

fn names(host: &tempfile::TempDir) -> PodNames {
    PodNames::new(host.path(), log_dirs_for(Path::new("/var/lib/kubelet")))
}

fn pair(namespace: &str, name: &str) -> Option<(String, String)> {
    Some((namespace.into(), name.into()))
}

#[test]
fn log_directories_follow_the_root() {
    let table: [(&str, &[&str]); 5] = [
        ("/var/lib/kubelet", &["/var/log/pods"]),
        ("/lab/var/lib/kubelet", &["/lab/var/log/pods", "/var/log/pods"]),
        (
            "/var/snap/microk8s/common/var/lib/kubelet",
            &["/var/snap/microk8s/common/var/log/pods", "/var/log/pods"],
        ),
        ("/data/kubelet", &["/var/log/pods"]),
        ("/", &["/var/log/pods"]),
    ];
    for (root, expected) in table {
        let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(log_dirs_for(Path::new(root)), expected, "{root}");
    }
}

#[test]
fn only_a_pods_own_name_is_taken_apart() {
    let table = [
        (format!("shop_web-0_{A}"), true),
        (format!("kube-system_etcd-node.a_{STATIC}"), true),
        (format!("shop_web_0_{A}"), false),
        (format!("shop__{A}"), false),
        (format!("Shop_web_{A}"), false),
        (A.to_owned(), false),
        ("shop_web_nouid".to_owned(), false),
    ];
    for (name, expected) in table {
        assert_eq!(parse(&name).is_some(), expected, "{name}");
    }
}

#[test]
fn a_name_outlives_its_directory() {
    let dir = format!("var/log/pods/shop_web_{A}");
    let host = host(std::slice::from_ref(&dir));
    let mut names = names(&host);
    assert_eq!(names.lookup(A), pair("shop", "web"));
    fs::remove_dir(host.path().join(dir)).unwrap();
    let later = Instant::now() + Duration::from_secs(60);
    assert_eq!(names.lookup_at(B, later), None);
    assert_eq!(names.lookup_at(A, later), pair("shop", "web"));
    assert_eq!(names.find("shop", "web"), [A]);
}

#[test]
fn a_miss_is_believed_for_a_second() {
    let host = host(&["var/log/pods".into()]);
    let mut names = names(&host);
    let start = Instant::now();
    assert_eq!(names.lookup_at(A, start), None);
    fs::create_dir(host.path().join(format!("var/log/pods/shop_web_{A}"))).unwrap();
    assert_eq!(names.lookup_at(A, start + BELIEVE / 2), None);
    assert_eq!(names.lookup_at(A, start + BELIEVE), pair("shop", "web"));
}

#[test]
fn a_pod_made_anew_has_two_uids() {
    let dirs = [format!("var/log/pods/s_w_{B}"), format!("var/log/pods/s_w_{A}")];
    let host = host(&dirs);
    let mut names = names(&host);
    assert_eq!(names.find("s", "w"), [A, B]);
    assert!(names.find("s", "x").is_empty());
    assert_eq!(names.pods().len(), 2);
    let mut pod = Pod { uid: A.into(), namespace: None, name: None };
    names.fill(&mut pod);
    assert_eq!((pod.namespace.as_deref(), pod.name.as_deref()), (Some("s"), Some("w")));
}

#[test]
fn a_path_teaches_where_its_kubelets_logs_are() {
    let host = host(&[format!("lab/var/log/pods/shop_web_{A}")]);
    let mut names = names(&host);
    assert_eq!(names.lookup(A), None);
    let target = format!("/lab/var/lib/kubelet/pods/{A}/volumes/p/v");
    names.learn(Path::new(&target), || LOCAL.to_vec());
    assert_eq!(names.log_dirs(), [PathBuf::from(LOGS), "/lab/var/log/pods".into()]);
    assert_eq!(names.lookup(A), pair("shop", "web"));
}

#[test]
fn a_path_is_not_followed_onto_what_may_be_dead() {
    let host = host(&[format!("lab/var/log/pods/shop_web_{A}")]);
    let mut names = names(&host);
    let target = format!("/lab/var/lib/kubelet/pods/{A}");
    names.learn(Path::new(&target), || b"1 1 0:9 / / rw - nfs4 server:/ rw\n".to_vec());
    assert_eq!(names.log_dirs(), [PathBuf::from(LOGS)]);
    // Nor asked about again.
    names.learn(Path::new(&target), || LOCAL.to_vec());
    assert_eq!(names.log_dirs(), [PathBuf::from(LOGS)]);
    names.learn(Path::new("/var/lib/docker/volumes/x"), || LOCAL.to_vec());
    assert_eq!(names.tried.len(), 1);
}

#[test]
fn a_directory_learned_later_cannot_rename_a_pod() {
    let mut names = PodNames::new(Path::new("/nonexistent"), vec![]);
    names.add(("a", "first", A));
    names.add(("b", "second", A));
    assert_eq!(names.lookup(A), pair("a", "first"));
}

#[test]
fn memory_is_bounded() {
    let mut names = PodNames::new(Path::new("/nonexistent"), vec![]);
    for i in 0..MOST + 5 {
        names.add(("n", "p", &format!("{i:032x}")));
    }
    assert_eq!((names.known.len(), names.order.len()), (MOST, MOST));
    assert_eq!(names.lookup(&format!("{:032x}", 4)), None);
    assert!(names.lookup(&format!("{:032x}", 5)).is_some());
}
