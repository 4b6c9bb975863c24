//! What kubelet's log complains of a pod, in whatever words: any warning, error or message with an error that names the
//! pod. No list of phrases decides what counts; what the phrases that are known mean is for `klog` and `klog_runtime`.

use std::sync::LazyLock;

use jiff::Timestamp;
use podstuck_model::{bounded::Bounded, said::template};
use regex::Regex;

use super::{
    attempts::Told,
    deletions::{Deletions, Name},
    fixed,
    go_text::{quoted, value},
};
use crate::identity::uid::is_pod_uid;

/// Pods whose complaints are kept, those that were complained of last.
const PODS: usize = 1024;
/// Kinds of complaints that are kept of a pod, the last ones: it takes no other pod's place.
const KINDS: usize = 8;

/// Bytes that are kept of a complaint: what it is about stands at its beginning, and recordings hold it.
const LONGEST: usize = 1024;

/// The pod that an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    Uid(String),
    /// kubelet's status manager names a pod without its UID.
    Name(Name),
}

/// Where kubelet names a pod outside of klog's fields. Its own words stand before what they quote, so that the first
/// counts.
static UID: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"(?:\bpod \\?"|\(UID: \\?"|\bpodName:|/pods/)"#,
        r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b"
    ))
});

/// Whom a message is about and what it complains of.
pub(super) fn complaint(severity: u8, message: &str) -> Option<(Whose, String)> {
    let is_error = matches!(severity, b'W' | b'E' | b'F');
    // Most of a log is of this kind.
    if !is_error && !message.contains(" err=") {
        return None;
    }
    let Some((headline, fields)) = quoted(message) else {
        let uid = UID.captures(message).filter(|_| is_error)?[1].to_owned();
        return Some((Whose::Uid(uid), first_of(message)));
    };
    let fields = Fields(fields).collect::<Vec<_>>();
    let field = |name: &str| fields.iter().find(|field| field.0 == name).map(|field| &*field.1);
    let error = field("err");
    if error.is_none() && !is_error {
        return None;
    }
    let of_field = || {
        let uid = field("podUID").filter(|uid| is_pod_uid(uid.as_bytes()));
        uid.map(|uid| Whose::Uid(uid.to_owned())).or_else(|| {
            let (namespace, name) = field("pod")?.split_once('/')?;
            Some(Whose::Name((namespace.to_owned(), name.to_owned())))
        })
    };
    let of_text = || {
        let uid = [Some(headline.as_str()), error].into_iter().flatten();
        let uid = uid.filter_map(|text| UID.captures(text)).next()?[1].to_owned();
        Some(Whose::Uid(uid))
    };
    let whose = of_field().or_else(of_text)?;
    let text = error.map_or_else(|| headline.clone(), |error| format!("{headline}: {error}"));
    Some((whose, first_of(&text)))
}

fn first_of(text: &str) -> String {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default().to_owned()
}

/// klog's fields: ` NAME=VALUE`, the value quoted where it could be taken for something else.
struct Fields<'a>(&'a str);

impl Iterator for Fields<'_> {
    type Item = (String, String);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = self.0.trim_start().split_once('=')?;
        let bare = || {
            let (value, rest) = rest.split_at(rest.find([' ', '\n']).unwrap_or(rest.len()));
            (value.to_owned(), rest)
        };
        let (value, rest) = value(rest).unwrap_or_else(bare);
        self.0 = rest;
        Some((name.to_owned(), value))
    }
}

/// One kind of complaint about a pod.
struct Kind {
    template: String,
    at: Timestamp,
    times: u64,
    text: String,
    is_proven: bool,
}

/// The last of each kind.
pub(super) struct OfPods(Bounded<Whose, Vec<Kind>>);

impl Default for OfPods {
    fn default() -> Self {
        Self(Bounded::new(PODS))
    }
}

impl OfPods {
    /// Takes the next one of the log.
    pub(super) fn push(&mut self, (whose, text): (Whose, String), at: Timestamp, is_proven: bool) {
        let template = template(&text);
        let kinds = self.0.or_insert_with(whose, Vec::new);
        // The one that was said last stands last.
        let known = kinds.iter().position(|kind| kind.template == template);
        let before = known.map(|at| kinds.remove(at));
        let times = before.as_ref().map_or(0, |kind| kind.times) + 1;
        let is_proven = is_proven && before.is_none_or(|kind| kind.is_proven);
        if kinds.len() >= KINDS {
            kinds.remove(0);
        }
        kinds.push(Kind { template, at, times, text, is_proven });
    }

