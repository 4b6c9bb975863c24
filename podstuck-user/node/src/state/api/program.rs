//! Credentials that a program tells, by the protocol of kubectl's exec plugins
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>).

use std::{
    io::Read,
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::kubeconfig::{Program, User};
use podstuck_model::path::safe_path;

/// Tokens are a few kilobytes.
const LONGEST: u64 = 1 << 20;

#[derive(Deserialize)]
struct Credential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs it until that time.
///
/// # Errors
/// Fails when it fails, takes longer, or tells nothing.
pub(super) fn run(program: &Program, end: Instant) -> Result<User> {
    let name = safe_path(&program.command).into_owned();
    let info = serde_json::json!({
        "apiVersion": program.api_version,
        "kind": "ExecCredential",
        "spec": { "interactive": false },
    });
    let mut command = Command::new(&program.command);
    command.args(program.args.iter().flatten());
    command.envs(program.env.iter().flatten().map(|variable| (&variable.name, &variable.value)));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("running {name}"))?;
    let output = child.stdout.take().context("it has no output")?;
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = sender.send(output.take(LONGEST).read_to_end(&mut text).map(|_| text));
    });
    let text = receiver.recv_timeout(end.saturating_duration_since(Instant::now()));
    let Ok(text) = text else {
        child.kill().with_context(|| format!("ending {name}"))?;
        child.wait().with_context(|| format!("ending {name}"))?;
        bail!("{name} did not print its credentials in time");
    };
    let text = text.with_context(|| format!("reading the output of {name}"))?;
    // It has closed its output and so has nothing more to do.
    let status = child.wait().with_context(|| format!("waiting for {name}"))?;
    if !status.success() {
        bail!("{name} failed with {status}");
    }
    user(&text)
        .with_context(|| format!("the output of {name} is not an ExecCredential with a status"))
}

fn user(text: &[u8]) -> Option<User> {
    let status = serde_json::from_slice::<Credential>(text).ok()?.status?;
    let (chain, key) = (status.client_certificate_data, status.client_key_data);
    let certificate = chain.zip(key).map(|(chain, key)| (chain.into_bytes(), key.into_bytes()));
    let has_any = status.token.is_some() || certificate.is_some();
    has_any.then_some(User { certificate, token: status.token, program: None })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn user_of(script: &str, limit: Duration) -> Result<User> {
        let program = Program {
            api_version: "client.authentication.k8s.io/v1".into(),
            command: "sh".into(),
            args: Some(vec!["-c".into(), script.into()]),
            env: None,
        };
        run(&program, Instant::now() + limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn fuzz_credential() {
        podstuck_fuzz::fuzz("credential", |input| {
            let _ = user(input);
        });
    }

    #[test]
    fn a_program_is_asked_and_what_it_tells_is_used() {
        // It says the question's version back.
        let script = r#"echo "$KUBERNETES_EXEC_INFO" | grep -q client.authentication.k8s.io/v1 &&
            echo '{"kind":"ExecCredential","status":{"token":"abc"}}'"#;
        assert_eq!(user_of(script, LONG).unwrap().token.as_deref(), Some("abc"));
        let script = r#"echo '{"status":{"clientCertificateData":"C","clientKeyData":"K"}}'"#;
        let (chain, key) = user_of(script, LONG).unwrap().certificate.unwrap();
        assert_eq!((chain.as_slice(), key.as_slice()), (b"C".as_slice(), b"K".as_slice()));
    }

    #[test]
    fn one_that_fails_is_silent_or_hangs_is_said_to() {
        let why = |script: &str, limit| format!("{:#}", user_of(script, limit).err().unwrap());
        assert!(why("echo s3cret; exit 3", LONG).contains("exit status: 3"));
        let why_nonsense = why("echo s3cret", LONG);
        assert!(why_nonsense.contains("ExecCredential") && !why_nonsense.contains("s3cret"));
        assert!(why("exec sleep 60", Duration::from_millis(50)).contains("in time"));
    }
}
