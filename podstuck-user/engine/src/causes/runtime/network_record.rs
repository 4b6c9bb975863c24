//! A runtime that fails at its own record of a sandbox's network, before it runs a CNI plugin.

use crate::{
    causes::runtime::{suspect::Suspect, verdict},
    command::{Step, docker_rm},
    ids,
    model::chain::Who,
    model::said::container_id,
    verdict::Draft,
};

const MUST: &str = "tear down the sandbox's network";
const DOCKER: &str = "dockershim (a part of kubelet) or cri-dockerd";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The file in which libcni keeps the result of the plugins has no content, as after a crash of the node.
    EmptyResult,
    /// libcni's results of two networks have the same interface, such as those of Multus and of its delegate; CRI-O
    /// takes the sandbox's networks from them.
    SameInterface,
    /// dockershim or cri-dockerd has no checkpoint of the sandbox, as after a change from one to the other.
    NoCheckpoint,
    /// dockershim or cri-dockerd has a checkpoint of a sandbox whose container Docker does not have.
    NoContainer,
    /// The network's configuration has no `cniVersion`.
    NoVersion,
}

impl Fault {
    pub(super) fn of(text: &str) -> Option<Self> {
        let has = |words: &str| text.contains(words);
        if has("cached result") && has("unexpected end of JSON input") {
            Some(Self::EmptyResult)
        } else if has("requested interface name") && has("already assigned") {
            Some(Self::SameInterface)
        } else if has("could not retrieve port mappings") || has("checkpoint is not found") {
            Some(Self::NoCheckpoint)
        } else if has("CNI failed to retrieve network namespace path") && has("No such container") {
            Some(Self::NoContainer)
        } else if NO_VERSION.iter().any(|words| has(words)) {
            Some(Self::NoVersion)
        } else {
            None
        }
    }

