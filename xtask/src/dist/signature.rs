//! A signed statement: a DSSE envelope in a Sigstore bundle, signed and verified by `openssl`. So the private key may be
//! one that `openssl` asks a passphrase for.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use podstuck_process as process;
use serde_json::{Value, json};

use super::{read, write};

const PAYLOAD: &str = "application/vnd.in-toto+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Signs a payload with a private key: PEM, of the curve P-256.
pub(super) fn bundle(key: &Path, payload: &[u8]) -> Result<Value> {
    let folder = tempfile::tempdir().context("creating a folder for the signature")?;
    let path = |name: &str| folder.path().join(name);
    write(&path("message"), &message(payload))?;
    let mut sign = openssl(&["dgst", "-sha256", "-sign"])?;
    sign.arg(key).arg("-out").arg(path("signature")).arg(path("message"));
    process::output(&mut sign).with_context(|| format!("signing with {}", key.display()))?;
    Ok(json!({
        "mediaType": BUNDLE,
        // A hint would name the key, which the verifier has.
        "verificationMaterial": {"publicKey": {}},
        "dsseEnvelope": {
            "payload": STANDARD.encode(payload),
            "payloadType": PAYLOAD,
            "signatures": [{"sig": STANDARD.encode(read(&path("signature"))?)}],
        },
    }))
}

/// The payload, if its signature is by this public key.
pub(super) fn verified(key: &Path, bundle: &Value) -> Result<Vec<u8>> {
    let envelope = &bundle["dsseEnvelope"];
    if envelope["payloadType"] != PAYLOAD {
        bail!("no in-toto statement in it");
    }
    let bytes = |value: &Value| {
        let text = value.as_str().context("no signed envelope in it")?;
        STANDARD.decode(text).context("an envelope that is not base64")
    };
    let payload = bytes(&envelope["payload"])?;
    let folder = tempfile::tempdir().context("creating a folder for the signature")?;
    let path = |name: &str| folder.path().join(name);
    write(&path("message"), &message(&payload))?;
    fs::write(path("signature"), bytes(&envelope["signatures"][0]["sig"])?)?;
    let mut verify = openssl(&["dgst", "-sha256", "-verify"])?;
    verify.arg(key).arg("-signature").arg(path("signature")).arg(path("message"));
    let refused = || format!("the signature is not by the key {}", key.display());
    process::output(&mut verify).with_context(refused)?;
    Ok(payload)
}

/// What is signed: DSSE's pre-authentication encoding.
fn message(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {PAYLOAD} {} ", PAYLOAD.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

fn openssl(words: &[&str]) -> Result<Command> {
    if process::find("openssl").is_none() {
        bail!("no `openssl`, which signs and verifies; on Debian it is in the package openssl");
    }
    let mut command = Command::new("openssl");
    command.args(words);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_that_of_the_specification() {
        let text = String::from_utf8(message(b"{\"a\":\"\xc3\xa4\"}")).unwrap();
        assert_eq!(text, "DSSEv1 28 application/vnd.in-toto+json 10 {\"a\":\"\u{e4}\"}");
    }
}
