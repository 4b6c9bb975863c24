//! Against servers that answer, refuse, hang, close, and are not who they should be.

use std::net::TcpListener;

use podstuck_testing::api_server::{Answer, ApiServer, NODE, TOKEN};

use super::*;

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const OTHER: &str = "1f0e0d0c-1111-2222-3333-444455556666";

fn pod(uid: &str, name: &str) -> String {
    format!(
        r#"{{"kind":"Pod","metadata":{{"uid":"{uid}","namespace":"shop","name":"{name}",
        "finalizers":["example.org/x"]}},"spec":{{"nodeName":"{NODE}"}}}}"#
    )
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// What a server of a node with two pods says.
fn healthy(path: &str, boot_id: &str) -> Answer {
    let text = match path {
        "/api/v1/namespaces/shop/pods/cart-0" => pod(UID, "cart-0"),
        path if path.starts_with("/api/v1/pods?fieldSelector=spec.nodeName%3D") => {
            format!(r#"{{"items":[{},{}]}}"#, pod(UID, "cart-0"), pod(OTHER, "cart-1"))
        }
        path if path == format!("/api/v1/nodes/{NODE}") => format!(
            r#"{{"status":{{"nodeInfo":{{"bootID":"{boot_id}"}},"conditions":[{{"type":"Ready",
            "status":"Unknown","lastTransitionTime":"2026-11-21T10:00:00Z","reason":"NodeStatusUnknown"}}]}}}}"#
        ),
        path if path == format!("/apis/storage.k8s.io/v1/csinodes/{NODE}") => {
            r#"{"spec":{"drivers":[{"name":"csi.example.org","nodeID":"x"}]}}"#.into()
        }
        _ => return Answer::Text(404, r#"{"kind":"Status","message":"not found"}"#.into()),
    };
    Answer::Text(200, text)
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Asks with kubelet's credentials, for as long as a test may take; returns the parts and the answer.
fn ask(kubeconfig: &Path, about: &Asked, limit: Duration) -> (Vec<Part>, Result<String>) {
    let settings = Settings { kubeconfig: Some(kubeconfig.into()), ..Settings::default() };
    let question = AskApi {
        host_root: "/".into(),
        // Of kubelet's files, those that are not root's are not read.
        whose: if is_root() { As::Kubelet } else { As::File(kubeconfig.into()) },
        kubelet: Some((std::process::id(), settings)),
        about: about.clone(),
    };
    let end = Instant::now() + limit;
    let mut parts = Vec::new();
    let access = question.access(end);
    let answer = access.and_then(|access| {
        question.converse(access, end, &mut |part| {
            parts.push(part);
            Ok(())
        })
    });
    (parts, answer)
}

const LONG: Duration = Duration::from_secs(60);

fn why(kubeconfig: &Path, limit: Duration) -> String {
    let (parts, answer) = ask(kubeconfig, &Asked::NoPod, limit);
    assert!(parts.is_empty(), "{parts:?}");
    format!("{:#}", answer.unwrap_err())
}

fn cart() -> Asked {
    Asked::Name { namespace: "shop".into(), name: "cart-0".into() }
}

#[test]
fn a_server_is_asked_as_kubelet_for_what_kubelet_may() {
    let boot = boot_id();
    let server = ApiServer::start(move |path| healthy(path, &boot));
    let (parts, answer) = ask(&server.kubeconfig(), &cart(), LONG);
    let answer = answer.unwrap();
    assert!(answer.contains(&format!("2 pods of node {NODE}")), "{answer}");
    assert!(answer.starts_with("API server https://127.0.0.1:"), "{answer}");
    let since = "whose condition Ready is Unknown since 2026-11-21T10:00:00Z (NodeStatusUnknown)";
    assert!(answer.ends_with(since), "{answer}");
    let [Part::Pod(Known::Pod(record)), Part::Pods(pods), Part::Node(node, uids)] =
        parts.as_slice()
    else {
        panic!("{parts:#?}")
    };
    assert_eq!((record.pod.uid.as_str(), record.finalizers.len()), (UID, 1));
    assert!(record.read.is_some());
    assert_eq!(pods.len(), 2);
    assert_eq!(uids.as_deref(), Some([UID.to_owned(), OTHER.to_owned()].as_slice()));
    assert_eq!(node.drivers.as_deref(), Some(["csi.example.org".to_owned()].as_slice()));
    assert_eq!(node.ready.as_ref().unwrap().status, "Unknown");
    let asked = server.requests();
    assert_eq!(asked.len(), 4, "{asked:#?}");
    assert!(asked.iter().any(|path| path.ends_with("&resourceVersion=0")), "{asked:#?}");
}

