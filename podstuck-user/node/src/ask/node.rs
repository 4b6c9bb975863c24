//! What answers a question: a look at this node.

use std::time::Duration;

use tokio::{task::spawn_blocking, time::timeout};

use super::Look;
use crate::state::{file_system, holders, queries};
use podstuck_confine::{
    helper::{Share, ask_for},
    mount_point,
};
use podstuck_model::{
    holder::{About, Snapshot},
    query::{
        Answer, Contents, CountRemaining, FindClients, FindListener, FindProtected, NoAnswer,
        ReachFuseMounts, ReadAttributes, ReadDirectory, ReadFileSystem, ReadMounts, ReadMountsOn,
        Wants,
    },
};

/// Later than this, an answer from `/proc` is not waited for.
const STALE: Duration = Duration::from_secs(2);

/// This node.
#[derive(Clone, Copy, Debug)]
pub struct Node;

impl Look for Node {
    async fn answer(&self, share: Share, wants: Wants) -> Answer {
        answer(share, wants).await
    }

    async fn holders(&self, about: Vec<About>) -> Result<Vec<Snapshot>, NoAnswer> {
        spawned(move || holders::snapshots(about)).await.and_then(|taken| taken)
    }
}

async fn answer(share: Share, wants: Wants) -> Answer {
    match wants {
        Wants::Mounts(ReadMounts { pid, namespace, path, mount_id }) => {
            let read = move || queries::mounts(pid, namespace, &path, mount_id);
            Answer::Mounts(from_proc(read).await.flatten())
        }
        Wants::MountsOn(ReadMountsOn { pid, namespace, path }) => {
            let read = move || queries::mounts_on(pid, namespace, &path);
            Answer::Mounts(from_proc(read).await.flatten())
        }
        Wants::FileSystem(ReadFileSystem { pid, namespace, path }) => {
            let look = move || file_system::of_path(pid, namespace, &path);
            Answer::FileSystem(from_proc(look).await.flatten())
        }
        Wants::FuseMounts(ReachFuseMounts { pid, path }) => {
            let mounts = from_proc(move || mount_point::fuse_at(pid, &path)).await;
            let reach = move || queries::reach(pid, mounts.unwrap_or_default());
            Answer::FuseMounts(in_thread(share, reach).await.unwrap_or_default())
        }
        Wants::Attributes(ReadAttributes { pid, directory, name, expected }) => {
            let read = move || queries::attributes(pid, directory, name, expected);
            Answer::Attributes(in_thread(share, read).await.and_then(|found| found))
        }
        Wants::Protected(FindProtected { pid, directory }) => {
            let find = move || queries::protected(pid, directory);
            Answer::Protected(in_thread(share, find).await.and_then(|found| found))
        }
        Wants::Remaining(CountRemaining { pid, directory }) => {
            let count = move || queries::remaining(pid, directory);
            Answer::Remaining(in_thread(share, count).await.and_then(|left| left))
        }
        Wants::Directory(ReadDirectory { pid, namespace, directory }) => {
            let path = directory.clone();
            let read = move || queries::mounts(pid, namespace, &path, 0);
            let mounts = from_proc(read).await.flatten();
            let look = move || queries::directory(pid, namespace, directory);
            let looked = in_thread(share, look).await;
            let (users, entries) = looked.unwrap_or_else(|error| (Vec::new(), Err(error)));
            Answer::Directory(Contents { mounts, entries, users })
        }
        Wants::Listener(FindListener { address, port }) => {
            let find = move || queries::listener(&address, port);
            Answer::Listener(in_thread(share, find).await.and_then(|found| found))
        }
        Wants::Clients(FindClients { pid }) => {
            let find = move || queries::clients(pid);
            Answer::Clients(in_thread(share, find).await.and_then(|found| found))
        }
        Wants::Holders(about) => {
            let taken = in_thread(share, move || holders::snapshot(about)).await;
            Answer::Holders(taken.and_then(|taken| taken))
        }
    }
}

/// Asks the helper process, on somebody's behalf.
async fn in_thread<T: Send + 'static>(
    share: Share,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    spawned(move || ask_for(share, ask)).await
}

/// Waits for as long as the helper may take, on a thread of its own.
async fn spawned<T: Send + 'static>(
    ask: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoAnswer> {
    spawn_blocking(ask).await.map_err(|error| NoAnswer::Helper(error.to_string()))
}

/// What `/proc` says, unless it takes too long: some of its files wait for a process that hangs in
/// execve. The thread that waits there is left behind.
async fn from_proc<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(STALE, spawn_blocking(read)).await.ok()?.ok()
}
