//! What is asked about, and the answers to it, once nothing more is wanted for them.

use podstuck_engine::cluster::{Answer, answer};
use podstuck_model::cluster::{Facts, Key, Kind};

use crate::read::Reader;

/// The longest way from a question to the next that it leads to.
const ROUNDS: usize = 24;

/// The types that are listed: of a namespace, or of the cluster.
pub(crate) fn kinds(namespace: Option<&str>) -> Vec<Kind> {
    let of_namespace = [Kind::POD, Kind::CLAIM];
    let global = [Kind::VOLUME, Kind::ATTACHMENT, Kind::NODE, Kind::NAMESPACE];
    let global = global.into_iter().filter(|_| namespace.is_none());
    of_namespace.into_iter().chain(global).collect()
}

/// Judges these until nothing more is wanted, and reads what is.
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
