//! A client's connection, of which the server reads what [`Rewriter`] makes of it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tonic::transport::server::Connected;

use crate::frames::Rewriter;

/// A connection to a Unix socket.
pub struct Connection {
    stream: UnixStream,
    rewriter: Rewriter,
    /// What the server has not read yet.
    unread: Vec<u8>,
}

impl Connection {
    /// The server's end of a connection.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, rewriter: Rewriter::default(), unread: Vec::new() }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.unread.is_empty() {
            let mut bytes = [0; 4096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let fed = this.rewriter.feed(read.filled(), &mut this.unread);
            fed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        let count = buffer.remaining().min(this.unread.len());
        buffer.put_slice(&this.unread[..count]);
        this.unread.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
