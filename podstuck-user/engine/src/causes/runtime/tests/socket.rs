//! A runtime that no client reaches, by what kubelet logs and what the path of its socket names.

use std::path::Path;

use super::{
    logs::{draft, heard, pod},
    *,
};
use crate::query::{NoAnswer, SocketPath, Wants};

/// As in kubernetes issue 129193 and nydus-snapshotter issue 631.
#[test]
fn a_runtime_that_no_client_can_connect_to_has_lost_its_sockets_file() {
    let text = "failed to \"KillContainer\" for \"app\" with KillContainerError: \"rpc error: code = Unavailable desc = \
        connection error: desc = \\\"transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: \
        no such file or directory\\\"\"";
    let verdict = |socket: &str| {
        let mut sample = pod(Some(true));
        sample.runtimes = vec![runtime(Component::Containerd, socket)];
        draft(&mut heard(Complaint::SocketRefused, text), sample)
    };
    for socket in ["/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock"] {
        let draft = verdict(socket).unwrap();
        draft.assert_is("runtime-socket-gone", Certainty::Likely);
        assert!(draft.remedies[0].words().contains("restart containerd.service"));
        assert_eq!(holder_of(&draft.held_by), "containerd (pid 40)");
    }
    assert!(verdict("/run/k3s/containerd.sock").is_none(), "it is not the one that kubelet calls");
    // What the path names now makes it certain, or over.
    let looked = |answer: Answer| {
        let mut alone = heard(Complaint::SocketRefused, text);
        let mut sample = pod(Some(true));
        sample.runtimes = vec![runtime(Component::Containerd, SOCKET)];
        let sample: Arc<NodeSample> = sample.into();
        let queries = alone.take(sample.at, What::Sample(sample.clone())).queries;
        let [query] = &queries[..] else { panic!("{queries:?}") };
        let Wants::SocketPath(asked) = &query.wants else { panic!("{query:?}") };
        assert_eq!((asked.owner, asked.path.as_path()), (40, Path::new(SOCKET)));
        alone.take(sample.at, What::Answer { query: query.clone().into(), answer: answer.into() });
        found(alone.take(sample.at, What::Sample(sample)).verdicts).pop()
    };
    for (file, fact) in [
        (SocketPath::Missing, "/run/containerd/containerd.sock does not exist"),
        (SocketPath::Other, "/run/containerd/containerd.sock is another file"),
    ] {
        let draft = looked(Answer::SocketPath(Ok(file))).unwrap();
        draft.assert_is("runtime-socket-gone", Certainty::Firm);
        assert!(draft.evidence.iter().any(|it| it.fact.starts_with(fact)), "{:?}", draft.evidence);
    }
    assert!(looked(Answer::SocketPath(Ok(SocketPath::Own))).is_none(), "clients reach it again");
    let unknown = Answer::SocketPath(Err(NoAnswer::Refused("an overlay".into())));
    looked(unknown).unwrap().assert_is("runtime-socket-gone", Certainty::Likely);
    let of_docker = "failed to \"KillContainer\" for \"front\" with KillContainerError: \"rpc error: code = Unknown desc = Cannot \
        connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\"";
    let mut sample = pod(Some(true));
    sample.runtimes = vec![runtime(Component::Dockerd, "/run/docker.sock")];
    let draft = draft(&mut heard(Complaint::SocketRefused, of_docker), sample).unwrap();
    draft.assert_is("runtime-socket-gone", Certainty::Likely);
    assert_eq!(holder_of(&draft.held_by), "dockerd (pid 43)");
}

/// gpu-operator#303.
#[test]
fn a_runtime_that_listens_nowhere_has_not_finished_its_start() {
    let text = "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing dial unix \
        /run/containerd/containerd.sock: connect: connection refused\"";
    let silent = || Runtime { sockets: Vec::new(), ..runtime(Component::Containerd, "/") };
    let verdict = |runtimes: Vec<Runtime>| {
        let sample = NodeSample { runtimes, ..pod(Some(true)) };
        draft(&mut heard(Complaint::SocketRefused, text), sample)
    };
    let draft = verdict(vec![silent()]).unwrap();
    draft.assert_is("runtime-socket-gone", Certainty::Likely);
    assert!(draft.remedies[0].words().contains("journalctl --unit containerd.service"));
    assert_eq!(draft.must, Some("finish its start"));
    assert!(verdict(vec![silent(), silent()]).is_none(), "one of two");
    let of_one_line = |of_node: &[i64]| {
        let mut alone = Alone::<RuntimeSays>::new();
        alone.take(at(600), said(UID, Complaint::SocketRefused, text, 570));
        for second in of_node {
            alone.take(at(600), said("", Complaint::SocketRefused, text, *second));
        }
        let sample = NodeSample { runtimes: vec![silent()], ..pod(Some(true)) };
        found(alone.take(sample.at, What::Sample(sample.into())).verdicts).pop().unwrap()
    };
    assert_eq!(of_one_line(&[]).certainty(), Certainty::Possible);
    assert_eq!(of_one_line(&[590, 600]).certainty(), Certainty::Likely, "kubelet lists no pods");
    assert!(verdict(vec![Runtime { component: Component::CriO, ..silent() }]).is_none());
}