#[test]
fn the_record_of_a_uid_is_read_again_by_its_name() {
    let server = ApiServer::start(|path| healthy(path, "of another machine"));
    let (parts, _) = ask(&server.kubeconfig(), &Asked::Uid(UID.into()), LONG);
    assert!(parts.iter().any(|part| matches!(part, Part::Pod(Known::Pod(_)))), "{parts:#?}");
    let uids = parts.iter().find_map(|part| match part {
        Part::Node(_, uids) => Some(uids),
        _ => None,
    });
    assert_eq!(uids, Some(&None), "which pods another machine has says nothing of this one");
}

#[test]
fn a_pod_that_does_not_exist_is_missing_and_one_that_may_not_be_asked_for_is_not() {
    let gone = Asked::Name { namespace: "shop".into(), name: "gone".into() };
    let server = ApiServer::start(|path| healthy(path, ""));
    let (parts, _) = ask(&server.kubeconfig(), &gone, LONG);
    assert!(matches!(parts[0], Part::Pod(Known::Missing)), "{parts:#?}");
    let server = ApiServer::start(|path| match path {
        "/api/v1/namespaces/shop/pods/gone" => Answer::Text(403, "{}".into()),
        path => healthy(path, ""),
    });
    let (parts, answer) = ask(&server.kubeconfig(), &gone, LONG);
    assert!(answer.is_ok() && !parts.iter().any(|part| matches!(part, Part::Pod(_))), "{parts:#?}");
}