    fn why(&self) -> &'static str {
        match self {
            Self::EmptyResult => {
                "the file with the result of the network's set-up, which the runtime reads before, is empty"
            }
            Self::SameInterface => {
                "the files with the results of the network's set-up, which the runtime reads before, give the same \
                 interface to two networks. Multus 3.7 and later leaves such a file for itself and one for its delegate"
            }
            Self::NoCheckpoint => {
                "the runtime has no checkpoint of the sandbox, as after a change of the runtime"
            }
            Self::NoContainer => {
                "the runtime has a checkpoint of the sandbox, and looks for the network namespace of the sandbox's \
                 container, which Docker does not have"
            }
            Self::NoVersion => {
                "the network's configuration has no `cniVersion`; older versions of libcni did without"
            }
        }
    }

    /// Fills in the finding.
    pub(super) fn words(&self, draft: &mut Draft, suspect: &Suspect<'_>) {
        match self {
            Self::NoContainer => dockershim_must(draft),
            Self::NoVersion if suspect.logged.said.text.contains("etworkPlugin cni failed") => {
                dockershim_must(draft);
            }
            _ => verdict::must_act(draft, suspect, MUST),
        }
        verdict::processes(draft, suspect);
        draft.explanation = format!(
            "The runtime cannot stop the pod's sandbox. It fails before it runs the CNI plugin: {}. kubelet retries, and \
             keeps the pod until that succeeds.",
            self.why()
        );
        if let Some((step, risk)) = self.command(suspect) {
            draft.remedy(step, risk);
        }
        if *self == Self::SameInterface {
            draft.advice(
                "of the files that are listed for one interface, keep the one whose name begins with the network that \
                 the first file of /etc/cni/net.d names, and remove the other: the runtime then runs the plugin",
                "low: that network's plugin calls the other one (its delegate) itself, without its earlier result",
            );
        }
        if *self == Self::NoVersion {
            draft.advice(
                "add to that file the version that the network's plugins know, such as `\"cniVersion\": \"0.3.1\"`: the runtime \
                 reads it again, and kubelet's next attempt succeeds",
                "low: pods that start later use that file, too",
            );
        }
        draft.rule_out(
            ids::SHIM_OR_CONTAINERD_STATE_LOST,
            "the error is about the sandbox's network, and no container is to be stopped",
        );
        draft.rule_out(ids::NETNS_BUSY, "the runtime fails before any mount is removed");
        draft.rule_out(ids::RUNTIME_COMMAND_HUNG, "the runtime runs no plugin");
        draft.doubt("whether the runtime still fails: the log shows only past attempts");
    }

    /// Removes the record, or what it is about, or lists the records of which one must go.
    fn command(&self, suspect: &Suspect<'_>) -> Option<(Step, &'static str)> {
        match self {
            Self::EmptyResult => {
                let sandbox = suspect.container()?;
                let remove = remove_empty(&format!("*-{sandbox}-*"));
                Some((
                    Step::new(
                        "remove the empty file with the result of the sandbox's network",
                        remove,
                    ),
                    "low: an empty file has nothing to lose; the runtime then runs the plugin without that result",
                ))
            }
            Self::SameInterface => {
                let sandbox = suspect.container()?;
                let find = format!("find /var/lib/cni -type f -name '*-{sandbox}-*' -ls");
                Some((Step::new("list the results of the sandbox's networks", find), "none"))
            }
            Self::NoVersion => {
                let find = "find /etc/cni/net.d -maxdepth 1 -name '*.conf*' -exec grep -L '\"cniVersion\"' {} +";
                Some((
                    Step::new("list the configurations of networks without a version", find),
                    "none",
                ))
            }
            Self::NoCheckpoint => {
                const DOES: &str =
                    "remove the pod's containers that have ended, the sandbox's among them";
                const RISK: &str = "low: Docker removes no container that runs. The plugin is not run, so that the pod's \
                    address may stay allocated";
                Some((docker_rm(DOES, &suspect.pod.uid, None)?, RISK))
            }
            Self::NoContainer => {
                let text = &suspect.logged.said.text;
                let sandbox = container_id(text.rsplit_once("No such container: ")?.1)?;
                let files = ["dockershim", "cri-dockerd"]
                    .map(|it| format!("/var/lib/{it}/sandbox/{sandbox}"));
                let step = Step::new(
                    "remove the checkpoint of a sandbox that Docker does not have",
                    format!("rm -f {}", files.join(" ")),
                );
                let is_gone = format!(
                    "docker version >/dev/null && [ -z \"$(docker ps --all --quiet --filter id={sandbox})\" ]"
                );
                Some((
                    step.only_if(
                        is_gone,
                        "the Docker that this shell uses answers, and has no such container".into(),
                    ),
                    "low: kubelet then does not list the sandbox any more. The plugin is not run, so that the pod's \
                     address may stay allocated",
                ))
            }
        }
    }
}

/// libcni's errors without a version (pkg/version, `ParseVersion`), the newer first.
const NO_VERSION: [&str; 2] = ["the version is empty", "failed to convert major version part "];

fn dockershim_must(draft: &mut Draft) {
    draft.held_by(Who::component(DOCKER, None));
    draft.must = Some(MUST);
}

/// Removes the files of CNI plugins and of libcni that have this name and no content. The name is an ID between
/// wildcards.
pub(super) fn remove_empty(name: &str) -> String {
    format!("find /var/lib/cni -type f -empty -name '{name}' -print -delete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_runtimes_own_is_told_from_the_plugins() {
        let table = [
            // containerd 8197
            (
                "failed to get network \"aws-cni\" cached result: decoding version from network config: unexpected end \
                 of JSON input",
                Fault::EmptyResult,
            ),
            // multus-cni 669
            (
                "network \"multus-cni-network\" requested interface name \"eth0\" already assigned",
                Fault::SameInterface,
            ),
            // rancher 38270
            (
                "failed to teardown pod \"a_b\" network: could not retrieve port mappings: key is not found",
                Fault::NoCheckpoint,
            ),
            // kubernetes 44307
            (
                "failed to teardown pod \"a_b\" network: CNI failed to retrieve network namespace path: Error: No such \
                 container: 339da541c2da",
                Fault::NoContainer,
            ),
            // kubernetes 97956
            (
                "networkPlugin cni failed to teardown pod \"a_b\" network: invalid version \"\": the version is empty",
                Fault::NoVersion,
            ),
        ];
        for (text, fault) in table {
            assert_eq!(Fault::of(text), Some(fault), "{text}");
        }
        assert_eq!(Fault::of("netplugin failed: unexpected end of JSON input"), None);
    }
}
