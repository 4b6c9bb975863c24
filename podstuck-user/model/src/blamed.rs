//! What an error is about: the object of the last call that it says has failed, and why, as Go (`os.PathError`,
//! `net.OpError`, `exec.Error`), perror(3), umount(8) and Rust write it.

use std::path::Path;

use crate::{call::Outcome, errno::Errno};

/// The object of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'a> {
    /// A file, directory, mount point or device.
    Path(&'a Path),
    /// A program that was to be run.
    Program(&'a Path),
    /// A server on this node, by its Unix socket.
    Socket(&'a Path),
    /// A server, by its address and port.
    Server(&'a str),
}

/// Why the call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The kernel's answer.
    Errno(Errno),
    /// Nothing, within the time that the caller has set.
    NoAnswer,
    /// The server's own answer, for a reason that is no failed call of its own as far as the error says.
    Code(Code),
}

/// Codes with which a gRPC server refuses a request (google.golang.org/grpc/codes). `Unknown` and `Internal` say nothing;
/// `Unavailable`, `DeadlineExceeded` and `Canceled` are about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It does not have the call, or the service.
    Unimplemented,
    /// It does not know the object.
    NotFound,
    /// It does not accept a parameter.
    InvalidArgument,
    /// It has used something up: the length of a message, a quota, the number of requests.
    ResourceExhausted,
    /// Another step must come first.
    FailedPrecondition,
    /// Another request for the object is in progress (the CSI specification, "Error Scheme").
    Aborted,
    /// It does not accept who asks: itself, or what it asks in turn.
    PermissionDenied,
}

const CODES: [(&str, Code); 8] = [
    ("Unimplemented", Code::Unimplemented),
    ("NotFound", Code::NotFound),
    ("InvalidArgument", Code::InvalidArgument),
    ("ResourceExhausted", Code::ResourceExhausted),
    ("FailedPrecondition", Code::FailedPrecondition),
    ("Aborted", Code::Aborted),
    ("PermissionDenied", Code::PermissionDenied),
    ("Unauthenticated", Code::PermissionDenied),
];

/// The last code in an error: one that a server passes on follows its own.
fn code(error: &str) -> Option<Code> {
    let (_, rest) = error.rsplit_once("rpc error: code = ")?;
    let name = rest.split(|c: char| !c.is_ascii_alphabetic()).next()?;
    CODES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}

/// The object that an error blames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blamed<'a> {
    /// `None` where the error does not name it.
    pub object: Option<Object<'a>>,
    /// Why the call on it failed.
    pub why: Why,
}

/// umount(8)'s words for EBUSY of umount2(2), and for EPERM, which is about the caller and not about the mount point
/// (util-linux, libmount/src/context_umount.c).
const BUSY: &str = "target is busy";
const NOT_PERMITTED: &str = "must be superuser to unmount";

/// Go's words for a server that does not answer (`net`, `net/http` and `context`).
const NO_ANSWER: [&str; 4] = [
    "i/o timeout",
    "Client.Timeout exceeded while awaiting headers",
    "TLS handshake timeout",
    "context deadline exceeded",
];

/// What an error is about: the last failed call in it, since errors name the request first; without one, the code of the
/// server that answered.
pub fn blamed(error: &str) -> Option<Blamed<'_>> {
    let of_code = || code(error).map(|code| Blamed { object: None, why: Why::Code(code) });
    of_call(error).or_else(of_code)
}

fn of_call(error: &str) -> Option<Blamed<'_>> {
    let of_call = Outcome::last_in(error).and_then(|(at, it)| Some((at, Why::Errno(it.errno()?))));
    let of_umount = [(BUSY, Errno::EBUSY), (NOT_PERMITTED, Errno::EPERM)]
        .into_iter()
        .filter_map(|(words, errno)| Some((error.rfind(words)?, Why::Errno(errno))));
    let unanswered =
        NO_ANSWER.into_iter().filter_map(|words| Some((error.rfind(words)?, Why::NoAnswer)));
    let all = of_call.into_iter().chain(of_umount).chain(unanswered);
    let (at, why) = all.max_by_key(|(at, _)| *at)?;
    let (before, words) = error.split_at_checked(at)?;
    if words.starts_with(NOT_PERMITTED) {
        return Some(Blamed { object: None, why });
    }
    Some(Blamed { object: object(before).or_else(|| server(before)), why })
}

/// The object right before the words of an error.
fn object(before: &str) -> Option<Object<'_>> {
    // Rust names the errno before its words; Go the step of a connection.
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    let before = before.trim_end().strip_suffix(':')?;
    let before = before.strip_suffix(": connect").unwrap_or(before);
    let bare = before.trim_end_matches(is_name).strip_suffix(": ").unwrap_or(before);
    let bare = bare.trim_end_matches(['"', '\\', '\'', '`', ')', ']', '’']);
    let begins = |c: char| c.is_whitespace() || "\"'`([‘".contains(c);
    let (rest, word) = bare.rsplit_once(begins).unwrap_or(("", bare));
    let is_after = |words: &str| rest.ends_with(words);
    let path = Path::new(word);
    match word.starts_with('/') {
        true if is_after("dial unix") => Some(Object::Socket(path)),
        true if is_after("fork/exec") => Some(Object::Program(path)),
        true => Some(Object::Path(path)),
        false if is_after("dial tcp") => server(before),
        false => None,
    }
}

