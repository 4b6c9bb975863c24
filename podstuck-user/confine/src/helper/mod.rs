//! The helper process: reads what may be on a dead file system, or behind a lock that is never released, for as long
//! as that takes. `stat` on a hung NFS or FUSE mount never returns, and a thread in it cannot be killed; a process
//! can at least be left behind.
//!
//! The helper is a process of the fork server. It reads one request, a line of JSON, and writes [`Message`]s, one a
//! line: the step that it begins, parts of the answer, and last the answer. So the client knows where it hangs, and
//! has what was found before. One client ([`client`]) serves threads and, through a thread, asynchronous tasks; it
//! also bounds how many helpers may hang.

mod client;
mod each;
mod left_behind;
mod serve;
mod share;

use std::{ffi::OsString, fmt::Debug, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use client::{Failure, LIMIT, ask, ask_in_parts, degraded, is_hanging};
pub use each::ask_each;
pub use serve::{Teller, answer, serve, serve_through};
pub use share::{Share, ask_for};

use podstuck_model::degraded::Feed;

use crate::{alive::Occasion, role::Role};

/// The name of a question in a request. The crate with the list of all questions assigns them.
pub trait Named {
    /// Unique among all questions.
    const NAME: &'static str;
}

/// A question to the helper, with both sides of it.
pub trait Question: Named + Serialize {
    /// The budget that bounds how many helpers may hang in it.
    const BUDGET: Budget = Budget::Events;
    /// The data made of the answers, which is missing while a helper hangs; `None` where the caller reports that
    /// itself, or where no finding is made of them.
    const FEEDS: Option<Feed> = None;
    /// The privileges of the helper.
    const ROLE: Role = Role::Helper;
    /// Whether it never takes more than a few milliseconds of CPU time: then it keeps its priority, since the caller
    /// waits for it.
    const IS_SHORT: bool = false;
    /// A step of its work that may never end.
    type Step: Debug + Serialize + DeserializeOwned;
    /// A part of the answer, sent as soon as it is known.
    type Part: Serialize + DeserializeOwned;
    /// The answer, sent at the end.
    type Answer: Serialize + DeserializeOwned;

    /// Why the question is asked: `Answered` when a call has just returned from there.
    const OCCASION: Occasion = Occasion::Unknown;

    /// The path that it enters, and the process that sees it; `None` when it enters several.
    fn enters(&self) -> Option<(u32, &Path)> {
        None
    }

    /// The place that it reads, for the report of a hang; empty when its steps name it.
    fn place(&self) -> OsString {
        self.enters().map(|(_, path)| path.into()).unwrap_or_default()
    }

    /// The helper's side.
    ///
    /// # Errors
    /// Fails when the file system answers with an error, or when the client has closed the channel.
    fn answer(self, tell: &mut Teller<Self::Step, Self::Part>) -> Result<Self::Answer>;
}

/// Hung helpers are counted by purpose. While a budget is exhausted, no further helper is started in it: each keeps a
/// reference to the path that it reads. Periodic questions have a budget of their own, so that one hung disk leaves
/// the other questions alone. Within a budget each pod has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Questions that a failed or hung call raises.
    Events,
    /// Searches for holders. Each may leave several helpers behind before it knows what hangs.
    Holders,
    /// The pods' directories, in every sample.
    Pods,
    /// Logs. Many are on one disk; those of kubelet, of runtimes and of drivers are read by one helper each.
    Logs,
    /// The directories of pods' logs, read when a pod has no name, and kubelet's before a run begins.
    Names,
    /// Free space of file systems, in every few samples.
    Space,
    /// The directories of kubelets and runtimes, periodically.
    Roots,
    /// The runtimes' records of their containers, in every sample.
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

    /// The data that is missing while the budget is exhausted.
    const fn feeds(self) -> &'static [Feed] {
        match self {
            Self::Events => &[Feed::Objects],
            Self::Logs => &[Feed::Logs],
            Self::Holders => &[Feed::Holders],
            Self::Pods | Self::Containers => &[Feed::Node],
            Self::Space => &[Feed::Space],
            // A pod without a name is found all the same; the probes know the directories that were shown once.
            Self::Names | Self::Roots => &[],
        }
    }

    /// The work of a budget, in words.
    const fn work(self) -> &'static str {
        match self {
            Self::Events => "examine objects",
            Self::Logs => "read logs",
            Self::Holders => "search for holders",
            Self::Pods => "read the pods' directories",
            Self::Names => "read directories that name pods",
            Self::Space => "read how full file systems are",
            Self::Roots => "find the directories of pods and containers",
            Self::Containers => "read the runtimes' data of containers",
        }
    }

    const fn hung_max(self) -> usize {
        match self {
            Self::Events => 6,
            Self::Logs | Self::Pods => 4,
            Self::Holders => 8,
            Self::Names | Self::Space | Self::Roots | Self::Containers => 3,
        }
    }
}

/// One line of the helper's output.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message<S, P, A> {
    /// The step that it begins.
    At(S),
    /// A part of the answer.
    Part(P),
    /// The last one.
    Answer(Result<A, Refusal>),
}

/// Why there is no answer, as a sentence.
#[derive(Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The file system to be entered does not answer.
    NotEntered(String),
    /// The read failed.
    Failed(String),
}

/// Error of a helper that finds out itself which place to read, and must not enter it: the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotEntered(pub String);

#[cfg(test)]
mod testing {
    //! Questions for tests only.

    use super::*;

    /// About an object, as after each failed call.
    #[derive(Serialize)]
    pub(super) struct Short;

    impl Named for Short {
        const NAME: &'static str = "Short";
    }

    impl Question for Short {
        const FEEDS: Option<Feed> = Some(Feed::Objects);
        const IS_SHORT: bool = true;
        type Step = ();
        type Part = ();
        type Answer = ();

        fn answer(self, _: &mut Teller<(), ()>) -> Result<()> {
            Ok(())
        }
    }

    /// With steps.
    #[derive(Serialize)]
    pub(super) struct Long;

    impl Named for Long {
        const NAME: &'static str = "Long";
    }

    impl Question for Long {
        const BUDGET: Budget = Budget::Space;
        type Step = std::path::PathBuf;
        type Part = ();
        type Answer = ();

        fn answer(self, _: &mut Teller<Self::Step, ()>) -> Result<()> {
            Ok(())
        }
    }
}
