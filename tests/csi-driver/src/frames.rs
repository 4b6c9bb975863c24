//! Makes what a Go client says acceptable to the server: the header `:authority`.
//!
//! Until 1.26 kubelet names a Unix socket's path as the authority, `/var/lib/kubelet/...`
//! (kubernetes/kubernetes#112597 has it say `localhost`). That is not a valid authority, and the server library
//! resets the stream with `PROTOCOL_ERROR` before the service sees the call (hyperium/h2#487, open).
//! Headers are compressed with a memory of those before, so that each block is read and written again.

use loona_hpack::{Decoder, Encoder};
use thiserror::Error;

/// `PRI * HTTP/2.0` and so on, before the first frame (RFC 9113, 3.4).
const PREFACE: usize = 24;

/// Length, type, flags, stream (RFC 9113, 4.1).
const HEAD: usize = 9;

/// What a server takes unless it says otherwise (RFC 9113, 4.2).
const LARGEST: usize = 1 << 14;

const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// What a client says that talks to the socket of its own machine.
const AUTHORITY: &[u8] = b"localhost";

/// Why a client is not understood.
#[derive(Debug, Error)]
pub enum Malformed {
    /// The headers cannot be decompressed.
    #[error("malformed headers: {0}")]
    Headers(#[from] loona_hpack::decoder::DecoderError),
    /// A frame ends before what it says that it has.
    #[error("a frame of headers that is too short")]
    Short,
    /// Headers go on that had not begun.
    #[error("a continuation of no headers")]
    Continuation,
    /// More headers than one frame holds; kubelet sends a tenth of a kilobyte.
    #[error("more headers than one frame holds")]
    Long,
}

/// One client's frames.
pub struct Rewriter {
    /// How much of the preface is still to come.
    preface: usize,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// Headers that go on in the next frame.
    unfinished: Option<Block>,
    decoder: Decoder<'static>,
    encoder: Encoder<'static>,
}

/// A block of headers: what its first frame says of the stream, and its compressed bytes.
struct Block {
    end_stream: u8,
    stream: [u8; 4],
    fragments: Vec<u8>,
}

impl Default for Rewriter {
    fn default() -> Self {
        Self {
            preface: PREFACE,
            partial: Vec::new(),
            unfinished: None,
            decoder: Decoder::new(),
            encoder: Encoder::new(),
        }
    }
}

impl Rewriter {
    /// Takes what a client sent, and adds to `out` what the server is to read of it.
    ///
    /// # Errors
    ///
    /// When the client does not speak HTTP/2 as it should. Nothing that follows can be understood.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let preface;
        (preface, bytes) = bytes.split_at(self.preface.min(bytes.len()));
        self.preface -= preface.len();
        out.extend_from_slice(preface);
        self.partial.extend_from_slice(bytes);
        while let Some(&head) = self.partial.first_chunk::<HEAD>() {
            let [a, b, c, kind, flags, stream @ ..] = head;
            let end = HEAD + u32::from_be_bytes([0, a, b, c]) as usize;
            if self.partial.len() < end {
                break;
            }
            let frame: Vec<u8> = self.partial.drain(..end).collect();
            let payload = &frame[HEAD..];
            match kind {
                HEADERS => {
                    let fragments = fragment(flags, payload).ok_or(Malformed::Short)?.to_vec();
                    let block = Block { end_stream: flags & END_STREAM, stream, fragments };
                    self.go_on(block, flags, out)?;
                }
                CONTINUATION => {
                    let mut block = self.unfinished.take().ok_or(Malformed::Continuation)?;
                    block.fragments.extend_from_slice(payload);
                    self.go_on(block, flags, out)?;
                }
                _ => out.extend_from_slice(&frame),
            }
        }
        Ok(())
    }

    fn go_on(&mut self, block: Block, flags: u8, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if flags & END_HEADERS == 0 {
            self.unfinished = Some(block);
            return Ok(());
        }
        let headers = self.decoder.decode(&block.fragments)?;
        let headers = headers.iter().map(|(name, value)| match name.as_slice() {
            b":authority" => (name.as_slice(), AUTHORITY),
            name => (name, value.as_slice()),
        });
        let encoded = self.encoder.encode(headers);
        let length = u32::try_from(encoded.len()).map_err(|_| Malformed::Long)?;
        if encoded.len() > LARGEST {
            return Err(Malformed::Long);
        }
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.extend_from_slice(&[HEADERS, END_HEADERS | block.end_stream]);
        out.extend_from_slice(&block.stream);
        out.extend_from_slice(&encoded);
        Ok(())
    }
}

