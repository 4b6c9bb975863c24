//! Reads many objects of one type by a list instead of one request each.

use std::{collections::BTreeMap, sync::Arc};

use podstuck_model::cluster::{Answer, Facts, Key, Kind, Question};
use tokio::task::JoinSet;

use super::{METADATA_LIST, PAGE, Reader, WHOLE, metadata, whole};

/// Number of objects that justify reading one page of a list, most of whose objects were not asked about.
const FOR_A_PAGE: usize = 5;

/// Objects of one type in one namespace.
type Place = (Kind, Option<String>);

impl Reader {
    /// Answers the questions, a limited number concurrently.
    pub async fn answer_all(&self, facts: &mut Facts, wanted: Vec<Question>) {
        let wanted = self.answer_by_lists(facts, wanted).await;
        let mut tasks = JoinSet::new();
        for question in wanted {
            let reader = self.clone();
            tasks.spawn(async move {
                let answer = reader.answer(&question).await;
                (question, answer)
            });
        }
        while let Some(done) = tasks.join_next().await {
            if let Ok((question, answer)) = done {
                facts.answered(question, answer);
            }
        }
    }

    /// Answers questions about single objects where a list takes fewer requests; returns the other questions.
    async fn answer_by_lists(&self, facts: &mut Facts, wanted: Vec<Question>) -> Vec<Question> {
        if self.is_of_recording() {
            return wanted;
        }
        let mut places: BTreeMap<Place, Vec<Key>> = BTreeMap::new();
        let mut others = Vec::new();
        for question in wanted {
            match question {
                Question::Object(key) => {
                    places.entry((key.kind.clone(), key.namespace.clone())).or_default().push(key);
                }
                other => others.push(other),
            }
        }
        let mut tasks = JoinSet::new();
        for (place, keys) in places {
            let pages = keys.len() / FOR_A_PAGE;
            let total = facts.total(&place.0, place.1.as_deref()).unwrap_or_default();
            if pages == 0 || total > pages * PAGE {
                others.extend(keys.into_iter().map(Question::Object));
                continue;
            }
            let reader = self.clone();
            tasks.spawn(async move { reader.objects(&place, keys, pages).await });
        }
        while let Some(done) = tasks.join_next().await {
            let Ok((found, left)) = done else { continue };
            for (key, answer) in found {
                facts.answered(Question::Object(key), answer);
            }
            others.extend(left.into_iter().map(Question::Object));
        }
        others
    }

    /// The objects that the first pages of the list contain, and the keys of the others.
    async fn objects(
        &self,
        place: &Place,
        keys: Vec<Key>,
        pages: usize,
    ) -> (Vec<(Key, Answer)>, Vec<Key>) {
        let (kind, namespace) = place;
        let accept = if kind.is_known() { WHOLE } else { METADATA_LIST };
        let mut all = BTreeMap::new();
        let path = kind.path(namespace.as_deref());
        let read = self.pages(&path, accept, pages, |item| {
            let object = if kind.is_known() { whole(&item) } else { metadata(item) };
            all.extend(object.map(|object| (object.metadata.name.clone(), object)));
        });
        // What is not in the list is asked for by itself: it may have been in an unreadable form.
        let _ = read.await;
        let (mut found, mut left) = (Vec::new(), Vec::new());
        for key in keys {
            match all.remove(&key.name) {
                Some(object) => found.push((key, Answer::Object(Arc::new(object)))),
                None => left.push(key),
            }
        }
        (found, left)
    }
}
