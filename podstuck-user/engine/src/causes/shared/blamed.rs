//! What to look at first, by the object and the errno that a component's error names: one table for all components.

use std::path::Path;

use crate::model::{
    blamed::{Blamed, Code, Object, Why, blamed},
    errno::Errno,
    path::{clip, safe, safe_path},
    said::container_id,
};

/// Longest address that is named.
const ADDRESS: usize = 80;
/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Words about the state of the object instead of a failed call, and what they ask for: containerd's shim and dockerd about a
/// paused container, any component that still works on an earlier request, and gRPC's own answers for a service that a server
/// does not have, and for a message that is too long (google.golang.org/grpc, server.go and rpc_util.go).
const STATES: [(&[&str], &str); 6] = [
    (
        &["is zombie and can not be killed"],
        "have the parent of that zombie collect it, or end the parent (`ps -o ppid= -p PID` shows it): a zombie takes no signal",
    ),
    (
        &["timed out locking", "timeout acquiring lock", "failed to acquire lock"],
        "end the process that holds the lock which the error is about, if it hangs: `fuser -v FILE` lists it, and \
         /proc/locks all locks of the node; an earlier attempt may be among them",
    ),
    (
        &["a paused process", "is paused"],
        "resume the container, which is paused (`docker unpause ID`, or `ctr --namespace k8s.io task resume ID`): a paused \
         container takes no signal",
    ),
    (
        &["unknown service runtime.v1"],
        "have the runtime load its CRI plugin, which it does not have: its log has the reason from its start (containerd: \
         `failed to load plugin io.containerd.grpc.v1.cri`), or `disabled_plugins` in /etc/containerd/config.toml names the \
         plugin; then restart the runtime",
    ),
    (
        &["message larger than max"],
        "remove containers that have ended from the runtime (`crictl ps --state Exited --quiet | xargs -n 50 crictl rm`), and \
         then their sandboxes (`crictl pods --state NotReady --quiet`, `crictl rmp`): its list of all of them is longer than \
         the longest message that kubelet reads, and that crictl reads without such a filter",
    ),
    (
        &["already in removing state", "already in progress", "operation is in progress"],
        "look for what the earlier request waits for, which has not returned: the log of the component has its first error. A \
         restart of the component ends it",
    ),
];

/// Advice about the object that an error names; `None` where the error names neither its state nor a failed call.
pub(crate) fn way_out(error: &str) -> Option<String> {
    let mut states = STATES.into_iter();
    if let Some((_, way_out)) = states.find(|(words, _)| words.iter().any(|it| error.contains(it)))
    {
        return Some(way_out.to_owned());
    }
    let Blamed { object, why } = blamed(error)?;
    match (why, object) {
        (Why::NoAnswer, Some(Object::Server(address))) => Some(format!(
            "restore the server at {}, or this node's network path to it: it does not answer in time",
            clip(&safe(address.as_bytes()), ADDRESS)
        )),
        (Why::NoAnswer, Some(Object::Socket(path))) => Some(format!(
            "look at the process that listens on {}: it does not answer in time",
            safe_path(path)
        )),
        (Why::NoAnswer, _) => None,
        // A runtime that does not know a container has causes of its own.
        (Why::Code(Code::NotFound), _) if container_id(error).is_some() => None,
        (Why::Code(code), _) => Some(of_code(code).to_owned()),
        (Why::Errno(Errno::ECONNREFUSED | Errno::ENOENT), Some(Object::Socket(path))) => {
            Some(format!(
                "start the server that listens on {}: no process accepts connections there",
                safe_path(path)
            ))
        }
        (Why::Errno(_), Some(Object::Socket(path))) => {
            Some(format!("look at the process that listens on {}", safe_path(path)))
        }
        (Why::Errno(_), Some(Object::Server(address))) => Some(format!(
            "restore the server at {}, or this node's network path to it: the connection fails",
            clip(&safe(address.as_bytes()), ADDRESS)
        )),
        (Why::Errno(errno), Some(Object::Program(program))) => of_program(errno, program),
        (Why::Errno(errno), Some(Object::Path(path))) => of_path(errno, path),
        (Why::Errno(errno), None) => of_process(errno).map(str::to_owned),
    }
}

/// Of a server's answer that names no failed call.
fn of_code(code: Code) -> &'static str {
    match code {
        Code::Unimplemented => {
            "look at the version and the configuration of the server that answers: it does not have the call that it is asked \
             for (for a CSI driver, one that its release does not support; for a runtime, a plugin that did not load)"
        }
        Code::NotFound => {
            "look whether the server that answers still has the object that the error names, in its own list and log: it does \
             not know it"
        }
        Code::InvalidArgument => {
            "compare what the error names (a volume's handle, a path, an attribute) with what this version of the server that \
             answers accepts: it refuses a parameter of the request, and refuses it each time"
        }
        Code::ResourceExhausted => {
            "free what the server that answers has used up: the error or the server's log names it (a quota, a rate of \
             requests, the length of a message)"
        }
        Code::FailedPrecondition => {
            "look at the state of the object that the error names: the server that answers wants another step first, such as a \
             detach, or the end of a use"
        }
        Code::Aborted => {
            "look for what an earlier request for the same object waits for: the server that answers still works on it, and \
             its log has that request"
        }
        Code::PermissionDenied => {
            "renew the credentials or the rights which the server that answers refuses: a Secret, a role, or the account that \
             it uses at its back end"
        }
    }
}

/// Of an error that names no object: it is about the process that makes the call.
fn of_process(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::EMFILE => Some("restart the component: it has as many files open as it may have"),
        Errno::ENOMEM => {
            Some("give the component more memory, or restart it: it gets none from the kernel")
        }
        Errno::EPERM => Some(
            "look at the rights of the component that logs this: a capability is missing, or a security module refuses the \
             call; what it fails to do, a root shell may do",
        ),
        _ => None,
    }
}

