//! The signals that terminate a program. While a `Signals` value exists, they do not terminate this one.

use std::io;

/// The handled signals, each with its exit status.
#[cfg(unix)]
pub(super) struct Signals([(tokio::signal::unix::Signal, u8); 3]);

#[cfg(unix)]
impl Signals {
    /// Installs the handlers.
    pub(super) fn hear() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let heard = |kind: SignalKind| {
            // 128 plus the signal number, as in shells.
            let status = u8::try_from(128 + kind.as_raw_value()).unwrap_or(u8::MAX);
            Ok::<_, io::Error>((signal(kind)?, status))
        };
        Ok(Self([
            heard(SignalKind::interrupt())?,
            heard(SignalKind::terminate())?,
            heard(SignalKind::hangup())?,
        ]))
    }

    /// Waits for the next signal; returns its exit status.
    pub(super) async fn next(&mut self) -> u8 {
        let [(interrupt, a), (terminate, b), (hangup, c)] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => *a,
            _ = terminate.recv() => *b,
            _ = hangup.recv() => *c,
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Installs the handler.
    pub(super) fn hear() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next Ctrl-C; returns its exit status.
    pub(super) async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 130,
            Err(_) => std::future::pending().await,
        }
    }
}
