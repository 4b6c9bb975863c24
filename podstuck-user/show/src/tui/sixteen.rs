//! Writes colours in the form that terminals with sixteen of them know: `31`, where the library that writes them has
//! `38;5;1`. Each flush writes all buffered output in one piece.

use std::io::{self, Write};

/// Output is buffered here until it is flushed.
pub(super) struct Sixteen<W: Write> {
    out: W,
    waiting: Vec<u8>,
}

impl<W: Write> Sixteen<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, waiting: Vec::new() }
    }
}

impl<W: Write> Write for Sixteen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let named = named(&std::mem::take(&mut self.waiting));
        self.out.write_all(&named)?;
        self.out.flush()
    }
}

/// The bytes with each of the first sixteen of 256 colours replaced by its own number.
fn named(bytes: &[u8]) -> Vec<u8> {
    const BEGIN: &[u8] = b"\x1b[";
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = memchr::memmem::find(rest, BEGIN) {
        let (before, sequence) = rest.split_at(at + BEGIN.len());
        out.extend_from_slice(before);
        let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
        let length = sequence.iter().take_while(|byte| is_number(byte)).count();
        let (numbers, after) = sequence.split_at(length);
        match after.first() {
            Some(b'm') => out.extend_from_slice(&renamed(numbers)),
            _ => out.extend_from_slice(numbers),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

fn renamed(numbers: &[u8]) -> Vec<u8> {
    let all: Vec<&[u8]> = numbers.split(|byte| *byte == b';').collect();
    let mut out: Vec<Vec<u8>> = Vec::new();
    let mut rest = &all[..];
    while let [first, after @ ..] = rest {
        let base = match *first {
            b"38" => Some(30),
            b"48" => Some(40),
            _ => None,
        };
        if let (Some(base), [b"5", color, after @ ..]) = (base, after)
            && let Some(color @ 0..16) =
                std::str::from_utf8(color).ok().and_then(|it| it.parse().ok())
        {
            let number: u8 = if color < 8 { base + color } else { base + 60 + color - 8 };
            out.push(number.to_string().into_bytes());
            rest = after;
        } else {
            out.push(first.to_vec());
            rest = after;
        }
    }
    out.join(&b';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sixteen_have_their_own_numbers_and_nothing_else_is_touched() {
        for (written, shown) in [
            ("\x1b[38;5;1;49mred\x1b[0m", "\x1b[31;49mred\x1b[0m"),
            ("\x1b[39;48;5;12m", "\x1b[39;104m"),
            ("\x1b[38;5;9;48;5;0m", "\x1b[91;40m"),
            ("\x1b[38;5;16m\x1b[38;2;1;5;3m", "\x1b[38;5;16m\x1b[38;2;1;5;3m"),
            ("\x1b[38;5;1H 38;5;1m \x1b[", "\x1b[38;5;1H 38;5;1m \x1b["),
            ("", ""),
        ] {
            assert_eq!(String::from_utf8(named(written.as_bytes())).unwrap(), shown);
        }
    }

    #[test]
    fn output_written_in_pieces_comes_out_whole() {
        let mut out = Vec::new();
        let mut sixteen = Sixteen::new(&mut out);
        for piece in ["\x1b[", "38;5;", "6", "m", "text"] {
            sixteen.write_all(piece.as_bytes()).unwrap();
        }
        sixteen.flush().unwrap();
        drop(sixteen);
        assert_eq!(out, b"\x1b[36mtext");
    }
}
