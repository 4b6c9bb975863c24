//! Answers the engine's questions. Each answer is in the file that reads it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{task::spawn_blocking, time::timeout};

use super::seen_by::while_it_lives;
use podstuck_confine::{
    alive::Occasion,
    helper::{self, Named, Share, Teller, ask, ask_for},
    role::Role,
};
use podstuck_model::{
    degraded::Feed,
    query::{NoAnswer, Question},
};

/// Later than this, an answer from `/proc` is not waited for.
const STALE: Duration = Duration::from_secs(2);

/// A question of the engine, and how this node answers it.
pub(crate) trait Asked: Question {
    /// Looks, on behalf of a pod.
    fn answer(self, share: Share, whom: &AsWhom) -> impl Future<Output = Self::Answer> + Send;
}

/// A question about one path that a process sees, which a helper reads.
pub(super) trait Beneath: Question<Answer = Result<Self::Found, NoAnswer>> {
    /// What is read.
    type Found: Serialize + DeserializeOwned + Send;
    /// See [`helper::Question::IS_SHORT`].
    const IS_SHORT: bool = true;
    /// See [`helper::Question::OCCASION`].
    const OCCASION: Occasion = Occasion::Answered;

    /// The path, and the process that sees it.
    fn path(&self) -> (u32, &Path);

    /// The helper's side. It is called again if the process has ended meanwhile.
    ///
    /// # Errors
    /// Fails as the file system does.
    fn read(&self) -> Result<Self::Found>;
}

impl<Q: Beneath + Serialize + Send + 'static> Asked for Q
where
    Helped<Q>: Named,
{
    async fn answer(self, share: Share, _: &AsWhom) -> Self::Answer {
        in_helper(share, Helped(self)).await
    }
}

impl<Q: Beneath + Serialize> helper::Question for Helped<Q>
where
    Self: Named,
{
    const IS_SHORT: bool = Q::IS_SHORT;
    const FEEDS: Option<Feed> = Some(Feed::Objects);
    const OCCASION: Occasion = Q::OCCASION;
    const ROLE: Role = Role::HelperBeneath;
    type Step = ();
    type Part = ();
    type Answer = Q::Found;

    fn enters(&self) -> Option<(u32, &Path)> {
        Some(self.0.path())
    }

    fn answer(self, _: &mut Teller<(), ()>) -> Result<Q::Found> {
        while_it_lives(self.0.path().0, || self.0.read())
    }
}

/// The source of the credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum As {
    /// A running kubelet's.
    Kubelet,
    /// Those of a kubeconfig that was named.
    File(PathBuf),
}

/// With whose credentials kubelet is asked.
#[derive(Clone, Debug)]
pub struct AsWhom {
    /// The node's root directory.
    pub host_root: PathBuf,
    /// Root directories of kubelets; all of them if there are none.
    pub kubelet_roots: Vec<PathBuf>,
    /// The credentials; `None` if no request is permitted.
    pub whose: Option<As>,
}

/// A question of the engine as a helper takes it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Helped<Q>(pub(super) Q);

/// Asks a helper.
pub(super) async fn in_helper<Q: helper::Question + Send + 'static>(
    share: Share,
    question: Q,
) -> Result<Q::Answer, NoAnswer>
where
    Q::Answer: Send,
{
    in_thread(share, move || ask(question)).await.flatten()
}

/// Does what may take as long as helpers may.
pub(super) async fn in_thread<T: Send + 'static>(
    share: Share,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    spawned(move || ask_for(share, look)).await
}

/// The same, on behalf of the node.
pub(crate) async fn spawned<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    spawn_blocking(look).await.map_err(|error| NoAnswer::Helper(error.to_string()))
}

/// What `/proc` says, unless it takes too long: some of its files wait for a process that hangs in
/// execve. The thread that waits there is left behind.
pub(super) async fn from_proc<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    timeout(STALE, spawn_blocking(read)).await.ok()?.ok()
}
