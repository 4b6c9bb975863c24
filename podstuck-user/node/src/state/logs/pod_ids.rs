//! Maps containers and sandboxes to pods, by the logs: containerd logs the id when it creates one, kubelet when one
//! starts or ends. An id is believed only where the daemon itself writes it: a pod's names and commands can contain
//! any text.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use regex::Regex;

use super::fixed;
use crate::identity::uid::is_pod_uid;

/// Most containers and sandboxes remembered; a log of the size that is read names fewer.
const REMEMBERED: usize = 1 << 14;

static SANDBOX: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^RunPodSandbox for &PodSandboxMetadata\{Name:[a-z0-9.-]+,Uid:([0-9a-f-]+),Namespace:[a-z0-9-]+,",
        r#"Attempt:\d+,\} returns sandbox id "([0-9a-f]{64})"$"#
    ))
});
/// Since containerd 2.1, whose protobuf library writes two spaces or one, at random.
static SANDBOX_2: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^RunPodSandbox for name:"[a-z0-9.-]+" +uid:"([0-9a-f-]+)" +namespace:"[a-z0-9-]+"(?: +attempt:\d+)? +"#,
        r#"returns sandbox id "([0-9a-f]{64})"$"#
    ))
});
static CONTAINER_2: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^CreateContainer within sandbox "([0-9a-f]{64})" for name:"[a-z0-9-]+"(?: +attempt:\d+)? +"#,
        r#"returns container id "([0-9a-f]{64})"$"#
    ))
});
static CONTAINER: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^CreateContainer within sandbox "([0-9a-f]{64})" for &ContainerMetadata\{Name:[a-z0-9-]+,"#,
        r#"Attempt:\d+,\} returns container id "([0-9a-f]{64})"$"#
    ))
});
/// kubelet's event, in the form of each version.
static EVENT: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^(?:"SyncLoop \(PLEG\): event for pod" pod="[^"\\]*" event=&?\{|"#,
        r#"SyncLoop \(PLEG\): "[^"\\]*", event: &pleg\.PodLifecycleEvent\{)"#,
        r#""?ID"?:"?([0-9a-f-]+)"?,? ?"?Type"?:"?[A-Za-z]+"?,? ?"?Data"?:"?([0-9a-f]{64})"?\}"#
    ))
});
static KILLING: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"^"Killing container with a grace period" pod="[^"\\]*" podUID="?([0-9a-f-]+)"? "#,
        r#"containerName="[^"\\]*" containerID="[a-z-]+://([0-9a-f]{64})"(?: gracePeriod=([0-9]+)$)?"#
    ))
});

/// Pods by the id of a container or a sandbox.
#[derive(Debug, Default)]
pub(super) struct PodIds {
    pods: HashMap<String, String>,
    /// Container id to sandbox id.
    sandboxes: HashMap<String, String>,
}

impl PodIds {
    /// Starts with ids and UIDs that are known already.
    pub(super) fn new(known: Vec<(String, String)>) -> Self {
        Self { pods: known.into_iter().collect(), sandboxes: HashMap::new() }
    }

    /// Takes a message of containerd's.
    pub(super) fn listen_to_containerd(&mut self, message: &str) {
        let either = |forms: [&Regex; 2]| forms.into_iter().find_map(|form| form.captures(message));
        if let Some(found) = either([&SANDBOX, &SANDBOX_2]) {
            self.learn(&found[1], &found[2]);
        } else if let Some(found) = either([&CONTAINER, &CONTAINER_2])
            && self.sandboxes.len() < REMEMBERED
        {
            self.sandboxes.insert(found[2].to_owned(), found[1].to_owned());
        }
    }

    /// Takes a message of kubelet's.
    pub(super) fn listen_to_kubelet(&mut self, message: &str) {
        for form in [&*EVENT, &*KILLING] {
            if let Some(found) = form.captures(message) {
                self.learn(&found[1], &found[2]);
            }
        }
    }

    /// UID of the pod, if kubelet logs that it stops one of its containers, and the grace period in seconds.
    pub(super) fn killing(message: &str) -> Option<(String, Option<u64>)> {
        let found = KILLING.captures(message)?;
        let (uid, grace_s) = (found[1].to_owned(), found.get(3));
        let grace_s = grace_s.and_then(|grace_s| grace_s.as_str().parse().ok());
        is_pod_uid(uid.as_bytes()).then_some((uid, grace_s))
    }

    fn learn(&mut self, uid: &str, id: &str) {
        if is_pod_uid(uid.as_bytes()) && self.pods.len() < REMEMBERED {
            self.pods.insert(id.to_owned(), uid.to_owned());
        }
    }

    /// Adds what the runtimes' files say.
    pub(super) fn extend(&mut self, found: HashMap<String, String>) {
        self.pods.extend(found);
    }

    /// UID of the pod.
    pub(super) fn pod(&self, id: &str) -> Option<&str> {
        let of_sandbox = || self.pods.get(self.sandboxes.get(id)?);
        self.pods.get(id).or_else(of_sandbox).map(String::as_str)
    }

