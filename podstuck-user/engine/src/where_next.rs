//! Further checks, if no finding is firm.

use crate::model::{
    container::{ContainerProgress, ContainerStage},
    diagnosis::{PodStage, Stage},
    identity::Pod,
    path::safe,
    said::Said,
    shell::is_object_name,
};

/// What is already known and needs no check.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known<'a> {
    /// The pod in question.
    pub(crate) pod: Option<&'a Pod>,
    /// The CSI drivers of its remaining volumes; an empty name if vol_data.json does not have it.
    pub(crate) drivers: &'a [String],
    /// Whether its record was read.
    pub(crate) is_record_read: bool,
    /// The API server that was asked, or why it did not answer; `None` if none was asked.
    pub(crate) api: Option<&'a str>,
    /// The last complaint about it in a log.
    pub(crate) complaint: Option<&'a Said>,
    /// Whether its containers run, and nothing says that they must end.
    pub(crate) may_be_to_stay: bool,
    /// Whether it was removed during the run.
    pub(crate) has_gone: bool,
    /// Whether it waits inside kubelet, so that neither the runtime nor a driver needs a check.
    pub(crate) is_kubelets: bool,
    /// Whether watching longer would show nothing more.
    pub(crate) is_exhausted: bool,
}

fn complaint(said: &Said) -> String {
    let [source, text] = [&said.source, &said.text].map(|text| safe(text.as_bytes()));
    format!("{source}: {text}")
}

/// What only the record shows, and how to pass it to podstuck.
fn record(known: Known<'_>) -> String {
    let Some(Pod { uid, namespace, name }) = known.pod else {
        return "the pod's record: `kubectl get pod NAME -o json`: is there a deletionTimestamp, and has it \
                passed? Are there finalizers? Then the controller that set them must remove them; no \
                component on this node does"
            .into();
    };
    let why = known.api.map_or_else(
        || "the API server was not asked".to_owned(),
        |api| safe(api.as_bytes()).into_owned(),
    );
    let what = format!(
        "the pod's record, which this node does not have ({why}): whether the pod's deletion was requested, and \
         which finalizers keep it."
    );
    match (namespace, name) {
        (Some(namespace), Some(name)) if is_object_name(namespace) && is_object_name(name) => {
            format!(
                "{what} `kubectl -n {namespace} get pod {name} -o json | podstuck diagnose --pod-json -` passes it to \
             podstuck"
            )
        }
        _ if is_object_name(uid) => format!(
            "{what} `kubectl get pods -A -o custom-columns=:.metadata.namespace,:.metadata.name,:.metadata.uid | \
             grep {uid}` shows whether the record exists"
        ),
        _ => what,
    }
}

/// Further checks, if no cause is firm. Kubernetes' own records show what no system call does.
pub(crate) fn of_pods(stages: &[PodStage], known: Known<'_>) -> Vec<String> {
    let has = |stage| stages.iter().any(|pod| pod.stage == stage);
    // A component's complaint names the culprit, or a component that knows it.
    let mut next: Vec<String> = known.complaint.map(complaint).into_iter().collect();
    let record = (!known.is_record_read).then(|| record(known));
    // For a pod that is stuck in its volumes, the record says only that it is being deleted.
    let (first, last) = match has(Stage::Containers) || has(Stage::Volumes) {
        true if !known.may_be_to_stay => (None, record),
        _ => (record, None),
    };
    next.extend(first);
    if known.has_gone {
        return next;
    }
    if has(Stage::Containers) && !known.is_kubelets {
        next.push(
            "the runtime: `crictl ps --pod ID`, `crictl inspect`, and its log: a stop that times \
             out (`StopContainer ... DeadlineExceeded`), a shim that does not answer, a CNI plugin \
             that fails"
                .into(),
        );
    }
    if has(Stage::Volumes) && !known.is_kubelets {
        let logs = known.drivers.iter().map(|name| match name.as_str() {
            "" => ", and the CSI driver's log for NodeUnpublishVolume".to_owned(),
            name => format!(", and the log of the CSI driver {name} for NodeUnpublishVolume"),
        });
        next.push(format!(
            "kubelet's log, for the pod's UID: `UnmountVolume.TearDown failed` with its durationBeforeRetry{}",
            logs.collect::<String>()
        ));
    }
    let is_ended = has(Stage::Directories) || has(Stage::Gone) || stages.is_empty();
    if is_ended && !known.is_kubelets {
        next.push(
            "kubelet itself: is it running and connected to the API server (`journalctl -u \
             kubelet`: `Failed to update status`, expired certificates)? A webhook may refuse the \
             update"
                .into(),
        );
    }
    if has(Stage::Api) {
        next.push(
            "kubelet's log: kubelet deletes the record when the pod has ended, and logs why that \
             fails (`journalctl -u kubelet`: `Failed to delete status for pod`, `Failed to update status for \
             pod`, `Unauthorized`). An admission webhook may refuse the deletion (`kubectl get \
             validatingwebhookconfigurations,mutatingwebhookconfigurations`); and while kubelet cannot reach \
             the API server, the record stays"
                .into(),
        );
        next.push(
            "the record again: it may have been deleted since it was read. `kubectl get pod NAME -o \
             jsonpath='{.metadata.uid}'` shows whether the pod of that name has another UID now"
                .into(),
        );
        return next;
    }
    next.extend(last);
    if known.is_exhausted {
        return next;
    }
    next.push(
        "a longer run of podstuck: kubelet's retries are up to 122 seconds apart, and an attempt that \
         fails shows the most"
            .into(),
    );
    next
}

