//! The restriction of a run by the command line.

use std::sync::Arc;

use anyhow::anyhow;
use podstuck_common::component::{name_hash, path_hash};

use crate::{
    cli::Target,
    model::{
        container::ContainerName,
        identity::Pod,
        path::{safe, safe_path},
    },
};
use podstuck_node::{
    identity::{
        PodNames,
        containers::{Container, Containers},
        wanted::PodTraces,
    },
    scope::Scope,
    state::{anywhere::is_nowhere, sample::containers::OnNode, show_roots::resolve_what_answers},
};
use podstuck_show::present::words;

/// The restriction of the run, as the probes compare it.
#[derive(Default)]
pub(super) struct Wanted {
    pub(crate) pod: u64,
    pub(crate) path: u64,
    pub(crate) text: Option<String>,
    pub(crate) who: Option<Pod>,
    pub(crate) container: Option<ContainerName>,
    pub(crate) scope: Scope,
}

impl Wanted {
    /// Names the pod, if its name is known.
    pub(crate) fn name(&mut self, names: &mut PodNames) {
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

/// Resolves the target on the command line.
///
/// # Errors
/// Fails when this node has no such pod, container or path, and for a path that is not absolute.
pub(super) fn wanted(
    target: &Target,
    places: &PodTraces<'_>,
    names: &mut PodNames,
    containers: &OnNode,
) -> anyhow::Result<Wanted> {
    let host_root = places.host_root;
    let uid = match (&target.pod_uid, &target.pod) {
        (Some(uid), _) => Some(places.by_uid(uid, names)?),
        (None, Some(name)) => Some(places.by_name(name, names)?),
        (None, None) => None,
    };
    if let Some(uid) = uid {
        let pod = name_hash(uid.as_bytes());
        let scope = Scope { pod: Some(uid.clone()), ..Scope::default() };
        let who = Some(Pod { uid, namespace: None, name: None });
        let mut wanted = Wanted { pod, who, scope, ..Wanted::default() };
        wanted.name(names);
        return Ok(wanted);
    }
    if let Some(text) = &target.container {
        return of_container(text, containers);
    }
    let Some(path) = &target.path else { return Ok(Wanted::default()) };
    if !path.is_absolute() {
        return Err(anyhow!("--path {}: must be absolute", safe_path(path)));
    }
    if let Some(others) = is_nowhere(host_root, path) {
        let roots = words::plural(others as u64, "other root directory", "other root directories");
        return Err(anyhow!(
            "--path {}: no such path in the host's file system ({}) or in {roots} of processes. Name the \
             path as the deleting process sees it",
            safe_path(path),
            safe_path(host_root),
        ));
    }
    // The probes report paths of calls without symbolic links.
    let path = resolve_what_answers(host_root, path);
    let hash = path_hash(path.as_os_str().as_encoded_bytes());
    let text = Some(format!("directory {}", safe_path(&path)));
    let scope = Scope { path: Some(path), ..Scope::default() };
    Ok(Wanted { path: hash, text, scope, ..Wanted::default() })
}

/// # Errors
/// Fails when no container matches, and when several do.
fn of_container(text: &str, found: &OnNode) -> anyhow::Result<Wanted> {
    let mut known = Containers::default();
    known.learn(&found.all);
    let [one] = known.find(text).try_into().map_err(|all| not_one(text, all, found))?;
    let container = one.name();
    let id = safe(one.id.as_bytes()).into_owned();
    let mut text = format!("container {id}");
    if let Some(name) = &container.name {
        text.push_str(&format!(" ({name})"));
    }
    match &container.pod {
        Some(Pod { namespace: Some(namespace), name: Some(name), uid }) => {
            text.push_str(&format!(" of pod {namespace}/{name} ({uid})"));
        }
        Some(pod) => text.push_str(&format!(" of pod {}", pod.uid)),
        None => {}
    }
    let scope = Scope { container: Some(one.id.clone()), ..Scope::default() };
    Ok(Wanted { text: Some(text), container: Some(container), scope, ..Wanted::default() })
}

/// Limit of containers in an error.
const LISTED: usize = 8;

fn not_one(text: &str, all: Vec<Arc<Container>>, found: &OnNode) -> anyhow::Error {
    let mut looked: Vec<String> =
        found.looked_in.iter().map(|path| safe_path(path).into_owned()).collect();
    looked.sort();
    looked.dedup();
    if all.is_empty() {
        let some = match found.all.len() {
            0 => "no runtime has a record of any container".to_owned(),
            many => format!("{many} containers are known"),
        };
        return anyhow!(
            "no container {text:?} on this node; {some}; searched the runtimes' data below {}; a runtime \
             with its data elsewhere is found only while it runs or something is mounted there",
            looked.join(", ")
        );
    }
    let shown = all.iter().take(LISTED).map(|one| {
        let name = one.described.name.as_deref().unwrap_or("no name");
        format!("{} ({name})", safe(one.id.as_bytes()))
    });
    let shown: Vec<String> = shown.collect();
    let more = all.len().saturating_sub(LISTED);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    anyhow!("{text:?} matches several containers: {}{more}", shown.join(", "))
}
