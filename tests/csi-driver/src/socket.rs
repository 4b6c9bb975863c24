//! A Unix socket on which services answer until the process is asked to end.

use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use tokio::{
    net::UnixListener,
    select,
    signal::unix::{SignalKind, signal},
    sync::mpsc::UnboundedReceiver,
};
use tokio_stream::{StreamExt, wrappers::UnixListenerStream};
use tonic::transport::server::Router;

use crate::{connection::Connection, klog};

/// Where services answer.
#[derive(Clone, Debug)]
pub struct Socket {
    /// Its file, which replaces one that an earlier process left.
    pub path: PathBuf,
    /// Whether the file is removed in the end.
    pub remove: bool,
}

impl Socket {
    /// Answers until SIGTERM or SIGINT, or until something comes out of `failed`. Calls that are not
    /// answered by then never are.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made, serving fails, or something came out of `failed`.
    pub async fn serve(
        &self,
        services: Router,
        mut failed: UnboundedReceiver<String>,
    ) -> Result<()> {
        // Before a client can see the socket. As the first process of a container, this one is not
        // ended by signals that it does not ask for.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let connections = self.listen()?.map(|stream| stream.map(Connection::new));
        klog::info(format!("listening at {:?}", self.path));
        let ended = select! {
            served = services.serve_with_incoming(connections) => served.context("cannot serve"),
            Some(error) = failed.recv() => Err(anyhow::Error::msg(error)),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
        if self.remove {
            remove(&self.path)?;
        }
        ended
    }

    fn listen(&self) -> Result<UnixListenerStream> {
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        remove(&self.path)?;
        let listener = UnixListener::bind(&self.path)
            .with_context(|| format!("cannot listen at {}", self.path.display()))?;
        Ok(UnixListenerStream::new(listener))
    }
}

/// Removes a socket's file, if there is one, and nothing else.
fn remove(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => bail!("{} is no socket", path.display()),
        Ok(_) => fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display())),
        // Also what cannot be looked at: making the socket says why.
        Err(_) => Ok(()),
    }
}
