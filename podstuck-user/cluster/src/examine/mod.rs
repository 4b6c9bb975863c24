//! The node's part of an answer: podstuck in a pod of its own on that node, whose output is shown. That pod is removed
//! whatever happens, also after Ctrl-C.

mod all;
mod manifest;
mod record;
mod requests;
mod signals;

use std::time::Duration;

use anyhow::anyhow;
use kube::Client;
use serde_json::Value;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::sleep,
};

pub use all::{Done, Said, all};
pub use manifest::{About, OwnPod};
use podstuck_model::exit::Failure;
pub use record::of as part_of_record;
use requests::{Requests, text};
use signals::Signals;

/// A pod of podstuck's own is ended by kubelet then; its output is not waited for any longer.
const ENDED_AFTER: Duration = Duration::from_secs(900);
/// How often the state of the pod is read.
const EACH: Duration = Duration::from_secs(1);
/// How often it is, for the exit status after the end of its output.
const ENDS_WITHIN: u32 = 10;
/// What kubelet says of a container that will not start by waiting.
const HOPELESS: [&str; 5] = [
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// podstuck has answered, with this exit status.
    Answered(u8),
    /// A signal has ended it; the exit status for that.
    Interrupted(u8),
    /// What reads the output takes no more of it.
    Unread,
}

/// Has a node examined, unless `stop` comes first. What podstuck writes goes to `out` as it comes.
///
/// # Errors
///
/// Where the pod cannot be made, does not start, or its output cannot be read; the pod is removed then, too.
pub async fn examine(
    client: &Client,
    own: &OwnPod,
    seconds_to_start: u32,
    out: &mut (impl AsyncWrite + Unpin),
    stop: impl Future<Output = ()>,
) -> Result<End, Failure> {
    let mut signals = Signals::hear().map_err(|error| Failure::CannotRun(error.into()))?;
    let requests = Requests::about(client, own);
    // A request that was sent may be fulfilled: its end is waited for.
    let created = requests.create(&own.manifest()).await;
    let may_exist = created.as_ref().map_or_else(|(_, may_exist)| *may_exist, |()| true);
    let ended = match created {
        Ok(()) => tokio::select! {
            ended = answer(&requests, own, seconds_to_start, out) => ended,
            () = stop => Ok(End::Unread),
            () = sleep(ENDED_AFTER + Duration::from_secs(seconds_to_start.into())) => {
                Err(anyhow!("podstuck on {} has not ended", own.node))
            }
            status = signals.next() => Ok(End::Interrupted(status)),
        },
        Err((why, _)) => {
            Err(anyhow!("cannot make the pod of podstuck in {}: {why}", own.namespace))
        }
    };
    if may_exist && let Err(why) = requests.delete().await {
        eprintln!(
            "kubectl podstuck: cannot remove its own pod: {why}; run: kubectl delete pod {} -n {}",
            own.name, own.namespace
        );
    }
    ended.map_err(Failure::CannotRun)
}

async fn answer(
    requests: &Requests<'_>,
    own: &OwnPod,
    seconds_to_start: u32,
    out: &mut (impl AsyncWrite + Unpin),
) -> anyhow::Result<End> {
    wait_for_start(requests, own, seconds_to_start).await?;
    let mut log =
        requests.log().await.map_err(|why| anyhow!("cannot read the output of podstuck: {why}"))?;
    while let Some(some) = log.next().await {
        let some = some.map_err(|why| anyhow!("cannot read the output of podstuck: {why}"))?;
        if out.write_all(&some).await.and(out.flush().await).is_err() {
            return Ok(End::Unread);
        }
    }
    for _ in 0..ENDS_WITHIN {
        if let Some(status) = exit_status(&requests.state().await.map_err(|why| anyhow!(why))?) {
            return Ok(End::Answered(status));
        }
        sleep(EACH).await;
    }
    Err(anyhow!("the log of its pod has ended, and podstuck has not"))
}

async fn wait_for_start(requests: &Requests<'_>, own: &OwnPod, seconds: u32) -> anyhow::Result<()> {
    let OwnPod { node, image, .. } = own;
    for left in (0..=seconds).rev() {
        let pod = requests.state().await.map_err(|why| anyhow!(why))?;
        let phase = text(&pod, "/status/phase");
        let waiting = text(&pod, "/status/containerStatuses/0/state/waiting/reason");
        match phase {
            "Running" | "Succeeded" => return Ok(()),
            // It ended with an exit status of its own, or the node did not take it.
            "Failed" if exit_status(&pod).is_some() => return Ok(()),
            "Failed" => {
                let (why, message) = (text(&pod, "/status/reason"), text(&pod, "/status/message"));
                return Err(anyhow!("{node} does not run the pod of podstuck: {why} {message}"));
            }
            _ if is_hopeless(waiting) => {
                let message = text(&pod, "/status/containerStatuses/0/state/waiting/message");
                return Err(anyhow!("{node} cannot start {image}: {waiting}: {message}"));
            }
            _ if left == 0 => {
                let why = if waiting.is_empty() { phase } else { waiting };
                return Err(anyhow!("the pod of podstuck does not start on {node}: {why}"));
            }
            _ => sleep(EACH).await,
        }
    }
    Ok(())
}

fn is_hopeless(waiting: &str) -> bool {
    let of_image = waiting.starts_with("ImagePull");
    let of_runtime = waiting.starts_with("Create") && waiting.ends_with("Error");
    HOPELESS.contains(&waiting) || of_image || of_runtime
}

fn exit_status(pod: &Value) -> Option<u8> {
    let status = pod.pointer("/status/containerStatuses/0/state/terminated/exitCode")?.as_i64()?;
    Some(u8::try_from(status).unwrap_or(u8::MAX))
}

/// A name that no other pod has.
pub fn own_name() -> String {
    format!("podstuck-{:010x}", fastrand::u64(..1 << 40))
}
