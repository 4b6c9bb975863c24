//! The API server's groups and types.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use podstuck_model::cluster::{Answer, Kind};
use serde_json::Value;

use super::{Failure, Reader, WHOLE, failed};

/// From 1.26 on, one document contains the types of all groups (KEP-3352). Older API servers send the list of groups.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// What the API server has said of each group, by its name. It saves requests about single groups.
#[derive(Default)]
pub(super) struct Discovered(Mutex<BTreeMap<String, Group>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Group {
    /// Its types.
    Types(Arc<[Kind]>),
    /// Its preferred version.
    Version(String),
    /// The API server could not read its types.
    Stale,
}

impl Discovered {
    fn of(&self, group: &str) -> Option<Group> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(group).cloned()
    }

    fn learn(&self, groups: impl IntoIterator<Item = (String, Group)>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(groups);
    }
}

impl Reader {
    /// All groups.
    pub(super) async fn groups(&self) -> Result<Answer, Failure> {
        let core = self.get("/api", DISCOVERY).await?;
        let others = self.get("/apis", DISCOVERY).await?;
        let groups: BTreeMap<String, Group> = groups(&core).chain(groups(&others)).collect();
        let names = groups.keys().cloned().collect();
        self.discovered.learn(groups);
        Ok(Answer::Groups(names))
    }

    /// The types of a group that can be listed, in its preferred version.
    pub(super) async fn types(&self, group: &str) -> Result<Answer, Failure> {
        let version = match self.discovered.of(group) {
            Some(Group::Types(types)) => return Ok(Answer::Types(types)),
            Some(Group::Version(version)) => version,
            Some(Group::Stale) => {
                return Err(failed("the server of this API group is not available"));
            }
            None if group.is_empty() => "v1".to_owned(),
            None => {
                let known = self.get(&format!("/apis/{group}"), WHOLE).await?;
                version(&known).ok_or_else(|| failed("a group without a version"))?
            }
        };
        let path =
            if group.is_empty() { "/api/v1".into() } else { format!("/apis/{group}/{version}") };
        let list = self.get(&path, WHOLE).await?;
        let types = each(&list, "resources").filter_map(|it| {
            let namespaced = it.get("namespaced")?.as_bool()?;
            kind(group, &version, it, "name", text(it, "kind")?, namespaced)
        });
        Ok(Answer::Types(types.collect()))
    }
}

/// The groups in a document of either form.
fn groups(document: &Value) -> impl Iterator<Item = (String, Group)> {
    // The legacy document about the core group contains its versions, of which there is one.
    let core = document.get("versions").map(|_| (String::new(), Group::Version("v1".into())));
    let listed = each(document, "groups")
        .filter_map(|it| Some((text(it, "name")?.to_owned(), Group::Version(version(it)?))));
    let discovered = each(document, "items").filter_map(|it| {
        // The core group's name is empty, and may be omitted.
        let group = it.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let preferred = each(it, "versions").next()?;
        if text(preferred, "freshness") == Some("Stale") {
            return Some((group.to_owned(), Group::Stale));
        }
        let version = text(preferred, "version")?;
        let types = each(preferred, "resources").filter_map(|it| {
            let name = it.pointer("/responseKind/kind")?.as_str()?;
            kind(group, version, it, "resource", name, text(it, "scope")? == "Namespaced")
        });
        Some((group.to_owned(), Group::Types(types.collect())))
    });
    core.into_iter().chain(listed).chain(discovered)
}

/// A type, unless it is a subresource or cannot be listed.
fn kind(
    group: &str,
    version: &str,
    of: &Value,
    plural: &str,
    name: &str,
    namespaced: bool,
) -> Option<Kind> {
    let plural = text(of, plural).filter(|it| !it.contains('/'))?;
    let is_listed = each(of, "verbs").any(|verb| verb == "list");
    is_listed.then(|| Kind::named(group, version, plural, name, namespaced))
}

fn version(group: &Value) -> Option<String> {
    Some(group.pointer("/preferredVersion/version")?.as_str()?.to_owned())
}

fn text<'a>(of: &'a Value, name: &str) -> Option<&'a str> {
    of.get(name).and_then(Value::as_str)
}

fn each<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The documented form (k8s.io/api/apidiscovery/v2): no server of this version can be had here.
    #[test]
    fn one_document_has_the_types_of_all_groups() {
        let verbs = json!(["get", "list"]);
        let document = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {}, "versions": [{"version": "v1", "resources": [
                {"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced", "verbs": verbs},
                {"resource": "bindings", "responseKind": {"kind": "Binding"}, "scope": "Namespaced", "verbs": ["create"]},
            ]}]},
            {"metadata": {"name": "example.com"}, "versions": [
                {"version": "v2", "resources": [
                    {"resource": "zones", "responseKind": {"kind": "Zone"}, "scope": "Cluster", "verbs": verbs}]},
                {"version": "v1", "resources": []},
            ]},
            {"metadata": {"name": "gone.example.com"}, "versions": [{"version": "v1", "freshness": "Stale"}]},
        ]});
        let zone = Kind::named("example.com", "v2", "zones", "Zone", false);
        assert_eq!(
            groups(&document).collect::<Vec<_>>(),
            [
                (String::new(), Group::Types([Kind::POD].into())),
                ("example.com".into(), Group::Types([zone].into())),
                ("gone.example.com".into(), Group::Stale),
            ]
        );
    }

    #[test]
    fn an_older_server_names_groups_and_versions() {
        let core = json!({"kind": "APIVersions", "versions": ["v1"]});
        let others = json!({"kind": "APIGroupList", "groups": [
            {"name": "apps", "preferredVersion": {"version": "v1"}}]});
        let version = || Group::Version("v1".into());
        assert_eq!(
            groups(&core).chain(groups(&others)).collect::<Vec<_>>(),
            [(String::new(), version()), ("apps".into(), version())]
        );
    }
}
