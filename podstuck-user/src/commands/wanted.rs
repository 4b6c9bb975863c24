//! What the command line restricts a run to.

use anyhow::anyhow;
use podstuck_common::component::{name_hash, path_hash};

use crate::{
    cli::Target,
    identity::{PodNames, wanted::PodTraces},
    model::{identity::Pod, path::safe_path},
    scope::Scope,
    state::show_roots::resolve_what_answers,
};

/// What the run is restricted to, as the probes compare it.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) pod: u64,
    pub(super) path: u64,
    pub(super) text: Option<String>,
    pub(super) who: Option<Pod>,
    pub(super) scope: Scope,
}

impl Wanted {
    /// Says who the pod is, as far as that is known.
    pub(super) fn name(&mut self, names: &mut PodNames) {
        let Some(who) = &mut self.who else { return };
        (who.namespace, who.name) = names.lookup(&who.uid).unzip();
        let uid = &who.uid;
        self.text = Some(match (&who.namespace, &who.name, names.source(uid)) {
            (Some(namespace), Some(name), Some(source)) => {
                format!("pod {namespace}/{name} ({uid}, by {source})")
            }
            _ => format!("pod {uid}"),
        });
    }

    /// Whether pods in question have no name yet.
    pub(super) fn needs_names(&self, places: &PodTraces<'_>, names: &mut PodNames) -> bool {
        match &self.who {
            Some(who) => names.lookup(&who.uid).is_none(),
            None => places.uids().any(|uid| names.lookup(uid).is_none()),
        }
    }
}

/// What the command line names.
///
/// # Errors
/// Fails when this node has no such pod, and for a path that is not absolute.
pub(super) fn wanted(
    target: &Target,
    places: &PodTraces<'_>,
    names: &mut PodNames,
) -> anyhow::Result<Wanted> {
    let host_root = places.host_root;
    let uid = match (&target.pod_uid, &target.pod) {
        (Some(uid), _) => Some(places.by_uid(uid, names)?),
        (None, Some(name)) => Some(places.by_name(name, names)?),
        (None, None) => None,
    };
    if let Some(uid) = uid {
        let pod = name_hash(uid.as_bytes());
        let scope = Scope { pod: Some(uid.clone()), path: None };
        let who = Some(Pod { uid, namespace: None, name: None });
        let mut wanted = Wanted { pod, path: 0, text: None, who, scope };
        wanted.name(names);
        return Ok(wanted);
    }
    let Some(path) = &target.path else { return Ok(Wanted::default()) };
    if !path.is_absolute() {
        return Err(anyhow!("--path {}: must be absolute", safe_path(path)));
    }
    // What calls name is told without symbolic links.
    let path = resolve_what_answers(host_root, path);
    let hash = path_hash(path.as_os_str().as_encoded_bytes());
    let text = Some(format!("directory {}", safe_path(&path)));
    let scope = Scope { pod: None, path: Some(path) };
    Ok(Wanted { path: hash, pod: 0, text, who: None, scope })
}
