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
