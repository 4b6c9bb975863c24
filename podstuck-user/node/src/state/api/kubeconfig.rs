//! A kubeconfig: which server, and with which credentials. Of its format what a kubelet's has, and what
//! is at hand for a person (`k8s.io/client-go/tools/clientcmd/api/v1`).

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use crate::state::only_roots::{LONGEST, OnlyRoots};
use podstuck_model::path::{safe, safe_path};

/// A server and the user that asks it. Contains secrets, so it does not implement `Debug`.
pub(super) struct Access {
    /// As in `https://10.0.0.1:6443`.
    pub(super) server: String,
    pub(super) trust: Trust,
    pub(super) proxy: Option<String>,
    pub(super) user: User,
}

/// How the server's identity is checked.
pub(super) enum Trust {
    /// Its certificate must be signed by one of these authorities, in PEM.
    Authorities(Vec<u8>),
    /// Its certificate must be signed by one of this machine's authorities.
    System,
    /// Any certificate (`insecure-skip-tls-verify`).
    Any,
}

/// Who asks.
#[derive(Default)]
pub(super) struct User {
    /// A chain of certificates and their key, in PEM.
    pub(super) certificate: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) token: Option<String>,
    /// Tells the others when it is run.
    pub(super) program: Option<Program>,
}

/// A program that tells credentials (`client.authentication.k8s.io`).
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Program {
    pub(super) api_version: String,
    pub(super) command: PathBuf,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<Variable>>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

/// Which files are read.
pub(super) enum Files<'a> {
    /// All: root has named the kubeconfig.
    Named,
    /// Only files that only root can have written.
    OnlyRoots(OnlyRoots<'a>),
}

impl Files<'_> {
    pub(super) fn read(&self, path: &Path) -> Result<String> {
        if let Self::OnlyRoots(only_roots) = self {
            return only_roots.read(path);
        }
        // Opening a pipe would wait.
        if !fs::metadata(path)?.is_file() {
            bail!("it is not a file");
        }
        let mut text = String::new();
        fs::File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Reads one, and the files that it names. What stands in them goes to the server that it names, and to no other.
///
/// # Errors
/// Fails when one of them cannot be read, and for what is not known here.
pub(super) fn access(path: &Path, files: &Files<'_>) -> Result<Access> {
    let name = || format!("the kubeconfig {}", safe_path(path));
    let text = files.read(path).with_context(name)?;
    // The error quotes nothing of the text: a secret may be beside it.
    let raw: Raw = serde_saphyr::from_str(&text)
        .map_err(|error| anyhow::anyhow!("it is not the YAML of a kubeconfig{}", place_of(&error)))
        .with_context(name)?;
    raw.access(path.parent().unwrap_or(Path::new("/")), files).with_context(name)
}

fn place_of(error: &serde_saphyr::Error) -> String {
    error.location().map(|at| format!(" (line {})", at.line())).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Raw {
    current_context: Option<String>,
    contexts: Option<Vec<NamedContext>>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context_,
}

#[derive(Deserialize)]
struct Context_ {
    cluster: String,
    user: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<RawUser>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawUser {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    // In the format this one has no dashes.
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    exec: Option<Program>,
    auth_provider: Option<serde_json::Value>,
}

impl Raw {
    /// `base` is where relative paths begin.
    fn access(self, base: &Path, files: &Files<'_>) -> Result<Access> {
        let wanted = self.current_context.filter(|name| !name.is_empty());
        let wanted = wanted.context("it has no current-context")?;
        let shown = safe(wanted.as_bytes()).into_owned();
        let context = self.contexts.into_iter().flatten().find(|context| context.name == wanted);
        let context = context.with_context(|| format!("it has no context {shown}"))?.context;
        let mut clusters = self.clusters.into_iter().flatten();
        let cluster = clusters.find(|cluster| cluster.name == context.cluster);
        let cluster = cluster.with_context(|| format!("it has no cluster for {shown}"))?.cluster;
        let mut users = self.users.into_iter().flatten();
        let user = users.find(|user| Some(&user.name) == context.user.as_ref());
        let user = user.and_then(|user| user.user).unwrap_or_default();
        if !cluster.server.starts_with("https://") {
            bail!("its server is asked without TLS");
        }
        if cluster.tls_server_name.is_some_and(|name| !name.is_empty()) {
            bail!("it has a tls-server-name, which is not supported");
        }
        let authorities =
            data(cluster.certificate_authority_data, cluster.certificate_authority, base, files)?;
        let trust = match authorities {
            _ if cluster.insecure_skip_tls_verify == Some(true) => Trust::Any,
            Some(pem) => Trust::Authorities(pem),
            None => Trust::System,
        };
        let server = cluster.server.trim_end_matches('/').to_owned();
        let proxy = cluster.proxy_url.filter(|url| !url.is_empty());
        Ok(Access { server, trust, proxy, user: user.resolve(base, files)? })
    }
}

impl RawUser {
    fn resolve(self, base: &Path, files: &Files<'_>) -> Result<User> {
        if self.auth_provider.is_some() {
            bail!("its user has an auth-provider, which is not supported");
        }
        if self.username.is_some_and(|name| !name.is_empty()) {
            bail!("its user has a name and a password, which is not supported");
        }
        let chain = data(self.client_certificate_data, self.client_certificate, base, files)?;
        let key = data(self.client_key_data, self.client_key, base, files)?;
        let token = match self.token_file.filter(|path| !path.as_os_str().is_empty()) {
            Some(file) => Some(contents(base, &file, files)?.trim().to_owned()),
            None => self.token,
        };
        let program = self.exec.map(|mut program| {
            // One with a slash in it is a path.
            if program.command.components().count() > 1 {
                program.command = base.join(program.command);
            }
            program
        });
        Ok(User { certificate: chain.zip(key), token: token.filter(|t| !t.is_empty()), program })
    }
}

/// What stands in the kubeconfig itself comes first.
fn data(
    inline: Option<String>,
    file: Option<PathBuf>,
    base: &Path,
    files: &Files<'_>,
) -> Result<Option<Vec<u8>>> {
    if let Some(text) = inline.filter(|text| !text.is_empty()) {
        let bytes = BASE64_STANDARD.decode(text.trim());
        return Ok(Some(bytes.ok().context("it has data that is not base64")?));
    }
    let file = file.filter(|path| !path.as_os_str().is_empty());
    file.map(|file| contents(base, &file, files).map(String::into_bytes)).transpose()
}

fn contents(base: &Path, file: &Path, files: &Files<'_>) -> Result<String> {
    let file = base.join(file);
    files.read(&file).with_context(|| safe_path(&file).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::scratch::write;

    /// As kubeadm writes it for a kubelet whose certificate is rotated.
    const KUBELET: &str = "
apiVersion: v1
kind: Config
clusters:
- name: default-cluster
  cluster: {certificate-authority-data: Q0E=, server: 'https://10.0.0.1:6443/'}
contexts:
- {name: default-context, context: {cluster: default-cluster, namespace: default, user: default-auth}}
current-context: default-context
preferences: {}
users:
- name: default-auth
  user:
    client-certificate: pki/kubelet-client-current.pem
    client-key: pki/kubelet-client-current.pem
";

    fn of(text: &str) -> Result<Access> {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("pki/kubelet-client-current.pem"), "PEM");
        write(dir.path().join("token"), "s3cret\n");
        write(dir.path().join("config"), text);
        access(&dir.path().join("config"), &Files::Named)
    }

    fn why(text: &str) -> String {
        format!("{:#}", of(text).err().unwrap())
    }

    #[test]
    fn fuzz_kubeconfig() {
        podstuck_fuzz::fuzz("kubeconfig", |input| {
            let text = String::from_utf8_lossy(input);
            let Ok(mut raw) = serde_saphyr::from_str::<Raw>(&text) else { return };
            // Files that it names are not read.
            for cluster in raw.clusters.iter_mut().flatten() {
                cluster.cluster.certificate_authority = None;
            }
            for user in raw.users.iter_mut().flatten().filter_map(|user| user.user.as_mut()) {
                (user.client_certificate, user.client_key, user.token_file) = (None, None, None);
            }
            let _ = raw.access(Path::new("/"), &Files::Named);
        });
    }

    #[test]
    fn a_kubelets_own_is_read_with_the_files_that_it_names() {
        let access = of(KUBELET).unwrap();
        assert_eq!(access.server, "https://10.0.0.1:6443");
        assert!(matches!(access.trust, Trust::Authorities(pem) if pem == b"CA"));
        let (chain, key) = access.user.certificate.unwrap();
        assert!(chain == b"PEM" && key == b"PEM");
        assert!(access.user.token.is_none() && access.user.program.is_none());
    }

    #[test]
    fn tokens_and_programs_are_known() {
        let user = |text: &str| {
            let start = KUBELET.split("    client-certificate").next().unwrap();
            of(&format!("{start}    {text}\n")).unwrap().user
        };
        assert_eq!(user("token: abc").token.as_deref(), Some("abc"));
        assert_eq!(user("{token: abc, tokenFile: token}").token.as_deref(), Some("s3cret"));
        let aws = "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [eks], env: null}";
        let program = user(aws).program.unwrap();
        assert_eq!((program.command, program.args), ("aws".into(), Some(vec!["eks".to_owned()])));
        let beside = "exec: {apiVersion: v1, command: ./bin/login}";
        assert!(user(beside).program.unwrap().command.is_absolute());
    }

    #[test]
    fn what_cannot_be_used_is_named_and_no_secret_is_quoted() {
        assert!(why("current-context: x").contains("no context x"));
        assert!(why("{}").contains("current-context"));
        let plain = KUBELET.replace("https", "http");
        assert!(why(&plain).contains("without TLS"));
        let missing = KUBELET.replace("kubelet-client-current", "gone");
        assert!(why(&missing).contains("pki/gone.pem"), "{}", why(&missing));
        let provider =
            KUBELET.replace("client-key: pki", "auth-provider: {name: gcp}\n    client-key: pki");
        assert!(why(&provider).contains("auth-provider"));
        let broken = KUBELET.replace("client-key: pki", "token: [s3cret\n    client-key: pki");
        assert!(!why(&broken).contains("s3cret"), "{}", why(&broken));
        let odd = KUBELET.replace("client-key: pki", "token: {s3cret: 1}\n    client-key: pki");
        assert!(!why(&odd).contains("s3cret"), "{}", why(&odd));
    }
}
