//! The agent's answers over HTTP.

use std::{
    io::{self, Write as _},
    net::TcpStream,
};

/// The whole answer of the server on this port of the loopback interface.
///
/// # Errors
///
/// When it cannot be asked, or its answer is no text.
pub fn http_get(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")?;
    io::read_to_string(stream)
}
