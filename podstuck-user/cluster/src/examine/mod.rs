//! Examines a node: runs podstuck in a pod of its own on that node and shows its output. The pod is always removed,
//! also after Ctrl-C.

mod all;
mod answer;
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
pub use answer::NodesAnswer;
pub use manifest::{About, OwnPod};
use podstuck_model::exit::Failure;
pub use record::of as part_of_record;
use requests::{Requests, text};
use signals::Signals;

/// Time after which kubelet ends podstuck's own pod. The output is not awaited for longer.
const ENDED_AFTER: Duration = Duration::from_secs(900);
/// Interval between reads of the pod's state.
const EACH: Duration = Duration::from_secs(1);
/// Maximum number of reads of the state for the exit status, after the log has ended.
const ENDS_WITHIN: u32 = 10;
/// Waiting reasons with which a container does not start without intervention.
const HOPELESS: [&str; 5] = [
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// How an examination ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// podstuck has answered, with this exit status.
    Answered(u8),
    /// A signal interrupted the run; the exit status for that signal.
    Interrupted(u8),
    /// The reader of the output has closed it.
    Unread,
}

/// Examines a node, until `stop` completes. Writes podstuck's output to `out` as it arrives.
///
/// # Errors
///
/// Fails if the pod cannot be created or does not start, or if its output cannot be read. The pod is removed in these
/// cases as well.
pub async fn examine(
    client: &Client,
    own: &OwnPod,
    seconds_to_start: u32,
    out: &mut (impl AsyncWrite + Unpin),
    stop: impl Future<Output = ()>,
) -> Result<End, Failure> {
    let mut signals = Signals::hear().map_err(|error| Failure::CannotRun(error.into()))?;
    let requests = Requests::about(client, own);
    // The API server may fulfil a request that was sent, so its answer is always awaited.
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
            let namespace = &own.namespace;
            Err(anyhow!(
                "cannot create podstuck's own pod in {namespace}: {why}; `kubectl auth can-i create pods --namespace \
                 {namespace}` checks whether you may, and --in names another namespace"
            ))
        }
    };
    if may_exist && let Err(why) = requests.delete().await {
        eprintln!(
            "kubectl podstuck: cannot delete its own pod: {why}; run: kubectl delete pod {} -n {}",
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
    let mut log = requests
        .log()
        .await
        .map_err(|why| anyhow!("cannot read the log of podstuck's own pod: {why}"))?;
    while let Some(some) = log.next().await {
        let some =
            some.map_err(|why| anyhow!("cannot read the log of podstuck's own pod: {why}"))?;
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
    Err(anyhow!("the log of podstuck's own pod has ended, but podstuck has not"))
}

async fn wait_for_start(requests: &Requests<'_>, own: &OwnPod, seconds: u32) -> anyhow::Result<()> {
    let OwnPod { node, image, .. } = own;
    for left in (0..=seconds).rev() {
        let pod = requests.state().await.map_err(|why| anyhow!(why))?;
        let phase = text(&pod, "/status/phase");
        let waiting = text(&pod, "/status/containerStatuses/0/state/waiting/reason");
        match phase {
            "Running" | "Succeeded" => return Ok(()),
            // With an exit status, podstuck has run and failed by itself; without one, the node rejected the pod.
            "Failed" if exit_status(&pod).is_some() => return Ok(()),
            "Failed" => {
                let (why, message) = (text(&pod, "/status/reason"), text(&pod, "/status/message"));
                return Err(anyhow!("{node} does not run podstuck's own pod: {why} {message}"));
            }
            _ if is_hopeless(waiting) => {
                let message = text(&pod, "/status/containerStatuses/0/state/waiting/message");
                return Err(anyhow!(
                    "{node} cannot start {image}: {waiting}: {message}; --image names the image as this node can get it"
                ));
            }
            _ if left == 0 => {
                let why = if waiting.is_empty() { phase } else { waiting };
                return Err(anyhow!(
                    "podstuck's own pod does not start on {node} within {seconds} s: {why}; --wait gives it more time"
                ));
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

/// A name that is unique with high probability.
pub fn own_name() -> String {
    format!("podstuck-{:010x}", fastrand::u64(..1 << 40))
}
