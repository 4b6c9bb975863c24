//! All questions that a helper can be asked: the request that a client sends, and the helper's way to the answer.

use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use podstuck_confine::helper::{self, Named};
use serde::Deserialize;

use super::{
    anywhere, api, asked::Helped, containers, entries, examined_root, fuse_servers, holders,
    kubelet, kubelet_unit, listing, logs, memory, pod_dirs, reach, remaining, runtime, show_roots,
    space, traces,
};
use podstuck_model::query;

/// Reads one request from standard input and answers it to standard output.
///
/// # Errors
/// Fails when the request is invalid, or when the answer cannot be written.
pub fn serve() -> Result<()> {
    helper::serve(answer)
}

/// Reads one request from a channel and answers it there.
///
/// # Errors
/// As [`serve`].
pub fn serve_through(channel: &UnixStream) -> Result<()> {
    helper::serve_through(channel, answer)
}

fn answer(request: &str) -> Result<()> {
    let request: Request = serde_json::from_str(request).context("understanding the request")?;
    request.serve()
}

macro_rules! questions {
    ($($name:ident($question:ty),)*) => {
        /// What the helper reads.
        #[derive(Deserialize)]
        enum Request {
            $($name($question),)*
        }

        $(impl Named for $question {
            const NAME: &'static str = stringify!($name);
        })*

        impl Request {
            fn serve(self) -> Result<()> {
                match self {
                    $(Self::$name(question) => helper::answer(question),)*
                }
            }
        }

        /// Takes a line for what each helper may say.
        #[cfg(test)]
        fn understand(line: &[u8]) {
            fn understand<Q: helper::Question>(line: &[u8]) {
                let _ = serde_json::from_slice::<helper::Message<Q::Step, Q::Part, Q::Answer>>(line);
            }
            $(understand::<$question>(line);)*
        }
    };
}

questions! {
    Anywhere(anywhere::FindAnywhere),
    Api(api::AskApi),
    Attributes(Helped<query::ReadAttributes>),
    Clients(Helped<query::FindClients>),
    CommandLine(memory::ReadCommandLine),
    Containers(containers::ReadContainers),
    ContainerLogs(logs::ReadContainerLogs),
    Directory(entries::ReadEntries),
    Fanotify(Helped<query::FindFanotify>),
    ExaminedRoot(examined_root::ExamineRoot),
    DriverLog(logs::ReadDriverLog),
    FuseServer(fuse_servers::FindFuseServer),
    Holders(holders::FindHolders),
    KernelLog(logs::ReadKernelLog),
    Kubelet(kubelet::ReadKubelet),
    KubeletsPods(api::AskKubelet),
    Listener(Helped<query::FindListener>),
    Log(logs::ReadLog),
    Logs(listing::ListDirectories),
    Runtime(runtime::ReadRuntime),
    Storage(runtime::ReadStorage),
    RuntimeLog(logs::ReadRuntimeLog),
    Pods(pod_dirs::ReadPods),
    Protected(Helped<query::FindProtected>),
    Reach(reach::ReachPath),
    Remaining(remaining::CountWithin),
    Roots(show_roots::ShowRoots),
    SocketPath(Helped<query::FindSocketPath>),
    Space(space::MeasureSpace),
    Subvolume(Helped<query::ReadSubvolume>),
    Text(memory::ReadText),
    Traces(traces::ReadTraces),
    Units(kubelet_unit::ReadUnits),
    Waits(Helped<query::FollowWaits>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_helper() {
        podstuck_fuzz::fuzz("helper", |input| {
            understand(input);
            let _ = serde_json::from_slice::<Request>(input);
        });
    }
}
