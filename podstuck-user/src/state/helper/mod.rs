//! The helper process: looks at what may lie on a dead file system, or behind a lock that is never
//! given back, for as long as that takes. `stat` on a hung NFS or FUSE mount never returns, and a
//! thread in it cannot be killed; a process can at least be left behind.
//!
//! The helper is a process of the fork server. It reads one request, a line of JSON, and writes [`Message`]s, one a line: what it is about to do, parts of the answer, and last the answer.
//! So whoever waits knows where it hangs, and has what was found before. One client ([`client`])
//! serves threads and, through a thread, asynchronous tasks; it also bounds how many helpers may hang.

mod client;
mod left_behind;
mod serve;
mod share;

use std::{ffi::OsString, fmt::Debug, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use client::degraded;
pub(in crate::state) use client::{Failure, LIMIT, ask, ask_in_parts, is_hanging};
pub(in crate::state) use serve::Teller;
pub use serve::{serve, serve_through};
pub(crate) use share::{Share, ask_for};

use crate::{kernel::role::Role, model::degraded::Feed};

use super::{
    alive::Occasion, anywhere, api, attributes, clients, containers, entries, examined_root,
    holders, kubelet, kubelet_unit, listeners, listing, logs, memory, pod_dirs, protected, reach,
    remaining, runtime, show_roots, space, traces,
};

/// What the helper can be asked, with both sides of it.
pub(in crate::state) trait Question: Into<Request> {
    /// What bounds how many helpers may hang over it.
    const BUDGET: Budget = Budget::Events;
    /// What is made of the answers, and is missing while a helper hangs; nothing where whoever asks says so
    /// himself, or where no finding is made of them.
    const FEEDS: Option<Feed> = None;
    /// What the helper may do.
    const ROLE: Role = Role::Helper;
    /// Whether it takes a few milliseconds of CPU time, whatever it meets: it does not give way to others, since somebody
    /// waits for it.
    const IS_SHORT: bool = false;
    /// Something that it does and that may never end.
    type Step: Debug + Serialize + DeserializeOwned;
    /// What is told as soon as it is known.
    type Part: Serialize + DeserializeOwned;
    /// What is told in the end.
    type Answer: Serialize + DeserializeOwned;

    /// What lives if the question is asked: it is asked because a call has returned from there.
    const OCCASION: Occasion = Occasion::Unknown;

    /// The path that it enters, and the process as which; `None` where it enters several.
    fn enters(&self) -> Option<(u32, &Path)> {
        None
    }

    /// What it looks at, for whoever hears that it hangs; empty where its steps say so.
    fn place(&self) -> OsString {
        self.enters().map(|(_, path)| path.into()).unwrap_or_default()
    }

    /// The helper's side.
    ///
    /// # Errors
    /// Fails when the file system answers with an error, or when nobody listens any more.
    fn answer(self, tell: &mut Teller<Self::Step, Self::Part>) -> Result<Self::Answer>;
}

/// Helpers that hang are counted by what they are for. While as many hang as may, no other one is
/// risked: each keeps a reference to the path that it looks at. What is asked again and again has a
/// budget of its own, so that one hung disk leaves the other questions alone. Within a budget each pod has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Budget {
    /// Questions that a failed or hung call raises.
    Events,
    /// Searches for holders. Each may leave several behind before it knows what hangs.
    Holders,
    /// The pods' directories, in every sample: one for each root.
    Pods,
    /// Logs. Many lie on one disk, and those of kubelet, of runtimes and of drivers are read by one helper each.
    Logs,
    /// The directories of pods' logs, whenever a pod has no name, and kubelet's before a run begins.
    Names,
    /// How full file systems are, in every few samples.
    Space,
    /// Where kubelets and runtimes keep their things, again and again.
    Roots,
    /// What runtimes keep of their containers, in every sample.
    Containers,
}

impl Budget {
    const ALL: [Self; 8] = [
        Self::Events,
        Self::Holders,
        Self::Pods,
        Self::Logs,
        Self::Names,
        Self::Space,
        Self::Roots,
        Self::Containers,
    ];

