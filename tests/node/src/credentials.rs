//! Who is who on the node: an authority of its own, whose certificates the API server believes.

use std::{fs, net::Ipv4Addr, os::unix::fs::PermissionsExt, path::PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SanType,
};
use serde_json::json;

use crate::{NAME, place::Place};

/// Files of keys and certificates.
pub(crate) struct Keys {
    /// The authority's certificate.
    pub(crate) authority: PathBuf,
    /// The API server's certificate and key.
    pub(crate) server: [PathBuf; 2],
    /// What tokens of service accounts are checked and signed with.
    pub(crate) accounts: [PathBuf; 2],
}

/// Makes all of them, and a `kubeconfig` each for the administrator and for kubelet. kubelet's user and
/// group are those that the node authorizer knows
/// (<https://kubernetes.io/docs/reference/access-authn-authz/node/>).
pub(crate) fn make(place: &Place, address: &str) -> Result<Keys> {
    let key = KeyPair::generate().context("making a key")?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "podstuck-node authority");
    let own = params.self_signed(&key).context("signing the authority's certificate")?;
    let authority = Authority { place, address, issuer: Issuer::new(params, key) };
    let keys = Keys {
        authority: authority.write("authority.crt", &own.pem())?,
        server: authority.server()?,
        accounts: authority.accounts()?,
    };
    authority.client("admin", "admin", "system:masters", &keys)?;
    authority.client("kubelet", &format!("system:node:{NAME}"), "system:nodes", &keys)?;
    Ok(keys)
}

struct Authority<'a> {
    place: &'a Place,
    /// Where the API server answers.
    address: &'a str,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority<'_> {
    fn server(&self) -> Result<[PathBuf; 2]> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.subject_alt_names = vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("server", params)
    }

    fn accounts(&self) -> Result<[PathBuf; 2]> {
        let key = KeyPair::generate().context("making a key")?;
        Ok([
            self.write("accounts.pub", &key.public_key_pem())?,
            self.write("accounts.key", &key.serialize_pem())?,
        ])
    }

    /// A client's certificate says its user's name and group.
    fn client(&self, file: &str, user: &str, group: &str, keys: &Keys) -> Result<()> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let [certificate, key] = self.sign(file, params)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": NAME,
                "cluster": { "server": self.address, "certificate-authority": keys.authority },
            }],
            "users": [{
                "name": user,
                "user": { "client-certificate": certificate, "client-key": key },
            }],
            "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": user } }],
            "current-context": NAME,
        });
        self.write(&format!("{file}.kubeconfig"), &config.to_string()).map(drop)
    }

    fn sign(&self, file: &str, params: CertificateParams) -> Result<[PathBuf; 2]> {
        let key = KeyPair::generate().context("making a key")?;
        let signed: Certificate =
            params.signed_by(&key, &self.issuer).context("signing a certificate")?;
        Ok([
            self.write(&format!("{file}.crt"), &signed.pem())?,
            self.write(&format!("{file}.key"), &key.serialize_pem())?,
        ])
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.place.at("keys").join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("protecting {}", path.display()))?;
        Ok(path)
    }
}