    /// All whose pod is known.
    pub(super) fn into_told(self, deletions: &Deletions) -> Vec<(Told, bool)> {
        let uid = |whose: &Whose| match whose {
            Whose::Uid(uid) => Some(uid.clone()),
            Whose::Name(name) => deletions.uid(name).map(str::to_owned),
        };
        let told = |uid: &str, kind: &Kind| {
            let &Kind { at, times, is_proven, .. } = kind;
            (Told::OfPod { uid: uid.to_owned(), at, error: kind.text.clone(), times }, is_proven)
        };
        let known = self.0.iter().filter_map(|(whose, kinds)| Some((uid(whose)?, kinds)));
        known.flat_map(|(uid, kinds)| kinds.iter().map(move |kind| told(&uid, kind))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: &str = "0f0e0d0c-1111-4222-8333-444455556666";
    const OTHER: &str = "1f0e0d0c-1111-4222-8333-444455556666";

    fn of_uid(text: &str) -> Option<(Whose, String)> {
        Some((Whose::Uid(U.into()), text.into()))
    }

    /// As in kubernetes issue 106942, rook issue 4695, kyverno issue 16281 and the kubelet's own source.
    #[test]
    fn any_error_that_names_a_pod_is_heard() {
        let orphan =
            format!("orphaned pod \"{U}\" found, but failed to rmdir() subpath: not a directory");
        let message = format!("\"There were many similar errors.\" err={orphan:?} numErrs=3");
        let text = format!("There were many similar errors.: {orphan}");
        assert_eq!(complaint(b'E', &message), of_uid(&text));
        let flex = format!(
            "FlexVolume: driver call failed: args: [unmount /k/pods/{U}/volumes/x], error: exit status 1"
        );
        assert_eq!(complaint(b'W', &flex), of_uid(&flex));
        assert_eq!(complaint(b'I', &flex), None);
        let status =
            "\"Failed to delete status for pod\" pod=\"shop/web\" err=\"failed calling webhook\"";
        let name = Whose::Name(("shop".into(), "web".into()));
        let text = "Failed to delete status for pod: failed calling webhook";
        assert_eq!(complaint(b'I', status), Some((name, text.into())));
        let lines = format!(
            "\"Error syncing pod, skipping\" err=<\n\ta\n\tb\n > pod=\"shop/web\" podUID=\"{U}\""
        );
        assert_eq!(complaint(b'E', &lines), of_uid("Error syncing pod, skipping: a\nb"));
        let quiet = format!("\"SyncLoop DELETE\" source=\"api\" podUID=\"{U}\"");
        assert_eq!(complaint(b'I', &quiet), None);
    }

    #[test]
    fn what_an_error_quotes_names_no_other_pod() {
        let quotes = format!(
            "\"x\" err=\"cannot remove a\\\" podUID=\\\"{OTHER}\\\"\" pod=\"shop/web\" podUID=\"{U}\""
        );
        let (whose, _) = complaint(b'E', &quotes).unwrap();
        assert_eq!(whose, Whose::Uid(U.into()));
        let path = format!("\"x\" err=\"unlinkat /k/pods/{U}/volumes/a/pods/{OTHER}/b: busy\"");
        assert_eq!(complaint(b'E', &path).unwrap().0, Whose::Uid(U.into()));
        let name = format!("\"x\" err=\"pod \\\"{OTHER}\\\"\" pod=\"shop/web\"");
        assert_eq!(complaint(b'E', &name).unwrap().0, Whose::Name(("shop".into(), "web".into())));
    }

    #[test]
    fn the_last_of_each_kind_is_told_with_its_number() {
        let mut all = OfPods::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        for second in 1..4 {
            let text = format!("cannot: try {second}");
            all.push((Whose::Uid(U.into()), text), at(second), true);
        }
        all.push((Whose::Uid(U.into()), "no more".into()), at(9), false);
        let unknown = Whose::Name(("shop".into(), "web".into()));
        all.push((unknown, "whose".into()), at(9), true);
        let told = all.into_told(&Deletions::default());
        let mut told: Vec<_> = told
            .into_iter()
            .map(|told| match told {
                (Told::OfPod { at, error, times, .. }, is_proven) => {
                    (at.as_second(), error, times, is_proven)
                }
                _ => panic!(),
            })
            .collect();
        told.sort();
        let expected = [(3, "cannot: try 3".into(), 3, true), (9, "no more".into(), 1, false)];
        assert_eq!(told, expected);
    }
}
