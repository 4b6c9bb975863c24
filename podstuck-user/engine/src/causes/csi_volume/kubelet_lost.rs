//! kubelet was restarted and no longer knows the volume.

use crate::{
    cause::Cause,
    causes::{
        csi_volume::{
            causes::KUBELET_LOST,
            verdict::{Suspect, UMOUNT_RISK, umount},
        },
        shared::{standing::minutes, unit},
    },
    command::Step,
    ids,
    model::{evidence::Source, said::Said, shell::word, time::Monotonic},
    tracker::Context,
    verdict::Draft,
};

pub(crate) fn cause() -> &'static Cause {
    &KUBELET_LOST
}

pub(crate) fn words(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    if let Some(since) = suspect.kubelet_since {
        let fact = format!("kubelet was started {} ago", minutes(suspect.at, since));
        draft.fact_since(fact, Source::proc("/proc"), since);
    }
    if let Some((since, log)) = suspect.no_error_since {
        draft.fact_since(
            "since then kubelet has neither unmounted the volume nor failed to",
            Source::Log(log.to_owned()),
            since,
        );
    }
    if let Some((since, said)) = suspect.said {
        mounts_again(context, draft, suspect, (since, said));
    } else {
        gave_up(context, draft, suspect);
    }
    draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "kubelet does not ask the driver");
    if !suspect.is_going() {
        let uid = word(&suspect.pod.uid);
        let find = format!("kubectl get pods --all-namespaces -o yaml | grep -B 9 {uid}");
        draft.remedy(Step::new("find the record of the pod by its UID", find), "none");
        draft.doubt("whether the pod is to be deleted: it may never have had tokens");
    }
}

/// kubelet tries to mount the volume again, fails, and so does not know that it is mounted.
fn mounts_again(
    context: &Context<'_>,
    draft: &mut Draft,
    suspect: &Suspect<'_>,
    (since, said): (Monotonic, &Said),
) {
    let fact = format!("kubelet fails to mount the volume, last at {:.0}: {}", said.at, said.text);
    draft.fact_since(fact, Source::Log(said.source.clone()), since);
    draft.explanation = "The volume is mounted, and kubelet tries to mount it: it was started while the pod \
        ran, and finds its volumes again by mounting them once more. It fails, and so takes this one for a \
        volume that it has never mounted and never unmounts."
        .into();
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.advice(
        "give back what kubelet misses, as its error says: the secret, the config map, the claim or the \
         driver. It mounts the volume then, and unmounts it",
        "low",
    );
    draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "kubelet does something else with the volume");
}

/// kubelet has not found the volume again after its start.
fn gave_up(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    draft.explanation = "kubelet was started after the pod's containers had ended, and does not know this \
        volume: it finds volumes again by their directories, and gives up on one whose plugin, secret or \
        claim is not there at that moment. So it waits for a volume that it never unmounts."
        .into();
    const RISK: &str = "low: containers go on, and kubelet looks for the volumes again. Useful only when what it \
        missed is there now: the CSI driver, the volume's secret and claim";
    match context.sample.and_then(|sample| unit::of(sample.kubelet_group.as_deref()?)) {
        Some(unit) => draft.remedy(unit::restart(unit), RISK),
        None => draft.advice(
            "restart kubelet: no command is given, because which service it is was not seen",
            RISK,
        ),
    };
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "kubelet was started after the pod's end");
}
