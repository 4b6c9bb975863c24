//! Against servers that answer, refuse, hang, send too much, and belong to another process than kubelet.

use std::{
    io::Read,
    net::TcpListener,
    path::Path,
    process::{Child, Command},
    sync::mpsc::channel,
    thread,
};

use podstuck_testing::api_server::{Answer, ApiServer, TOKEN};

use super::*;

const UID: &str = "0f0e0d0c-1111-2222-3333-444455556666";
const OTHER: &str = "1f0e0d0c-1111-2222-3333-444455556666";
const LONG: Duration = Duration::from_secs(60);

fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        podstuck_testing::skip("a kubelet is root's");
    }
    is_root
}

fn list() -> String {
    format!(
        r#"{{"kind":"PodList","items":[{{"metadata":{{"name":"cart-0","namespace":"shop","uid":"{UID}",
        "creationTimestamp":"2026-11-28T09:00:00Z"}},"spec":{{"containers":[]}}}},{{"metadata":{{"name":"cart-1",
        "namespace":"shop","uid":"{OTHER}","creationTimestamp":"2026-11-28T09:30:00Z",
        "annotations":{{"kubernetes.io/config.source":"api"}}}}}}]}}"#
    )
}

/// Port of a kubeconfig's server, which is also kubelet's here.
fn port(kubeconfig: &Path) -> u16 {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let at = text.split("https://127.0.0.1:").nth(1).unwrap();
    at.split_whitespace().next().unwrap().parse().unwrap()
}

/// Asks process `pid` as a kubelet with that port and these credentials.
fn asked(pid: u32, port: u16, file: &Path, limit: Duration) -> Result<KubeletsList, NotRead> {
    let settings = Settings::of(&["kubelet".to_owned(), format!("--port={port}")]).unwrap();
    let whose = As::File(file.into());
    let (host_root, pods) = ("/".into(), vec![UID.to_owned()]);
    let question = AskKubelet { host_root, pid, settings, whose, is_service: true, pods };
    let end = Instant::now() + limit;
    let (stream, scheme) = question.connect()?;
    Talk::new(stream, scheme, question.user(end), end).unwrap().list(&question.pods)
}

fn of(server: &ApiServer, file: &Path, limit: Duration) -> Result<KubeletsList, NotRead> {
    let port = port(&server.kubeconfig());
    let ask = || asked(std::process::id(), port, file, limit);
    patiently(ask, |found| !matches!(found, Err(NotRead::NotKubelet | NotRead::NoPort)))
}

/// Asks again while it is not so: among many other tests, a read of `/proc` may fail, and podstuck then trusts no process.
fn patiently<T>(ask: impl Fn() -> T, is_so: impl Fn(&T) -> bool) -> T {
    for _ in 0..200 {
        let found = ask();
        if is_so(&found) {
            return found;
        }
        thread::sleep(Duration::from_millis(50));
    }
    ask()
}

fn process(pid: u32) -> Process {
    patiently(|| Process::of(Path::new("/"), pid), Option::is_some).unwrap()
}

#[test]
fn kubelet_is_asked_with_the_credentials_of_the_run() {
    if !is_root() {
        return;
    }
    let server = ApiServer::start(|path| match path {
        "/pods" => Answer::Text(200, list()),
        _ => Answer::Text(403, String::new()),
    });
    let with_token = server.kubeconfig_of(&format!("{{token: {TOKEN}}}"));
    for file in [server.kubeconfig(), with_token] {
        let found = of(&server, &file, LONG).unwrap();
        let [listed] = &found.pods[..] else { panic!("{found:?}") };
        assert_eq!((listed.uid.as_str(), listed.deletion), (UID, None));
        assert_eq!(found.latest.unwrap().name, "cart-1");
        assert!(!found.is_well);
    }
    assert!(server.requests().iter().all(|path| path == "/pods" || path == "/healthz"));
    // Other credentials than the server accepts.
    let nobody = server.kubeconfig_of("{token: another}");
    assert_eq!(of(&server, &nobody, LONG), Err(NotRead::Unknown));
}

#[test]
fn what_is_no_list_is_not_waited_for_and_not_kept() {
    if !is_root() {
        return;
    }
    let other = |why: &str| Err(NotRead::Other(why.into()));
    let long = || " ".repeat(usize::try_from(LONGEST).unwrap() + 1);
    for (answer, limit, expected) in [
        (Answer::Text(403, "Forbidden (user=x)".into()), LONG, Err(NotRead::Forbidden)),
        (Answer::Text(500, String::new()), LONG, other("status 500")),
        (Answer::Text(302, String::new()), LONG, other("status 302")),
        (Answer::Text(200, "{}".into()), LONG, other("its answer is not a list of pods")),
        (Answer::Text(200, list() + &long()), LONG, other("its answer is not a list of pods")),
        (Answer::Close, LONG, other("no valid answer")),
        (Answer::Hang, Duration::from_millis(500), other("no valid answer")),
    ] {
        let shown = format!("{answer:.60?}");
        let server = ApiServer::start(move |_| answer.clone());
        assert_eq!(of(&server, &server.kubeconfig(), limit), expected, "{shown}");
    }
}

/// A process that is root's, ended at the end.
struct Other(Child);

impl Other {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn another_process_on_the_port_gets_no_byte() {
    if !is_root() {
        return;
    }
    let server = ApiServer::start(|_| Answer::Text(200, list()));
    let kubelet = Other::start();
    let pid = kubelet.0.id();
    // The port is not kubelet's: no connection is made.
    let port = port(&server.kubeconfig());
    let found = patiently(
        || asked(pid, port, &server.kubeconfig(), LONG),
        |found| *found != Err(NotRead::NotKubelet),
    );
    assert_eq!(found, Err(NotRead::NoPort));
    // One that takes the port after kubelet was seen to listen there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (sender, received) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let (mut stream, _) = listener.accept().unwrap();
        let read = stream.read_to_end(&mut bytes);
        sender.send((read.is_ok(), bytes)).unwrap();
        // From now on it accepts nothing.
        thread::park();
        drop(listener);
    });
    assert_eq!(process(pid).connect(at).unwrap_err(), NotRead::NotKubelet);
    assert_eq!(received.recv().unwrap(), (true, Vec::new()));
    // Nor one who has not accepted: who will is not known.
    assert_eq!(process(std::process::id()).connect(at).unwrap_err(), NotRead::NotKubelet);
    // A process of another user is no kubelet.
    let mut sleep = Command::new("sleep");
    let mut nobody =
        std::os::unix::process::CommandExt::uid(&mut sleep, 65534).arg("600").spawn().unwrap();
    assert!(Process::of(Path::new("/"), nobody.id()).is_none());
    nobody.kill().unwrap();
    nobody.wait().unwrap();
}

#[test]
fn a_kubelet_by_an_administrator_gets_no_credentials() {
    if !is_root() {
        return;
    }
    let server = ApiServer::start(|_| Answer::Text(200, list()));
    let question = AskKubelet {
        host_root: "/".into(),
        pid: std::process::id(),
        settings: Settings::default(),
        whose: As::File(server.kubeconfig()),
        is_service: false,
        pods: Vec::new(),
    };
    let user = question.user(Instant::now() + LONG);
    assert!(user.certificate.is_none() && user.token.is_none());
}
