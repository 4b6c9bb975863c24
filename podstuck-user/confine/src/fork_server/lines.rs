//! Messages to and from a writer process: a line of JSON each.

use std::{
    io::{self, BufRead, ErrorKind, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};

/// Time limit of the start.
pub const BEGIN: Duration = Duration::from_secs(5);

/// Sends a message.
///
/// # Errors
/// Fails when the other end is closed.
pub fn put(mut channel: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    channel.write_all(&line)
}

/// Receives a message.
///
/// # Errors
/// Fails when the process has ended, or sends nothing within the channel's time limit.
pub fn heard<T: DeserializeOwned>(channel: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    match channel.read_line(&mut line) {
        Ok(0) => Err(io::Error::other("the process that writes has ended")),
        Ok(_) => Ok(serde_json::from_str(&line)?),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::other(format!("no answer within {BEGIN:?}")))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn messages_are_received_and_silence_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        put(&theirs, &("a\nb", 1)).unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let mut channel = BufReader::new(ours);
        assert_eq!(heard::<(String, u8)>(&mut channel).unwrap(), ("a\nb".into(), 1));
        let mut why = || heard::<()>(&mut channel).unwrap_err().to_string();
        assert!(why().contains("no answer within"));
        drop(theirs);
        assert!(why().contains("has ended"));
    }
}
