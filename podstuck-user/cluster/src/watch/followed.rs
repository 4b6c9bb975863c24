//! Follows objects that are being deleted, from event to event.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use podstuck_engine::cluster::PATIENCE;
use podstuck_model::{
    cluster::{Key, Kind, Meta},
    path::safe,
};

use crate::present::age;

/// The kind of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The object exists; the event carries its current state.
    There,
    /// The object was removed; the event carries its last state.
    Gone,
}

/// An object that is being deleted.
struct Followed {
    key: Key,
    requested: Timestamp,
    end: Timestamp,
    finalizers: Vec<String>,
    /// The last finalizer removal that was observed, and its time.
    last: Option<(String, Timestamp)>,
    /// Whether it was reported as stuck.
    is_reported: bool,
}

impl Followed {
    /// The change that preceded the removal, as the end of a sentence; may be empty.
    fn why(&self, now: Timestamp) -> String {
        match (&self.finalizers[..], &self.last) {
            // The last state still has finalizers: the request that removes the last finalizer also removes the
            // object.
            ([only], _) => format!(", as the finalizer {only} was removed"),
            ([_, ..], _) => {
                format!(", as the finalizers {} were removed", self.finalizers.join(", "))
            }
            ([], Some((change, at))) => format!(", {} after {change}", age(*at, now)),
            ([], None) => String::new(),
        }
    }
}

/// The objects that are being deleted, by UID.
#[derive(Default)]
pub(super) struct All(BTreeMap<String, Followed>);

impl All {
    /// Processes an event; returns the lines to print.
    pub(super) fn take(
        &mut self,
        event: Event,
        kind: &Kind,
        meta: &Meta,
        now: Timestamp,
    ) -> Vec<String> {
        let (Some(end), Some(requested)) = (meta.deletion_timestamp, meta.requested()) else {
            return Vec::new();
        };
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let known = self.0.entry(meta.uid.clone()).or_insert_with(|| Followed {
            key: Key::of(kind.clone(), namespace, &meta.name),
            requested,
            end,
            finalizers: meta.finalizers.clone(),
            last: None,
            is_reported: false,
        });
        let is_late = is_late(end, now);
        let mut lines = Vec::new();
        let removed = known.finalizers.iter().filter(|it| !meta.finalizers.contains(it));
        let by = writer(meta);
        for finalizer in removed.cloned().collect::<Vec<_>>() {
            let change = format!("the finalizer {finalizer} was removed{by}");
            if is_late {
                lines.push(line(now, &known.key, &change));
            }
            known.last = Some((change, now));
        }
        known.finalizers.clone_from(&meta.finalizers);
        known.end = end;
        if event == Event::Gone {
            // Objects that are removed in time are not reported.
            if is_late || known.is_reported {
                let text = format!(
                    "gone {} after its deletion was requested{}",
                    age(known.requested, now),
                    known.why(now)
                );
                lines.push(line(now, &known.key, &text));
            }
            self.0.remove(&meta.uid);
        }
        lines
    }

    /// Objects that have become stuck since the last call.
    pub(super) fn late(&mut self, now: Timestamp) -> Vec<Key> {
        let new = self.0.values_mut().filter(|it| !it.is_reported && is_late(it.end, now));
        new.map(|it| {
            it.is_reported = true;
            it.key.clone()
        })
        .collect()
    }
}

fn is_late(end: Timestamp, now: Timestamp) -> bool {
    now.duration_since(end) >= SignedDuration::try_from(PATIENCE).unwrap_or_default()
}

/// The manager with the newest managed-fields entry: the client that wrote last.
fn writer(meta: &Meta) -> String {
    let last = meta.managed_fields.iter().max_by_key(|it| it.time);
    last.map(|it| format!(" (last written by {})", it.manager)).unwrap_or_default()
}

pub(super) fn line(now: Timestamp, key: &Key, text: &str) -> String {
    let text = format!("{now:.0} {key}: {text}");
    safe(text.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn meta(finalizers: Value) -> Meta {
        let meta = json!({"name": "a", "namespace": "shop", "uid": "u", "deletionTimestamp": "2026-11-28T10:00:00Z",
            "deletionGracePeriodSeconds": 0, "finalizers": finalizers,
            "managedFields": [{"manager": "operator", "time": "2026-11-28T10:01:00Z"}]});
        serde_json::from_value(meta).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        "2026-11-28T10:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn what_went_away_is_said_with_the_change_before_it() {
        let mut all = All::default();
        let mut take = |event, finalizers, seconds| {
            all.take(event, &Kind::POD, &meta(finalizers), at(seconds))
        };
        assert_eq!(take(Event::There, json!(["x"]), 10), [""; 0]);
        assert_eq!(
            take(Event::There, json!([]), 60),
            [
                "2026-11-28T10:01:00Z Pod shop/a: the finalizer x was removed (last written by operator)"
            ]
        );
        let gone = take(Event::Gone, json!([]), 63);
        assert_eq!(
            gone,
            [
                "2026-11-28T10:01:03Z Pod shop/a: gone 1m3s after its deletion was requested, 3s after the finalizer x was \
              removed (last written by operator)"
            ]
        );
    }

    #[test]
    fn the_removal_of_the_last_finalizer_is_the_removal_of_the_object() {
        let mut all = All::default();
        all.take(Event::There, &Kind::POD, &meta(json!(["x"])), at(40));
        let gone = all.take(Event::Gone, &Kind::POD, &meta(json!(["x"])), at(45));
        let words = "gone 45s after its deletion was requested, as the finalizer x was removed";
        assert_eq!(gone, [format!("2026-11-28T10:00:45Z Pod shop/a: {words}")]);
    }

    #[test]
    fn what_goes_in_time_is_no_news_and_what_does_not_is_said_once() {
        let mut all = All::default();
        let none = [""; 0];
        assert_eq!(all.take(Event::There, &Kind::POD, &meta(json!(["x"])), at(1)), none);
        assert_eq!(all.take(Event::Gone, &Kind::POD, &meta(json!([])), at(5)), none);
        all.take(Event::There, &Kind::POD, &meta(json!(["x"])), at(6));
        assert_eq!(all.late(at(29)), []);
        assert_eq!(all.late(at(30)), [Key::of(Kind::POD, "shop", "a")]);
        assert_eq!(all.late(at(31)), []);
    }
}