    /// The ids whose pod is not known.
    pub(super) fn unknown<'a>(&self, ids: impl Iterator<Item = &'a str>) -> HashSet<String> {
        ids.filter(|id| self.pod(id).is_none()).map(str::to_owned).collect()
    }

    /// At most `most` of the ids whose UID was logged.
    pub(super) fn some(&self, most: usize) -> Vec<(String, String)> {
        self.pods.iter().take(most).map(|(id, uid)| (id.clone(), uid.clone())).collect()
    }

    /// All ids whose pod is known, with its UID.
    pub(super) fn into_known(self) -> Vec<(String, String)> {
        let of_sandbox = |(id, sandbox)| Some((id, self.pods.get(&sandbox)?.clone()));
        let mut known: Vec<_> = self.sandboxes.into_iter().filter_map(of_sandbox).collect();
        known.extend(self.pods);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f0e0d0c-1111-4222-8333-444455556666";

    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn kubelet_names_the_grace_period_that_it_gives_the_runtime() {
        let line = format!(
            "\"Killing container with a grace period\" pod=\"a/b\" podUID={UID} containerName=\"c\" \
             containerID=\"containerd://{}\"",
            id('a')
        );
        assert_eq!(PodIds::killing(&line), Some((UID.into(), None)));
        let line = format!("{line} gracePeriod=60");
        assert_eq!(PodIds::killing(&line), Some((UID.into(), Some(60))));
    }

    #[test]
    fn ids_are_learnt_from_containerd_and_kubelet() {
        let mut ids = PodIds::default();
        ids.listen_to_containerd(&format!(
            "RunPodSandbox for &PodSandboxMetadata{{Name:web-0,Uid:{UID},Namespace:shop,Attempt:0,}} returns \
             sandbox id \"{}\"",
            id('a')
        ));
        ids.listen_to_containerd(&format!(
            "CreateContainer within sandbox \"{}\" for &ContainerMetadata{{Name:main,Attempt:0,}} returns \
             container id \"{}\"",
            id('a'),
            id('b')
        ));
        let forms = [
            format!(
                "\"SyncLoop (PLEG): event for pod\" pod=\"a/b\" event={{\"ID\":\"{UID}\",\"Type\":\"ContainerDied\",\"Data\":\"{}\"}}",
                id('c')
            ),
            format!(
                "\"SyncLoop (PLEG): event for pod\" pod=\"a/b\" event=&{{ID:{UID} Type:ContainerDied Data:{}}}",
                id('d')
            ),
            format!(
                "SyncLoop (PLEG): \"b_a({UID})\", event: &pleg.PodLifecycleEvent{{ID:\"{UID}\", Type:\"ContainerDied\", Data:\"{}\"}}",
                id('e')
            ),
            format!(
                "\"Killing container with a grace period\" pod=\"a/b\" podUID=\"{UID}\" containerName=\"main\" containerID=\"containerd://{}\" gracePeriod=2",
                id('f')
            ),
        ];
        forms.iter().for_each(|line| ids.listen_to_kubelet(line));
        // As containerd 2.4 wrote them.
        ids.listen_to_containerd(&format!(
            "RunPodSandbox for name:\"web-0\"  uid:\"{UID}\"  namespace:\"shop\" returns sandbox id \"{}\"",
            id('7')
        ));
        ids.listen_to_containerd(&format!(
            "CreateContainer within sandbox \"{}\" for name:\"main\" attempt:1 returns container id \"{}\"",
            id('7'),
            id('8')
        ));
        for digit in ['a', 'b', 'c', 'd', 'e', 'f', '7', '8'] {
            assert_eq!(ids.pod(&id(digit)), Some(UID), "{digit}");
        }
        assert_eq!(ids.unknown([id('a'), id('1')].iter().map(String::as_str)), [id('1')].into());
    }

    #[test]
    fn text_that_others_choose_maps_no_id() {
        let mut ids = PodIds::default();
        let made = format!("returns sandbox id \"{}\"", id('a'));
        let metadata = format!("&PodSandboxMetadata{{Name:x,Uid:{UID},Namespace:y,Attempt:0,}}");
        for message in [
            format!("ExecSync for \"x\" with command [RunPodSandbox for {metadata} {made}]"),
            format!("RunPodSandbox for {metadata} {made} and more"),
            format!(
                "RunPodSandbox for name:\"a\\\" uid:\\\"b\" uid:\"{UID}\" namespace:\"y\" {made}"
            ),
            format!(
                "RunPodSandbox for &PodSandboxMetadata{{Name:a b,Uid:{UID},Namespace:y,Attempt:0,}} {made}"
            ),
            format!(
                "RunPodSandbox for &PodSandboxMetadata{{Name:x,Uid:0-0,Namespace:y,Attempt:0,}} {made}"
            ),
        ] {
            ids.listen_to_containerd(&message);
            ids.listen_to_kubelet(&message);
        }
        assert_eq!(ids.pod(&id('a')), None);
    }
}
