//! A kubelet that has not learned of the deletion.

use std::time::Duration;

use jiff::SignedDuration;

use crate::{
    cause::{Cause, Kind, Origin, TriedWith, log, or_seen, seen, way},
    causes::{
        kubelet_state::{
            lists::Shown,
            suspect::{Suspect, VERY_LATE},
        },
        shared::{
            kubelets_list::{lacks_deletion, takes_changes},
            unit::{KUBELET_RISK, restart_kubelet},
        },
    },
    command::Step,
    ids,
    kubelet_steps::{self, NotAsked, Watch},
    model::{diagnosis::Stage, evidence::Source, path::safe, pod_record::PodRecord},
    tracker::Context,
    verdict::{Draft, times},
};

/// A kubelet that has not learned of the deletion.
pub(crate) static MISSED_DELETION: Cause = Cause {
    id: ids::KUBELET_MISSED_DELETION,
    title: "kubelet has not received the pod's deletion",
    stage: Stage::Containers,
    kind: Kind::Cause,
    meaning: "The API server has the deletion, and kubelet does nothing for it: its watch of \
        pods fails, or has lost the change. The containers run on: no component asks the runtime \
        to stop them, and the pod does not wait for the runtime. kubelet lists its pods again \
        when the watch works, or when kubelet is started.",
    confirmed_by: &[
        seen("the pod's deletionTimestamp has passed", &[Origin::Api]),
        seen("kubelet's log says repeatedly that its watch of pods fails", &[Origin::Log]),
        or_seen(
            "or kubelet's log, at --v=2 or more and from before the deletion, has neither `SyncLoop \
            DELETE` of the pod nor `Killing container`",
            &[Origin::Log],
        ),
        or_seen(
            "or kubelet processes other changes, according to its list or its health check",
            &[Origin::Kubelet],
        ),
        seen(
            "kubelet's own list of its pods has the pod without the deletion, in two reads",
            &[Origin::Kubelet],
        ),
    ],
    log: log("kubelet", "Failed to watch *v1.Pod"),
    look_alikes: &[],
    ways_out: &[
        way("restart kubelet, which lists its pods again", "low: containers keep running"),
        way("restore the connection to the API server, or renew kubelet's credentials", ""),
    ],
    field: &["kubernetes#25759"],
    tried: &[TriedWith::Test, TriedWith::RealKubelet, TriedWith::ApiServer, TriedWith::Objects],
    source: &["kubernetes pkg/kubelet/config/apiserver.go", "client-go tools/cache/reflector.go"],
};

/// The finding that kubelet has not learned of the deletion.
pub(super) fn missed(
    context: &Context<'_>,
    suspect: &Suspect<'_>,
    record: &PodRecord,
    late: SignedDuration,
    shown: &Shown<'_>,
) -> Option<Draft> {
    let (steps, now, uid) = (context.kubelet_steps, context.calendar, &suspect.pod.uid);
    let requested = kubelet_steps::requested(record);
    if steps.has_received(uid) || matches!(shown, Shown::Received) {
        return None;
    }
    let is_proven = matches!(shown, Shown::Missed { .. });
    // What ends by itself is no step of the deletion.
    if !is_proven && steps.has_acted(uid, requested) {
        return None;
    }
    // A kubelet that waits in a call learns of nothing, and a restart alone does not help.
    if context.waits.call_of(suspect.kubelet).is_some() {
        return None;
    }
    let not_asked = steps.not_asked(uid, requested, Duration::from_secs(record.grace_s), now);
    // If kubelet's log does not go back far enough, it may have ended the containers before.
    let runs = suspect.pod.populated == Some(true);
    let watch = steps.watch(uid, now).filter(|_| runs || not_asked.is_some());
    let is_missed = not_asked.as_ref().is_some_and(|it| it.is_unheard) && late >= VERY_LATE;
    if !is_proven && !is_missed && watch.is_none() {
        return None;
    }
    let mut draft = missed_deletion(context, suspect, watch, not_asked.as_ref(), shown);
    if let Shown::Missed { apart, latest, is_well } = *shown {
        lacks_deletion(&mut draft, apart);
        // A watch that fails explains it by itself.
        if watch.is_none()
            && let Some(requested) = requested
        {
            takes_changes(&mut draft, requested, now, latest, || is_well);
        }
    }
    Some(draft)
}

fn missed_deletion(
    context: &Context<'_>,
    suspect: &Suspect<'_>,
    watch: Option<&Watch>,
    not_asked: Option<&NotAsked<'_>>,
    shown: &Shown<'_>,
) -> Draft {
    let mut draft = suspect.draft(&MISSED_DELETION);
    draft.held_by(suspect.kubelet());
    if let Some(Watch { said, .. }) = watch {
        let fact = format!(
            "kubelet logged {} that its watch of pods fails: {}",
            times(said.times),
            safe(said.text.as_bytes())
        );
        draft.fact(fact, Source::Log(said.source.clone()));
    }
    if let Some(not_asked) = not_asked {
        draft.fact(not_asked.fact(), Source::Log(not_asked.log.to_owned()));
    }
    match (shown, not_asked) {
        (Shown::Open(unknown), Some(_)) => draft.doubt(unknown),
        (Shown::Open(_), None) => draft.doubt(
            "whether kubelet has received the deletion before: its log does not go back that \
            far, or does not name its steps (--v=2)",
        ),
        (Shown::Missed { .. } | Shown::Received, _) => {}
    }
    let text = watch.map_or("", |watch| watch.said.text.as_str());
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let why = if has(&["Unauthorized", "x509", "certificate", "forbidden"]) {
        draft.remedy(
            Step::new(
                "show until when kubelet's client certificate is valid",
                "openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem",
            ),
            "none",
        );
        draft.advice("renew kubelet's credentials, and restart kubelet", KUBELET_RISK);
        "The API server does not let kubelet list its pods."
    } else if has(&["connect: ", "dial tcp", "no such host", "timeout", "EOF", "connection lost"]) {
        draft.advice(
            "restore kubelet's connection to the API server: kubelet then lists its pods, and \
            continues by itself",
            "none",
        );
        "kubelet does not reach the API server."
    } else {
        let then = "it lists its pods again, and ends this one";
        draft.remedies.push(restart_kubelet(context.sample, then));
        "kubelet does not receive changes of its pods."
    };
    draft.explanation = format!(
        "{why} The pod's containers run on because no component asks the runtime to stop them: \
        the pod does not wait for the runtime."
    );
    draft
}
