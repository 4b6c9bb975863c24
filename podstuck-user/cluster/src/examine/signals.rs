//! What ends a program from outside. Until they are heard no more, none of them does.

use std::io;

/// Those that are heard.
#[cfg(unix)]
pub(super) struct Signals([(tokio::signal::unix::Signal, u8); 3]);

#[cfg(unix)]
impl Signals {
    /// From now on.
    pub(super) fn hear() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let heard = |kind: SignalKind| {
            // As shells count it.
            let status = u8::try_from(128 + kind.as_raw_value()).unwrap_or(u8::MAX);
            Ok::<_, io::Error>((signal(kind)?, status))
        };
        Ok(Self([
            heard(SignalKind::interrupt())?,
            heard(SignalKind::terminate())?,
            heard(SignalKind::hangup())?,
        ]))
    }

    /// The next one; the exit status that says so.
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
    /// From now on.
    pub(super) fn hear() -> io::Result<Self> {
        Ok(Self)
    }

    /// The next one; the exit status that says so.
    pub(super) async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 130,
            Err(_) => std::future::pending().await,
        }
    }
}