#[test]
fn a_refusal_is_reported_in_the_servers_words() {
    let server = ApiServer::start(|_| {
        Answer::Text(403, r#"{"kind":"Status","message":"User \"x\" cannot list\u001b[2J"}"#.into())
    });
    let why = why(&server.kubeconfig(), LONG);
    assert!(why.contains("it says 403 User") && !why.contains('\u{1b}'), "{why}");
}

#[test]
fn a_server_that_never_answers_is_not_waited_for() {
    let server = ApiServer::start(|_| Answer::Hang);
    let limit = Duration::from_millis(300);
    let why_hung = why(&server.kubeconfig(), limit);
    assert!(why_hung.contains("it does not answer"), "{why_hung}");
    // Only the kernel accepts the connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = server.kubeconfig_for(&listener.local_addr().unwrap().to_string());
    assert!(why(&silent, limit).contains("it does not answer"));
    let first = Answer::Text(200, r#"{"items":[]}"#.into());
    let server = ApiServer::start(move |path| {
        if path.starts_with("/api/v1/pods") { first.clone() } else { Answer::Hang }
    });
    let (parts, answer) = ask(&server.kubeconfig(), &Asked::NoPod, limit);
    assert!(matches!(parts.as_slice(), [Part::Pods(_)]), "earlier parts are kept: {parts:?}");
    assert!(answer.unwrap_err().to_string().contains("it does not answer"));
}

#[test]
fn a_server_that_closes_is_dead_or_another_is_distinguished() {
    let server = ApiServer::start(|_| Answer::Close);
    let closed = why(&server.kubeconfig(), LONG);
    assert!(
        closed.contains("https://127.0.0.1:") && !closed.contains("does not answer"),
        "{closed}"
    );
    let dead = why(&server.kubeconfig_for("127.0.0.1:1"), LONG);
    assert!(dead.contains("onnection refused"), "{dead}");
    let other = ApiServer::start(|path| healthy(path, ""));
    let address = other.kubeconfig();
    let address = std::fs::read_to_string(address).unwrap();
    let address = address.split("https://").nth(1).unwrap().lines().next().unwrap().to_owned();
    let not_it = why(&server.kubeconfig_for(&address), LONG);
    assert!(not_it.contains("certificate"), "{not_it}");
    assert!(other.requests().is_empty(), "no other server is asked");
}

#[test]
fn tokens_and_programs_are_credentials_and_a_program_is_not_run_unasked() {
    let server = ApiServer::start(|path| healthy(path, ""));
    let by_token = server.kubeconfig_of(&format!("{{token: {TOKEN}}}"));
    assert!(ask(&by_token, &Asked::NoPod, LONG).1.is_ok());
    let by_wrong_token = server.kubeconfig_of("{token: wrong}");
    assert!(why(&by_wrong_token, LONG).contains("401"));

    if !is_root() {
        return podstuck_testing::skip("root is needed to have files of kubelet's");
    }
    let answer = format!(r#"{{"status":{{"token":"{TOKEN}"}}}}"#);
    let mark = tempfile::tempdir().unwrap();
    let script = mark.path().join("login");
    std::fs::write(&script, format!("touch {}/ran; echo '{answer}'\n", mark.path().display()))
        .unwrap();
    let user = format!("{{exec: {{apiVersion: v1, command: sh, args: [{}]}}}}", script.display());
    let by_program = server.kubeconfig_of(&user);
    let refused = why(&by_program, LONG);
    assert!(refused.contains("a program, sh") && refused.contains("--api KUBECONFIG"), "{refused}");
    assert!(!mark.path().join("ran").exists());
    let named = AskApi {
        host_root: "/".into(),
        whose: As::File(by_program),
        kubelet: None,
        about: Asked::NoPod,
    };
    let (access, _) = named.access(Instant::now() + LONG).unwrap();
    assert_eq!(access.user.token.as_deref(), Some(TOKEN));
}

/// A file of root's that a kubeconfig names as its token goes to the server that it names: who could write one of the two
/// would have it.
#[test]
fn credentials_that_others_may_write_are_not_used() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !is_root() {
        return podstuck_testing::skip("root is needed to make files of several owners");
    }
    let server = ApiServer::start(|path| healthy(path, ""));
    let token = server.kubeconfig().with_file_name("token");
    std::fs::write(&token, TOKEN).unwrap();
    let by_file = server.kubeconfig_of("{tokenFile: token}");
    assert!(ask(&by_file, &Asked::NoPod, LONG).1.is_ok());
    let asked = server.requests().len();
    let refused = |what: &str| {
        let why = why(&by_file, LONG);
        assert!(why.contains(&format!("{what} is not root's alone")), "{why}");
    };
    chown(&by_file, Some(4242), None).unwrap();
    refused("other.conf");
    chown(&by_file, Some(0), None).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o622)).unwrap();
    refused("token");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::set_permissions(by_file.parent().unwrap(), PermissionsExt::from_mode(0o1777)).unwrap();
    let why = why(&by_file, LONG);
    assert!(why.contains("is not root's alone (owner 0, mode 1777)"), "{why}");
    assert_eq!(server.requests().len(), asked, "no server was asked");
}

#[test]
fn keys_that_are_none_are_said_to_be_none() {
    let server = ApiServer::start(|path| healthy(path, ""));
    let dir = server.kubeconfig();
    let dir = dir.parent().unwrap();
    let user = |key: &str| {
        server.kubeconfig_of(&format!(
            "{{client-certificate: pki/kubelet-client-1.pem, client-key: {key}}}"
        ))
    };
    assert!(why(&user("ca.crt"), LONG).contains("client-key is not a valid PEM key"));
    let other = ApiServer::start(|_| Answer::Close);
    let other = other.kubeconfig();
    std::fs::copy(other.with_file_name("pki/kubelet-client-1.pem"), dir.join("other.pem")).unwrap();
    let misfit = why(&user("other.pem"), LONG);
    assert!(misfit.contains("do not match"), "{misfit}");
}

#[test]
fn fuzz_api() {
    podstuck_fuzz::fuzz("api", |input| {
        let _ = serde_json::from_slice::<super::objects::RawNode>(input)
            .map(|node| (node.boot_id().to_owned(), node.ready()));
        let _ =
            serde_json::from_slice::<super::objects::RawCsiNode>(input).map(|node| node.names());
    });
}