    /// What is missing while as many hang as may.
    const fn feeds(self) -> &'static [Feed] {
        match self {
            Self::Events => &[Feed::Objects],
            Self::Logs => &[Feed::Logs],
            Self::Holders => &[Feed::Holders],
            Self::Pods | Self::Containers => &[Feed::Node],
            Self::Space => &[Feed::Space],
            // A pod without a name is found all the same; what was shown once, the probes know.
            Self::Names | Self::Roots => &[],
        }
    }

    /// What those do that are counted together.
    const fn work(self) -> &'static str {
        match self {
            Self::Events => "look at objects",
            Self::Logs => "read logs",
            Self::Holders => "search for holders",
            Self::Pods => "read the pods' directories",
            Self::Names => "read directories that name pods",
            Self::Space => "ask how full file systems are",
            Self::Roots => "look where pods and containers are kept",
            Self::Containers => "read what runtimes keep of containers",
        }
    }

    const fn hung_max(self) -> usize {
        match self {
            Self::Events => 6,
            Self::Logs | Self::Pods => 4,
            Self::Holders => 8,
            Self::Names => 2,
            Self::Space | Self::Roots | Self::Containers => 1,
        }
    }
}

/// One line of the helper's output.
#[derive(Debug, Serialize, Deserialize)]
enum Message<S, P, A> {
    /// This is what it does next.
    At(S),
    Part(P),
    /// The last one.
    Answer(Result<A, Refusal>),
}

/// Why there is no answer, in a sentence.
#[derive(Debug, Serialize, Deserialize)]
enum Refusal {
    NotEntered(String),
    Failed(String),
}

/// What a helper does not enter that learns only by itself where it is to look, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::state) struct NotEntered(pub(in crate::state) String);

/// All questions: the request that a client sends, and the helper's way to the answer.
macro_rules! questions {
    ($($name:ident($question:ty),)*) => {
        /// What the helper reads.
        #[derive(Debug, Serialize, Deserialize)]
        pub(in crate::state) enum Request {
            $($name($question),)*
        }

        $(impl From<$question> for Request {
            fn from(question: $question) -> Self {
                Self::$name(question)
            }
        })*

        impl Request {
            fn serve(self) -> Result<()> {
                match self {
                    $(Self::$name(question) => serve::answer(question),)*
                }
            }
        }

        /// Takes a line for what each helper may say.
        #[cfg(test)]
        fn understand(line: &[u8]) {
            fn understand<Q: Question>(line: &[u8]) {
                let _ = serde_json::from_slice::<Message<Q::Step, Q::Part, Q::Answer>>(line);
            }
            $(understand::<$question>(line);)*
        }
    };
}

questions! {
    Anywhere(anywhere::FindAnywhere),
    Api(api::AskApi),
    Attributes(attributes::ReadAttributes),
    Clients(clients::FindClients),
    CommandLine(memory::ReadCommandLine),
    Containers(containers::ReadContainers),
    Directory(entries::ReadDirectory),
    ExaminedRoot(examined_root::ExamineRoot),
    DriverLog(logs::ReadDriverLog),
    Holders(holders::FindHolders),
    KernelLog(logs::ReadKernelLog),
    Kubelet(kubelet::ReadKubelet),
    Listener(listeners::FindListener),
    Log(logs::ReadLog),
    Logs(listing::ListDirectories),
    Runtime(runtime::ReadRuntime),
    Storage(runtime::ReadStorage),
    RuntimeLog(logs::ReadRuntimeLog),
    Pods(pod_dirs::ReadPods),
    Protected(protected::FindProtected),
    Reach(reach::ReachPath),
    Remaining(remaining::CountRemaining),
    Roots(show_roots::ShowRoots),
    Space(space::MeasureSpace),
    Text(memory::ReadText),
    Traces(traces::ReadTraces),
    Units(kubelet_unit::ReadUnits),
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
