//! GETs of an API server, until a time that is the same for all of them.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result, bail};
use rustls::{
    crypto::{CryptoProvider, ring},
    sign::CertifiedKey,
};
use serde::{Deserialize, de::DeserializeOwned};
use ureq::{
    Agent, Error, Proxy,
    tls::{
        Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsConfigBuilder,
        parse_pem,
    },
};
use x509_cert::der::Decode;

use super::kubeconfig::{Access, Trust, User};
use podstuck_model::path::safe;

/// Several times the records of a full node's pods. A helper has room for no more (`records_of_many_pods_fit_into_a_helper`
/// of tests/large_node.rs).
pub(super) const LONGEST: u64 = 32 << 20;
/// Of what a server says about a refusal.
const REASON: usize = 300;
/// How the node authorizer refuses.
const UNRELATED: &str = "no relationship found between node";

/// How a server is asked.
pub(super) struct Client {
    agent: Agent,
    server: String,
    token: Option<String>,
    end: Instant,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The server has no such object.
    #[error("there is no such object")]
    NotFound,
    /// The server has no such object, or none that concerns the node that asks: its node authorizer does not
    /// tell the two apart (`plugin/pkg/auth/authorizer/node`).
    #[error("it says 403 no relationship found between the node and this object")]
    Unrelated,
    /// The server says no, and why.
    #[error("it says {0}")]
    Refused(String),
    /// There is no server, none that is believed, or none that answers: the next question would fare no
    /// better.
    #[error("{0}")]
    Unreachable(String),
}

impl Client {
    /// Will ask by these credentials, until that time.
    ///
    /// # Errors
    /// Fails when certificates or key are none.
    pub(super) fn new(access: Access, end: Instant) -> Result<Self> {
        let provider = provider();
        let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider.clone());
        tls = match access.trust {
            Trust::Any => tls.disable_verification(true),
            Trust::Authorities(pem) => tls.root_certs(RootCerts::from(certificates(&pem)?)),
            Trust::System => tls.root_certs(RootCerts::from(of_this_machine())),
        };
        tls = as_user(tls, &access.user, &provider)?;
        let proxy = access.proxy.as_deref().map(Proxy::new).transpose();
        // Its text may hold a password.
        let Ok(proxy) = proxy else { bail!("its proxy-url is not a valid URL") };
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .https_only(true)
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(proxy)
            .user_agent(concat!("podstuck/", env!("CARGO_PKG_VERSION")))
            .build();
        let (server, token) = (access.server, access.user.token);
        Ok(Self { agent: config.into(), server, token, end })
    }

    /// An object.
    ///
    /// # Errors
    /// Fails without such an object, and without an answer.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Unreachable("no time was left for the request".into()));
        }
        let mut request = self.agent.get(format!("{}{path}", self.server));
        request = request.header("Accept", "application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request
            .config()
            .timeout_global(Some(left))
            .build()
            .call()
            .map_err(|error| unreachable(&error))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(LONGEST).read_to_vec();
        let body = body.map_err(|error| unreachable(&error))?;
        match status {
            200 => serde_json::from_slice(&body).map_err(|_| {
                Refusal::Refused("200 with a body that does not answer the request".into())
            }),
            404 => Err(Refusal::NotFound),
            403 if message(&body).contains(UNRELATED) => Err(Refusal::Unrelated),
            _ => Err(Refusal::Refused(reason(status, &message(&body)))),
        }
    }
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Adds the user's certificate, if it has one.
///
/// # Errors
/// Fails when certificate or key are not valid.
pub(super) fn as_user(
    tls: TlsConfigBuilder,
    user: &User,
    provider: &CryptoProvider,
) -> Result<TlsConfigBuilder> {
    let Some((chain, key)) = &user.certificate else { return Ok(tls) };
    let chain = certificates(chain)?;
    let key = PrivateKey::from_pem(key).ok().context("its client-key is not a valid PEM key")?;
    // The next one who looks at them expects that they fit.
    let der = rustls::pki_types::PrivateKeyDer::try_from(key.der().to_vec());
    let der = der.ok().context("its client-key is of no known kind")?;
    let first = chain.iter().map(|one| one.der().to_vec().into()).collect();
    CertifiedKey::from_der(first, der, provider)
        .context("its client-certificate and client-key do not match")?;
    Ok(tls.client_cert(Some(ClientCert::new_with_certs(&chain, key))))
}

fn unreachable(error: &Error) -> Refusal {
    Refusal::Unreachable(match error {
        Error::Timeout(_) => "it does not answer".into(),
        // Those of requests could quote one.
        Error::Http(_) => "the request cannot be made with these credentials".into(),
        Error::BadUri(_) => "its server is not a valid URL".into(),
        Error::Io(error) => error.to_string(),
        other => safe(other.to_string().as_bytes()).into_owned(),
    })
}

/// What the server says, which is a `Status`.
fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    serde_json::from_slice::<Status>(body).map(|status| status.message).unwrap_or_default()
}

/// The server's status and message, cut to one line.
fn reason(status: u16, message: &str) -> String {
    let message = message.get(..message.floor_char_boundary(REASON)).unwrap_or_default();
    format!("{status} {}", safe(message.as_bytes())).trim_end().to_owned()
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>> {
    let all: Vec<_> = parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        bail!("it has no certificate where one is expected");
    }
    Ok(all)
}

fn of_this_machine() -> Vec<Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs().certs;
    found.iter().map(|one| Certificate::from_der(one).to_owned()).collect()
}

/// The node that a kubelet's certificate was made out for: `CN=system:node:NAME`.
pub(super) fn node_of(user: &User) -> Option<String> {
    let chain = certificates(&user.certificate.as_ref()?.0).ok()?;
    let first = x509_cert::Certificate::from_der(chain.first()?.der()).ok()?;
    let subject = first.tbs_certificate.subject.to_string();
    let name = subject.split([',', '+']).find_map(|part| part.strip_prefix("CN=system:node:"));
    name.map(str::to_owned)
}