/// The compressed headers in a frame, without padding and priority (RFC 9113, 6.2).
fn fragment(flags: u8, mut payload: &[u8]) -> Option<&[u8]> {
    let mut padding = 0;
    if flags & PADDED != 0 {
        let (first, rest) = payload.split_first()?;
        (padding, payload) = (usize::from(*first), rest);
    }
    if flags & PRIORITY != 0 {
        payload = payload.get(5..)?;
    }
    payload.get(..payload.len().checked_sub(padding)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &[u8] = b"/var/lib/kubelet/plugins/csi.podstuck/csi.sock";

    /// The header that was remembered last: the first behind the 61 that are always known.
    const NEWEST: u8 = 0x80 | 0x3e;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &[0, 0, 0, 1], payload].concat()
    }

    /// What the server reads, however the client's bytes are cut.
    fn rewritten(client: &[u8], piece: usize) -> Vec<u8> {
        let mut rewriter = Rewriter::default();
        let mut out = Vec::new();
        for bytes in client.chunks(piece) {
            rewriter.feed(bytes, &mut out).unwrap();
        }
        out
    }

    /// The kinds, flags and decompressed headers of the frames behind the preface.
    fn read(bytes: &[u8]) -> Vec<(u8, u8, Vec<String>)> {
        let mut decoder = Decoder::new();
        let mut rest = &bytes[PREFACE..];
        let mut frames = Vec::new();
        while let Some((&[a, b, c, kind, flags, ..], after)) = rest.split_first_chunk::<HEAD>() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let (payload, next) = after.split_at(length);
            let headers = if kind == HEADERS { decoder.decode(payload).unwrap() } else { vec![] };
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let lines = headers.iter().map(|(n, v)| format!("{}: {}", text(n), text(v)));
            frames.push((kind, flags, lines.collect()));
            rest = next;
        }
        frames
    }

    #[test]
    fn a_path_is_no_authority() {
        // As Go writes it: a literal that is remembered, and then only its number.
        let literal = [&[0x41, u8::try_from(PATH.len()).unwrap()], PATH].concat();
        let mut client = vec![b'P'; PREFACE];
        client.extend(frame(0x4, 0, &[]));
        client.extend(frame(HEADERS, END_HEADERS, &[&[0x83], literal.as_slice()].concat()));
        client.extend(frame(0x0, END_STREAM, b"\0\0\0\0\0"));
        client.extend(frame(HEADERS, END_HEADERS | END_STREAM, &[0x83, NEWEST]));
        let headers = [":method: POST", ":authority: localhost"].map(str::to_owned).to_vec();
        let expected = vec![
            (0x4, 0, vec![]),
            (HEADERS, END_HEADERS, headers.clone()),
            (0x0, END_STREAM, vec![]),
            (HEADERS, END_HEADERS | END_STREAM, headers),
        ];
        for piece in [1, 7, 4096] {
            assert_eq!(read(&rewritten(&client, piece)), expected, "pieces of {piece}");
        }
    }

    /// The compressed strings of RFC 7541, C.4.1 and C.4.2: Go compresses them, too.
    #[test]
    fn a_compressed_authority_is_replaced_as_well() {
        const FIRST: &[u8] =
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        const SECOND: &[u8] = b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf";
        let mut client = vec![b'P'; PREFACE];
        client.extend(frame(HEADERS, END_HEADERS, FIRST));
        client.extend(frame(HEADERS, END_HEADERS, SECOND));
        let mut headers = [":method: GET", ":scheme: http", ":path: /", ":authority: localhost"]
            .map(str::to_owned)
            .to_vec();
        let first = (HEADERS, END_HEADERS, headers.clone());
        headers.push("cache-control: no-cache".to_owned());
        assert_eq!(read(&rewritten(&client, 11)), [first, (HEADERS, END_HEADERS, headers)]);
    }

    #[test]
    fn headers_that_go_on_padded_and_prioritized_become_one_frame() {
        let mut client = vec![b'P'; PREFACE];
        let padded = [&[3, 0, 0, 0, 0, 16, 0x83][..], &[0; 3]].concat();
        client.extend(frame(HEADERS, PADDED | PRIORITY | END_STREAM, &padded));
        client.extend(frame(CONTINUATION, 0, &[0x84]));
        client.extend(frame(CONTINUATION, END_HEADERS, &[0x86]));
        let headers = [":method: POST", ":path: /", ":scheme: http"].map(str::to_owned).to_vec();
        assert_eq!(read(&rewritten(&client, 5)), [(HEADERS, END_HEADERS | END_STREAM, headers)]);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        let error = |frame: Vec<u8>| {
            let client = [vec![b'P'; PREFACE], frame].concat();
            Rewriter::default().feed(&client, &mut Vec::new()).unwrap_err().to_string()
        };
        let short = "a frame of headers that is too short";
        assert_eq!(error(frame(HEADERS, PADDED | END_HEADERS, &[9])), short);
        assert_eq!(error(frame(HEADERS, PRIORITY | END_HEADERS, &[0; 4])), short);
        assert_eq!(error(frame(CONTINUATION, 0, &[])), "a continuation of no headers");
        let unknown = error(frame(HEADERS, END_HEADERS, &[NEWEST]));
        assert!(unknown.starts_with("malformed headers"), "{unknown}");
    }
}
