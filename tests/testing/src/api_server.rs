//! What answers like an API server, or does not: with TLS, an authority of its own, and a kubeconfig as
//! kubelets have it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SerialNumber};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};

/// What a server does with a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answers with this status and text.
    Text(u16, String),
    /// Never answers.
    Hang,
    /// Closes the connection.
    Close,
}

/// What a server is asked.
pub struct Request {
    /// With what comes after a question mark.
    pub path: String,
    /// What was sent beside it.
    pub body: String,
    /// Whether the client has authenticated.
    is_known: bool,
}

/// A server on the loopback interface, with its files in a directory of its own.
pub struct ApiServer {
    address: SocketAddr,
    directory: tempfile::TempDir,
    requests: Arc<Mutex<Vec<String>>>,
}

/// The node that the client's certificate is made out for.
pub const NODE: &str = "node-of-a-certificate";
/// Accepted as well as the certificate.
pub const TOKEN: &str = "s3cret-t0ken";

impl ApiServer {
    /// Answers requests by their path, if the client has authenticated.
    pub fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(move |request| {
            if request.is_known { answer(&request.path) } else { Answer::Text(401, "{}".into()) }
        })
    }

    /// Answers the requests of any client.
    pub fn serve(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let directory = crate::roots_directory().unwrap();
        let config = Arc::new(certificates(directory.path()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), requests.clone());
        // Both go on until the test ends.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen, config) = (answer.clone(), seen.clone(), config.clone());
                thread::spawn(move || exchange(stream, config, &*answer, &seen));
            }
        });
        let server = Self { address, directory, requests };
        server.write_kubeconfig("kubelet.conf", &address.to_string(), "client-certificate", "");
        server
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The certificate of its authority, as PEM.
    pub fn authority(&self) -> String {
        fs::read_to_string(self.directory.path().join("ca.crt")).unwrap()
    }

    /// A kubeconfig as kubeadm writes it: the certificate's file is found by an absolute link.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubelet.conf")
    }

    /// One whose user is this.
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.write_kubeconfig("other.conf", &self.address.to_string(), "", user)
    }

    /// One for a server elsewhere, as in `127.0.0.1:1`.
    pub fn kubeconfig_for(&self, address: &str) -> PathBuf {
        self.write_kubeconfig("elsewhere.conf", address, "client-certificate", "")
    }

    /// The same kubeconfig for a process whose root directory is this one, which knows nothing of the
    /// server's own directory; where that process sees it.
    pub fn kubeconfig_below(&self, root: &Path) -> PathBuf {
        let seen = Path::new("/etc/kubernetes");
        let there = root.join("etc/kubernetes");
        fs::create_dir_all(there.join("pki")).unwrap();
        for file in ["ca.crt", "pki/kubelet-client-1.pem"] {
            fs::copy(self.directory.path().join(file), there.join(file)).unwrap();
        }
        let current = "pki/kubelet-client-current.pem";
        symlink(seen.join("pki/kubelet-client-1.pem"), there.join(current)).unwrap();
        let text = fs::read_to_string(self.kubeconfig()).unwrap();
        let (own, seen_as) = (self.directory.path().to_str().unwrap(), seen.to_str().unwrap());
        fs::write(there.join("kubelet.conf"), text.replace(own, seen_as)).unwrap();
        seen.join("kubelet.conf")
    }

    /// The paths that were asked for.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// What must be nowhere else: the token, and a line of the private key.
    pub fn secrets(&self) -> [String; 2] {
        let pem =
            fs::read_to_string(self.directory.path().join("pki/kubelet-client-1.pem")).unwrap();
        let key = pem.split("PRIVATE KEY-----").nth(1).unwrap();
        [TOKEN.into(), key.lines().nth(1).unwrap().to_owned()]
    }

    fn write_kubeconfig(&self, name: &str, address: &str, kind: &str, user: &str) -> PathBuf {
        let of_user = if kind.is_empty() {
            user.to_owned()
        } else {
            let pem = self.directory.path().join("pki/kubelet-client-current.pem");
            format!("{{client-certificate: {0}, client-key: {0}}}", pem.display())
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    certificate-authority: \
             ca.crt\n    server: https://{address}\ncontexts:\n- name: x\n  context: {{cluster: c, user: \
             u}}\ncurrent-context: x\nusers:\n- name: u\n  user: {of_user}\n"
        );
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

/// Makes an authority and what it vouches for; the files of a client lie in the directory.
fn certificates(directory: &Path) -> ServerConfig {
    let key = || KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = key();
    let ca = authority.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(authority, ca_key);
    let (server_key, client_key) = (key(), key());
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let server = server.signed_by(&server_key, &issuer).unwrap();
    let mut client = CertificateParams::new(Vec::new()).unwrap();
    client.serial_number = Some(SerialNumber::from(7));
    client.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    client.distinguished_name.push(DnType::CommonName, format!("system:node:{NODE}"));
    let client = client.signed_by(&client_key, &issuer).unwrap();

    let pki = directory.join("pki");
    fs::create_dir(&pki).unwrap();
    fs::write(directory.join("ca.crt"), ca.pem()).unwrap();
    let both = format!("{}{}", client.pem(), client_key.serialize_pem());
    fs::write(pki.join("kubelet-client-1.pem"), both).unwrap();
    symlink(pki.join("kubelet-client-1.pem"), pki.join("kubelet-client-current.pem")).unwrap();

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca.der().to_vec())).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(
            vec![server.der().clone()],
            PrivateKeyDer::try_from(server_key.serialize_der()).unwrap(),
        )
        .unwrap()
}

fn exchange(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    answer: &dyn Fn(&Request) -> Answer,
    seen: &Mutex<Vec<String>>,
) {
    let tls = ServerConnection::new(config).unwrap();
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            // The client has gone, or does not trust this server.
            if !stream.read_line(&mut line).is_ok_and(|length| length > 0) {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let path = head[0].split(' ').nth(1).unwrap().to_owned();
        let length = head.iter().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
        });
        let mut body = vec![0; length.unwrap_or(0)];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let is_known = stream.get_ref().conn.peer_certificates().is_some()
            || head.iter().any(|line| line.ends_with(&format!("Bearer {TOKEN}")));
        seen.lock().unwrap().push(path.clone());
        match answer(&Request { path, body: String::from_utf8(body).unwrap(), is_known }) {
            Answer::Text(status, text) => {
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    text.len()
                );
                let stream = stream.get_mut();
                if stream
                    .write_all((head + &text).as_bytes())
                    .and_then(|()| stream.flush())
                    .is_err()
                {
                    return;
                }
            }
            Answer::Hang => thread::sleep(Duration::from_secs(3600)),
            Answer::Close => return,
        }
    }
}
