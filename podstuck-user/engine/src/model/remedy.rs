//! Ways out, as they are printed.

use serde::Serialize;

use super::{identity::Pod, path::shell_word};

/// One way out, never run by the tool itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Whether it can be run.
    pub kind: RemedyKind,
    /// A shell command, its arguments quoted; `None` for advice.
    pub command: Option<String>,
    /// What to do where no command does it; `None` for a command.
    pub advice: Option<String>,
    /// What it may break.
    pub risk: String,
    /// Where it is run; `None` for advice.
    #[serde(rename = "where")]
    pub place: Option<Place>,
    /// What the command checks before it acts, since it may be run long after it was printed.
    pub guard: Option<String>,
    /// Who else is hit.
    pub affects: Vec<String>,
    /// A command that succeeds once it has worked.
    pub verify: Option<String>,
}

/// Whether a way out can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RemedyKind {
    /// As it is printed.
    Command,
    /// Somebody must decide or do something.
    Advice,
}

/// Where a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// On the node, as root.
    Node,
    /// Where kubectl is.
    Kubectl,
}

impl Place {
    /// By the program.
    pub fn of(command: &str) -> Self {
        if command.starts_with("kubectl ") { Self::Kubectl } else { Self::Node }
    }
}

impl Remedy {
    /// A command, and what it may break.
    pub fn command(command: impl Into<String>, risk: impl Into<String>) -> Self {
        let command = command.into();
        Self {
            kind: RemedyKind::Command,
            place: Some(Place::of(&command)),
            command: Some(command),
            advice: None,
            risk: risk.into(),
            guard: None,
            affects: Vec::new(),
            verify: None,
        }
    }

    /// What no command does, and what it may break.
    pub fn advice(advice: impl Into<String>, risk: impl Into<String>) -> Self {
        Self {
            kind: RemedyKind::Advice,
            advice: Some(advice.into()),
            command: None,
            place: None,
            ..Self::command("", risk)
        }
    }

    /// Whether it changes nothing, and only shows something.
    pub fn only_looks(&self) -> bool {
        ["none", "none;", "none:", "none,"].contains(&self.risk.split(' ').next().unwrap_or(""))
    }

    /// With a look at whether the pod is gone, where it has no nearer one. kubelet may take two minutes to
    /// its next attempt.
    pub(crate) fn followed(mut self, pod: Option<&Pod>) -> Self {
        let acts = self.kind == RemedyKind::Command && !self.only_looks();
        let named = pod.and_then(|pod| pod.namespace.as_ref().zip(pod.name.as_ref()));
        if let (true, None, Some((namespace, name))) = (acts, &self.verify, named) {
            let (namespace, name) = (shell_word(namespace.as_ref()), shell_word(name.as_ref()));
            self.verify = Some(format!(
                "kubectl --namespace {namespace} wait --for=delete pod/{name} --timeout=150s"
            ));
        }
        self
    }

    /// The command or the advice.
    pub fn words(&self) -> &str {
        self.command.as_deref().or(self.advice.as_deref()).unwrap_or_default()
    }

    /// Names somebody else who is hit.
    pub fn affects(&mut self, whom: impl Into<String>) -> &mut Self {
        self.affects.push(whom.into());
        self
    }
}