fn of_program(errno: Errno, program: &Path) -> Option<String> {
    let path = safe_path(program);
    Some(match errno {
        Errno::ENOENT => {
            format!("install the program {path} again, where the component looks for it")
        }
        Errno::ENOMEM | Errno::EAGAIN => format!(
            "raise the limits of memory and tasks of the component, or restart it: the kernel does not let it start {path}"
        ),
        _ => return None,
    })
}

fn of_path(errno: Errno, path: &Path) -> Option<String> {
    let at = safe_path(path);
    // A control group's files have a dot in their names, and its units a known suffix.
    let is_group = path.starts_with(CGROUPS)
        && path.extension().is_none_or(|it| it == "scope" || it == "slice" || it == "service");
    Some(match errno {
        Errno::EBUSY if is_group => format!(
            "end the processes that are left in the control group {at} or below it, which the \
             files cgroup.procs list, and remove empty groups below it with rmdir"
        ),
        Errno::EOPNOTSUPP if path.starts_with(CGROUPS) => format!(
            "end the processes of the control group by hand: {at} cannot be read, because the group is threaded (`cat \
             cgroup.threads` lists its threads)"
        ),
        _ if path.starts_with(CGROUPS) => return None,
        Errno::EBUSY => format!(
            "end or unmount what uses {at}: `fuser -vm` with that path lists the processes, and `findmnt -R` the mounts"
        ),
        Errno::EROFS => format!(
            "make the file system of {at} writable again: `findmnt -T` with that path shows it, and the kernel's log why it is \
             read-only"
        ),
        Errno::ENOSPC | Errno::EDQUOT => {
            format!(
                "free space or inodes on the file system of {at} (`df -h` and `df -i` with that path)"
            )
        }
        Errno::EIO => format!(
            "look into the kernel's log for the disk or server of {at}, which answers with errors; `findmnt -T` with that path \
             shows which one it is"
        ),
        Errno::EUCLEAN => format!(
            "unmount the file system of {at} and repair it with fsck: it is damaged; `findmnt -T` with that path shows it"
        ),
        Errno::ENOTCONN | Errno::ESTALE | Errno::EHOSTDOWN | Errno::ESHUTDOWN => format!(
            "unmount {at}, or restore its server: the server of that file system is gone, or no longer has the file"
        ),
        Errno::EPERM => format!(
            "remove the attribute `i` or `a` of {at} with chattr, if `lsattr -d` with that path shows one; else a capability is \
             missing, or a security module refuses the call"
        ),
        Errno::EACCES => format!(
            "look at who refuses root the access to {at}: the file system's server, or a security module (kernel's log)"
        ),
        Errno::ENOTEMPTY => format!("examine what is left in {at}, and move it away"),
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV if path.starts_with("/dev") => {
            format!("bring the device {at} back, or unmount by hand what lies on it: it is gone")
        }
        Errno::EMFILE | Errno::ENOMEM | Errno::ENFILE => {
            return of_process(errno).map(str::to_owned);
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubelet, crun, containerd and drivers log it.
    #[test]
    fn an_error_leads_to_its_object() {
        let table = [
            (
                "rmdir /sys/fs/cgroup/k.slice: device or resource busy",
                "control group /sys/fs/cgroup/k.slice",
            ),
            ("read /sys/fs/cgroup/a.scope/cgroup.procs: operation not supported", "threaded"),
            ("unlinkat /k/ready: read-only file system", "findmnt -T"),
            (
                "dial unix /run/systemd/private: connect: connection refused",
                "start the server that listens on /run/systemd/private",
            ),
            ("dial tcp 10.0.0.1:6443: i/o timeout", "restore the server at 10.0.0.1:6443"),
            ("open /proc/mounts: too many open files", "restart the component"),
            ("lstat /dev/sdc: no such file or directory", "the device /dev/sdc"),
            ("cgroups : operation not permitted", "a root shell"),
            ("exec: fork/exec /usr/bin/umount: cannot allocate memory", "start /usr/bin/umount"),
            ("write /sys/fs/cgroup/a.scope/cpuset.x: device or resource busy", ""),
            ("exit status 1", ""),
            ("error: timeout acquiring lock (/k/pu.lock)", "holds the lock"),
            (
                "failed to stop container: cannot delete a paused process: failed precondition",
                "resume",
            ),
            ("container is already in removing state", "earlier request"),
            ("code = Unimplemented desc = unknown service runtime.v1.RuntimeService", "CRI plugin"),
            (
                "rpc error: code = Unimplemented desc = unknown method NodeUnstageVolume for service csi.v1.Node",
                "does not have the call",
            ),
            ("rpc error: code = NotFound desc = volume pvc-7 is not there", "does not know it"),
            (
                "rpc error: code = InvalidArgument desc = Volume ID is malformed",
                "refuses a parameter",
            ),
            ("rpc error: code = ResourceExhausted desc = too many requests", "has used up"),
            ("rpc error: code = FailedPrecondition desc = volume is in use", "another step first"),
            ("rpc error: code = Aborted desc = an operation for x exists", "earlier request"),
            ("rpc error: code = Unauthenticated desc = token expired", "credentials"),
            ("rpc error: code = Unknown desc = exit status 1", ""),
            (
                "code = ResourceExhausted desc = grpc: received message larger than max (17 vs. 16)",
                "crictl rm",
            ),
        ];
        for (error, words) in table {
            let given = way_out(error).unwrap_or_default();
            assert!(
                given.contains(words) && given.is_empty() == words.is_empty(),
                "{error}: {given}"
            );
        }
    }
}
