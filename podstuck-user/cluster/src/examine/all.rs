//! Many nodes: some of them at a time, and on each one pod of podstuck's own at a time. An answer is shown when it is whole.

use std::{collections::BTreeMap, sync::Arc};

use kube::Client;
use podstuck_model::path::safe;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use super::{About, End, OwnPod, examine};
use podstuck_model::exit::Failure;

/// What came of one pod.
struct Done {
    heading: String,
    said: Vec<u8>,
    ended: Result<End, Failure>,
}

/// Has all of these examined. The exit status is 1 if a node has found a cause, or what it was before.
pub async fn all(
    client: &Client,
    own: Vec<OwnPod>,
    at_a_time: usize,
    seconds_to_start: u32,
    exit: u8,
    out: &mut (impl AsyncWrite + Unpin),
) -> End {
    let mut nodes: BTreeMap<String, Vec<OwnPod>> = BTreeMap::new();
    for own in own {
        nodes.entry(own.node.clone()).or_default().push(own);
    }
    let turns = Arc::new(Semaphore::new(at_a_time));
    let (sender, mut done) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for of_node in nodes.into_values() {
        let (client, turns, sender) = (client.clone(), turns.clone(), sender.clone());
        tasks.spawn(async move {
            let _turn = turns.acquire().await;
            for own in of_node {
                // Where no one takes answers any more, nothing more is begun.
                if sender.is_closed() {
                    return;
                }
                let mut said = Vec::new();
                let ended =
                    examine(&client, &own, seconds_to_start, &mut said, sender.closed()).await;
                let is_over = matches!(ended, Ok(End::Interrupted(_) | End::Unread));
                let done = Done { heading: heading(&own), said, ended };
                if sender.send(done).await.is_err() || is_over {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut end = End::Answered(exit);
    while let Some(Done { heading, mut said, ended }) = done.recv().await {
        match ended {
            Ok(End::Answered(1)) if matches!(end, End::Answered(_)) => end = End::Answered(1),
            Ok(End::Answered(_)) => {}
            Ok(early) => {
                stop(&mut done, &mut end, early);
                continue;
            }
            Err(failure) => {
                said.extend(format!("{}\n", safe(failure.to_string().as_bytes())).bytes());
            }
        }
        let text = [heading.as_bytes(), &said].concat();
        if out.write_all(&text).await.and(out.flush().await).is_err() {
            stop(&mut done, &mut end, End::Unread);
        }
    }
    // Each removes its own pod before it ends.
    while tasks.join_next().await.is_some() {}
    end
}

/// Has the others end.
fn stop(done: &mut mpsc::Receiver<Done>, end: &mut End, why: End) {
    done.close();
    if matches!(end, End::Answered(_)) {
        *end = why;
    }
}

fn heading(own: &OwnPod) -> String {
    let about = match &own.about {
        About::Name { name, .. } => name,
        About::Uid(uid) => uid,
    };
    format!("\n== {} on {} ==\n", safe(about.as_bytes()), safe(own.node.as_bytes()))
}
