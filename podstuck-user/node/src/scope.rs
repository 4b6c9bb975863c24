//! What a run is restricted to.

use std::path::{Path, PathBuf};

use podstuck_model::identity::Target;

/// What a run is restricted to, for what no probe has filtered.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// UID of the pod.
    pub pod: Option<String>,
    /// Id of the container.
    pub container: Option<String>,
    /// The directory.
    pub path: Option<PathBuf>,
}

impl Scope {
    /// Whether all of a pod is of interest.
    pub fn includes_pod(&self, uid: &str) -> bool {
        let whole = self.path.is_none() && self.container.is_none();
        whole && self.pod.as_deref().is_none_or(|wanted| wanted == uid)
    }

    /// Whether something of this target, at this path if it has one, is of interest.
    pub fn includes(&self, target: &Target, path: Option<&Path>) -> bool {
        let uid = target.pod.as_ref().map(|pod| &pod.uid);
        self.pod.as_ref().is_none_or(|wanted| uid == Some(wanted))
            && self.includes_container(target)
            && self.path.as_ref().is_none_or(|top| path.is_some_and(|path| path.starts_with(top)))
    }
}

impl Scope {
    /// Whether a target is of the container of interest, or no container is.
    pub fn includes_container(&self, target: &Target) -> bool {
        self.container.as_ref().is_none_or(|wanted| target.container.as_ref() == Some(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podstuck_model::identity::Pod;

    #[test]
    fn a_restricted_run_tells_its_own_only() {
        let of = |uid: &str| Target {
            pod: Some(Pod { uid: uid.into(), namespace: None, name: None }),
            ..Target::unknown()
        };
        let scope = Scope { pod: Some("a".into()), ..Scope::default() };
        assert!(scope.includes(&of("a"), None) && !scope.includes(&of("b"), None));
        assert!(!scope.includes(&Target::unknown(), None));
        assert!(scope.includes_pod("a") && !scope.includes_pod("b"));
        let scope = Scope { path: Some("/v".into()), ..Scope::default() };
        assert!(scope.includes(&of("b"), Some(Path::new("/v/x"))));
        assert!(
            !scope.includes(&of("b"), Some(Path::new("/w"))) && !scope.includes(&of("b"), None)
        );
        assert!(!scope.includes_pod("b"), "not all of it");
        assert!(Scope::default().includes(&of("b"), None));
        let scope = Scope { container: Some("c".into()), ..Scope::default() };
        let of_container = Target { container: Some("c".into()), ..Target::unknown() };
        assert!(scope.includes(&of_container, None) && !scope.includes(&of("a"), None));
        assert!(!scope.includes_pod("a"), "not all of it");
    }
}
