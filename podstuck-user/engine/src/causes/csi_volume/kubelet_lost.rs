//! kubelet was restarted and no longer knows the volume.

use crate::{
    cause::Cause,
    causes::{
        csi_volume::{
            causes::KUBELET_LOST,
            verdict::{Suspect, UMOUNT_RISK, umount},
        },
        shared::{
            standing::{Standing, minutes},
            unit,
        },
    },
    command::Step,
    ids,
    model::{evidence::Source, said::Said, shell::word, time::Monotonic},
    tracker::Context,
    verdict::Draft,
};

/// The risk of a restart of kubelet, which then reads the volume's source.
const ONCE_THERE: &str = "low: containers keep running, and kubelet searches for the volumes again. Useful only once \
    the volume's server or CSI driver, its secret and its claim are available";

pub(crate) fn cause() -> &'static Cause {
    &KUBELET_LOST
}

pub(crate) fn words(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    if let Some(since) = suspect.kubelet_since.filter(|_| suspect.attached.is_none()) {
        let fact = format!("kubelet was started {} ago", minutes(suspect.at, since));
        draft.fact_since(fact, Source::proc("/proc"), since);
    }
    if let Some((since, log)) = suspect.no_error_since.filter(|_| suspect.attached.is_none()) {
        draft.fact_since(
            "since then, kubelet has neither unmounted the volume nor failed to unmount it",
            Source::Log(log.to_owned()),
            since,
        );
    }
    if let Some((since, said)) = suspect.said {
        mounts_again(context, draft, suspect, (since, said));
    } else if let Some(attached) = suspect.attached {
        is_only_attached(context, draft, suspect, attached);
    } else {
        gave_up(context, draft, suspect);
    }
    draft.rule_out(ids::CSI_DRIVER_LOST_PUBLISH_STATE, "kubelet does not call the driver");
    if !suspect.is_going() {
        let uid = word(&suspect.pod.uid);
        let find = format!("kubectl get pods --all-namespaces -o yaml | grep -B 9 {uid}");
        draft.remedy(Step::new("find the record of the pod by its UID", find), "none");
        draft.doubt("whether the pod is to be deleted: it may never have had a token volume");
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
    if !suspect.pod.started {
        draft.explanation = "kubelet's attempt to mount the volume failed, most often because the driver did not answer \
            in time, and the driver mounted it all the same. kubelet does not count the volume as mounted, and tries \
            nothing more with it, because the pod is to be deleted. So no component unmounts it."
            .into();
        umount(context, draft, suspect, UMOUNT_RISK);
        draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "kubelet counts the volume as not mounted");
        return;
    }
    draft.explanation = "The volume is mounted, but kubelet has tried to mount it: kubelet was \
        started while the pod ran, and finds its volumes again by mounting them once more. The \
        mount fails, so kubelet counts the volume as never mounted and never unmounts it."
        .into();
    umount(context, draft, suspect, UMOUNT_RISK);
    let ended = suspect.standing.map(Standing::ended);
    if ended.is_some_and(|ended| context.when(said.at) <= ended) {
        restart(context, draft, ONCE_THERE);
        draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "kubelet counts the volume as not mounted");
        return;
    }
    draft.advice(
        "restore what kubelet's error names as missing: the secret, the ConfigMap, the claim or \
         the driver. kubelet then mounts the volume, and unmounts it",
        "low",
    );
    draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "kubelet tries to mount the volume");
}

/// kubelet says that the volume is attached, which it says only of a volume that it does not count as mounted.
fn is_only_attached(
    context: &Context<'_>,
    draft: &mut Draft,
    suspect: &Suspect<'_>,
    (since, said): (Monotonic, &Said),
) {
    let log = || Source::Log(said.source.clone());
    let fact = format!(
        "kubelet counts the volume as attached and not as mounted: at {:.0} it logged `{}`",
        said.at, said.text
    );
    draft.fact_since(fact, log(), since);
    draft.fact_since(
        "since then, kubelet has neither mounted nor unmounted the volume, nor failed to",
        log(),
        since,
    );
    draft.explanation = "The volume is mounted, but kubelet counts it only as attached: kubelet \
        was restarted, and the pod's volumes were removed from its list before it had found this \
        mount again. kubelet unmounts only volumes that it counts as mounted, so it never unmounts \
        this one, and the pod waits for it."
        .into();
    umount(context, draft, suspect, UMOUNT_RISK);
    restart(
        context,
        draft,
        "low: containers keep running, and kubelet searches for the pod's volumes again",
    );
    // As long as a silence of kubelet must last that has no message before it.
    if suspect.at.since(since) < suspect.threshold {
        draft.doubt("whether kubelet's volume manager runs: it may wait for another volume");
    }
    draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "kubelet counts the volume as not mounted");
}

fn restart(context: &Context<'_>, draft: &mut Draft, risk: &str) {
    let unit = context.sample.and_then(|sample| unit::of(sample.kubelet_group.as_deref()?));
    draft.remedies.push(unit::restart_of("kubelet", unit, risk));
}

/// kubelet has not found the volume again after its start.
fn gave_up(context: &Context<'_>, draft: &mut Draft, suspect: &Suspect<'_>) {
    draft.explanation = "kubelet was started after the pod's containers had ended, and does not \
        know this volume: at its start, kubelet finds volumes by their directories, and drops a \
        volume whose plugin, secret or claim is missing at that moment. So kubelet waits for a \
        volume that it never unmounts."
        .into();
    restart(context, draft, ONCE_THERE);
    umount(context, draft, suspect, UMOUNT_RISK);
    draft.rule_out(ids::UNMOUNT_NOT_ATTEMPTED, "kubelet was started after the pod's end");
}
