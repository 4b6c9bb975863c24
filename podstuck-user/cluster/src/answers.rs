//! Reads facts from the API server until every answer is decided.

use podstuck_engine::cluster::{Answer, answer};
use podstuck_model::cluster::{Facts, Key, Kind};

use crate::read::Reader;

/// Maximum number of rounds of judging and reading: one answer can lead to further questions.
const ROUNDS: usize = 24;

/// The types that are listed in a namespace; with `None`, those of the whole cluster.
pub(crate) fn kinds(namespace: Option<&str>) -> Vec<Kind> {
    let of_namespace = [Kind::POD, Kind::CLAIM];
    let global = [Kind::VOLUME, Kind::ATTACHMENT, Kind::NODE, Kind::NAMESPACE];
    let global = global.into_iter().filter(|_| namespace.is_none());
    of_namespace.into_iter().chain(global).collect()
}

/// All other types that can be listed, except events: nothing keeps an event, and there are many.
pub(crate) async fn other_kinds(
    namespace: Option<&str>,
    known: &[Kind],
    reader: &Reader,
    facts: &mut Facts,
) -> Vec<Kind> {
    let _ = facts.groups();
    reader.answer_all(facts, facts.wanted()).await;
    let groups = facts.groups().is().unwrap_or_default();
    for group in &*groups {
        let _ = facts.types(group);
    }
    reader.answer_all(facts, facts.wanted()).await;
    let types = groups.iter().filter_map(|group| facts.types(group).is());
    let mut kinds: Vec<Kind> = types.flat_map(|types| types.to_vec()).collect();
    let is_known =
        |kind: &Kind| known.iter().any(|it| (&it.group, &it.plural) == (&kind.group, &kind.plural));
    kinds.retain(|kind| {
        let is_here = kind.namespaced || namespace.is_none();
        is_here && kind.name != "Event" && !is_known(kind)
    });
    kinds
}

/// Judges the objects and reads the facts that the judgement asks for, until it asks for none.
pub(crate) async fn settle(keys: &[Key], reader: &Reader, facts: &mut Facts) -> Vec<Answer> {
    for _ in 0..ROUNDS {
        let answers = keys.iter().map(|key| answer(key, facts)).collect();
        let wanted = facts.wanted();
        if wanted.is_empty() {
            return answers;
        }
        reader.answer_all(facts, wanted).await;
    }
    keys.iter().map(|key| answer(key, facts)).collect()
}
