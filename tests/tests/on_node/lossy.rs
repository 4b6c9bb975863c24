//! A proxy between kubelet and the API server that loses the deletion of one pod: the API server has sent the change, and
//! kubelet's watch goes on without it.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

use podstuck_test_node::Node;
use procfs::process::Process;
use serde_json::json;

/// A kubelet behind the proxy, until this is dropped.
pub struct Lossy<'a> {
    node: &'a Node,
    /// kubelet's command lines: without the proxy, and with it.
    words: [Vec<String>; 2],
    /// Adds kubelet's credentials: the proxy before it reads what kubelet and the API server say.
    kubectl: Child,
}

impl<'a> Lossy<'a> {
    /// Restarts kubelet, with further flags, behind a proxy that loses the deletion of this pod.
    pub fn of(node: &'a Node, pod: &str, flags: &[&str]) -> Self {
        let pid = node.pid("kubelet").unwrap().cast_signed();
        let own = Process::new(pid).and_then(|process| process.cmdline()).unwrap();
        let at = 1 + own.iter().position(|word| word == "--kubeconfig").unwrap();
        let (kubectl, server) = authenticated(&own[at]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let file = node.top().join("lossy.kubeconfig");
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": url}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": ""}}]});
        fs::write(&file, config.to_string()).unwrap();
        let mut proxied = own.clone();
        proxied[at] = file.to_str().unwrap().to_owned();
        // The proxy does not know the binary encoding.
        proxied.push("--kube-api-content-type=application/json".into());
        proxied.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let pod = format!("\"name\":\"{pod}\"");
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, pod) = (server.clone(), pod.clone());
                // A connection that ends does not fail the test.
                thread::spawn(move || pass(&client, &TcpStream::connect(&server)?, &pod));
            }
        });
        let lossy = Self { node, words: [own, proxied], kubectl };
        lossy.restart(1);
        lossy
    }

    /// Restarts kubelet, which lists its pods through the proxy.
    pub fn restart_kubelet(&self) {
        self.restart(1);
    }

    fn restart(&self, which: usize) {
        self.node.end("kubelet").unwrap();
        self.node.start_again("kubelet", &self.words[which]).unwrap();
    }
}

impl Drop for Lossy<'_> {
    fn drop(&mut self) {
        self.restart(0);
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

/// `kubectl proxy` with these credentials, and its address.
fn authenticated(kubeconfig: &str) -> (Child, String) {
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["proxy", "--port=0", "--kubeconfig", kubeconfig]).stdout(Stdio::piped());
    let mut kubectl = kubectl.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(kubectl.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (kubectl, line.rsplit(' ').next().unwrap().trim().to_owned())
}

/// Passes the requests and responses of a connection, except the events of a watch of pods about the deletion of `pod`.
fn pass(client: &TcpStream, server: &TcpStream, pod: &str) -> io::Result<()> {
    let is_watch = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let done = requests(client, server, &is_watch);
            server.shutdown(Shutdown::Both).and(done)
        });
        let done = responses(server, client, &is_watch, pod);
        client.shutdown(Shutdown::Both).and(done)
    })
}

fn requests(mut from: &TcpStream, mut to: &TcpStream, is_watch: &AtomicBool) -> io::Result<()> {
    let mut bytes = [0; 1 << 16];
    loop {
        let count = from.read(&mut bytes)?;
        let Some(some) = bytes.get(..count).filter(|some| !some.is_empty()) else { return Ok(()) };
        let head = String::from_utf8_lossy(some.split(|byte| *byte == b'\r').next().unwrap());
        is_watch
            .store(head.starts_with("GET /api/v1/pods?") && head.contains("watch=true"), SeqCst);
        to.write_all(some)?;
    }
}

fn responses(
    from: &TcpStream,
    mut to: &TcpStream,
    is_watch: &AtomicBool,
    pod: &str,
) -> io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if is_watch.swap(false, SeqCst) {
            events(&mut from, to, pod)?;
        } else {
            to.write_all(bytes)?;
            let count = bytes.len();
            from.consume(count);
        }
    }
}

/// Passes the response to a watch: chunks, in which each line is an event.
fn events(from: &mut impl BufRead, mut to: &TcpStream, pod: &str) -> io::Result<()> {
    let mut line = String::new();
    while from.read_line(&mut line)? > 2 {
        to.write_all(line.as_bytes())?;
        line.clear();
    }
    to.write_all(b"\r\n")?;
    let mut event = Vec::new();
    loop {
        let mut size = String::new();
        from.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size + 2];
        from.read_exact(&mut chunk)?;
        event.extend_from_slice(&chunk[..size]);
        while let Some(end) = event.iter().position(|byte| *byte == b'\n') {
            let rest = event.split_off(end + 1);
            let whole = std::mem::replace(&mut event, rest);
            let text = String::from_utf8_lossy(&whole);
            if !(text.contains(pod) && text.contains("\"deletionTimestamp\"")) {
                write!(to, "{:x}\r\n{text}\r\n", text.len())?;
            }
        }
        if size == 0 {
            return to.write_all(b"0\r\n\r\n");
        }
    }
}