/// The same for a container that belongs to no pod: only its runtime knows whether it is being removed.
pub(crate) fn of_container(containers: &[ContainerProgress]) -> Vec<String> {
    if containers.iter().all(|it| it.stage == ContainerStage::Gone) {
        return Vec::new();
    }
    vec![
        "another attempt while podstuck runs: runtimes do not retry the removal of a container that belongs to no \
         pod, and an attempt that fails shows the most"
            .into(),
        "the runtime's log, for the container's id (`journalctl -u docker`, `journalctl -u containerd`): it shows why an \
         earlier attempt failed"
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::{container::ContainerName, identity::Component};

    #[test]
    fn of_a_container_its_runtime_is_asked_and_no_pods_record() {
        let at = |stage| ContainerProgress {
            container: ContainerName { id: "c".into(), name: None, pod: None },
            stage,
            fact: String::new(),
        };
        let next = of_container(&[at(ContainerStage::Layer)]);
        assert!(next.len() == 2 && next.iter().all(|it| !it.contains("kube")), "{next:?}");
        assert!(of_container(&[at(ContainerStage::Gone)]).is_empty());
    }

    /// kubernetes#114546: an NFS volume has no CSI driver.
    #[test]
    fn a_drivers_log_is_named_where_a_volume_has_a_driver() {
        let pod = Pod { uid: "u".into(), namespace: None, name: None };
        let stages = [PodStage::new(pod, Stage::Volumes, "")];
        let next = |drivers: &[String]| {
            of_pods(&stages, Known { drivers, is_record_read: true, ..Known::default() }).remove(0)
        };
        assert!(next(&[]).ends_with("durationBeforeRetry"), "{}", next(&[]));
        assert!(
            next(&["ebs.csi.aws.com".into()]).contains("the log of the CSI driver ebs.csi.aws.com")
        );
        assert!(next(&[String::new()]).contains("the CSI driver's log"));
    }

    #[test]
    fn what_was_read_is_not_asked_for_and_a_log_comes_first() {
        let pod = Pod { uid: "u".into(), namespace: Some("shop".into()), name: Some("a".into()) };
        let at = |stage| [PodStage::new(pod.clone(), stage, "")];
        let asks = |next: &[String]| next.iter().position(|it| it.contains("pod's record"));
        let known = Known { pod: Some(&pod), api: Some("no answer: x"), ..Known::default() };
        for (stage, place) in
            [(Stage::Gone, Some(0)), (Stage::Directories, Some(0)), (Stage::Volumes, Some(1))]
        {
            assert_eq!(asks(&of_pods(&at(stage), known)), place, "{stage:?}");
            let read = Known { is_record_read: true, ..known };
            assert_eq!(asks(&of_pods(&at(stage), read)), None, "{stage:?}");
        }
        let running = Known { may_be_to_stay: true, ..known };
        assert_eq!(asks(&of_pods(&at(Stage::Containers), running)), Some(0));
        assert_eq!(asks(&of_pods(&at(Stage::Containers), known)), Some(1));
        let said =
            Said::new(Component::Kubelet, "a log", "u", Timestamp::UNIX_EPOCH, "cannot\u{1b}");
        let complained = Known { complaint: Some(&said), ..known };
        assert_eq!(of_pods(&at(Stage::Gone), complained)[0], "a log: cannot\\x1b");
        let kubelets = Known { is_record_read: true, is_kubelets: true, ..known };
        assert_eq!(of_pods(&at(Stage::Containers), kubelets).len(), 1, "a longer run");
        let gone = Known { has_gone: true, ..known };
        assert_eq!(of_pods(&at(Stage::Gone), gone).len(), 1);
    }
}