/// The server in an error of Go's (`net.OpError`, and `url.Error` before it).
fn server(before: &str) -> Option<Object<'_>> {
    if let Some((_, rest)) = before.rsplit_once("dial unix ") {
        let path = rest.split([' ', ':', '"']).next().filter(|it| it.starts_with('/'))?;
        return Some(Object::Socket(Path::new(path)));
    }
    let of_url = || before.rsplit_once("https://").or_else(|| before.rsplit_once("http://"));
    let (_, rest) = before.rsplit_once("dial tcp ").or_else(of_url)?;
    let address = rest.split([' ', '/', '"', '\\']).next()?.trim_end_matches(':');
    let address = address.rsplit_once("->").map_or(address, |(_, remote)| remote);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "[]:.-_".contains(c);
    let is_one = !address.is_empty() && address.chars().all(is_plain);
    is_one.then_some(Object::Server(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the sources of kubelet, containerd, crun, Mayastor, Longhorn, Cilium and CRI-O.
    #[test]
    fn the_last_failed_call_is_blamed() {
        let path = |path| Some(Object::Path(Path::new(path)));
        let socket = |path| Some(Object::Socket(Path::new(path)));
        let table = [
            (
                "remove /k/vol_data.json: operation not permitted",
                path("/k/vol_data.json"),
                Errno::EPERM,
            ),
            (
                "statfs(\"/k/scratch\"): structure needs cleaning",
                path("/k/scratch"),
                Errno::EUCLEAN,
            ),
            (
                "crun: cannot delete path `/sys/fs/cgroup/a`: Device or resource busy: unknown",
                path("/sys/fs/cgroup/a"),
                Errno::EBUSY,
            ),
            (
                "failed to unmount /k/mount: EBUSY: Device or resource busy",
                path("/k/mount"),
                Errno::EBUSY,
            ),
            ("Output: umount: /k/mount: target is busy.\n", path("/k/mount"), Errno::EBUSY),
            ("umount: /k/mount: must be superuser to unmount.: exit status 32", None, Errno::EPERM),
            (
                "failed to unmount \\\"/run/a/shm\\\": device or resource busy\"",
                path("/run/a/shm"),
                Errno::EBUSY,
            ),
            ("open /k/.7: no space left on device", path("/k/.7"), Errno::ENOSPC),
            (
                "fork/exec /usr/bin/umount: cannot allocate memory\nUnmounting arguments: /k",
                Some(Object::Program(Path::new("/usr/bin/umount"))),
                Errno::ENOMEM,
            ),
            (
                "Error while dialing: dial unix /k/dra.sock: connect: connection refused\"",
                socket("/k/dra.sock"),
                Errno::ECONNREFUSED,
            ),
            (
                "Get \"http://localhost/v1\": dial unix /run/c.sock: connect: no such file or directory\nIs it?",
                socket("/run/c.sock"),
                Errno::ENOENT,
            ),
            (
                "Post \"http://localhost:10090/x\": dial tcp 127.0.0.1:10090: connect: connection refused",
                Some(Object::Server("127.0.0.1:10090")),
                Errno::ECONNREFUSED,
            ),
            ("cgroups : operation not permitted", None, Errno::EPERM),
            (
                "mkdir /a: file exists, then rmdir /b: directory not empty",
                path("/b"),
                Errno::ENOTEMPTY,
            ),
        ];
        for (error, object, errno) in table {
            let expected = Blamed { object, why: Why::Errno(errno) };
            assert_eq!(blamed(error), Some(expected), "{error}");
        }
        let silent = "Patch \"https://10.0.0.1:6443/api/v1\": net/http: request canceled (Client.Timeout exceeded while awaiting headers)";
        let server = Some(Object::Server("10.0.0.1:6443"));
        assert_eq!(blamed(silent), Some(Blamed { object: server, why: Why::NoAnswer }));
        assert_eq!(blamed("dial tcp \u{1b}[2J: i/o timeout").unwrap().object, None);
        assert_eq!(blamed("exit status 1"), None);
        let code = |error| blamed(error).map(|it| it.why);
        let passed_on = "rpc error: code = Internal desc = attach: rpc error: code = FailedPrecondition desc = in use";
        assert_eq!(code(passed_on), Some(Why::Code(Code::FailedPrecondition)));
        assert_eq!(code("rpc error: code = Unknown desc = x"), None);
        let with_call = "rpc error: code = NotFound desc = stat /k/v: input/output error";
        assert_eq!(code(with_call), Some(Why::Errno(Errno::EIO)), "the call says more");
    }
}
