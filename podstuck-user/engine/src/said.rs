//! The components' log messages about pods.

use crate::{
    bounded::Bounded,
    model::said::{Said, template},
};

/// Maximum number of stored messages, over all pods.
const ERRORS: usize = 1024;

/// The last message of each kind, by pod.
#[derive(Default)]
pub(crate) struct SaidOfPods {
    errors: Bounded<(String, String), Said, ERRORS>,
}

impl SaidOfPods {
    /// Adds a message, which may be a repetition.
    pub(crate) fn note(&mut self, said: &Said) {
        let key = (said.uid.clone(), template(&said.text));
        let times = self.errors.get(&key).map_or(0, |before| before.times) + said.times;
        self.errors.insert(key, Said { times, ..said.clone() });
    }

    /// The messages about these pods, the latest last.
    pub(crate) fn of<'a>(&self, uids: impl Iterator<Item = &'a str>) -> Vec<Said> {
        let uids: Vec<&str> = uids.collect();
        let all = self.errors.iter().map(|(_, said)| said);
        let mut said: Vec<Said> =
            all.filter(|said| uids.contains(&said.uid.as_str())).cloned().collect();
        said.sort_by(|a, b| (a.at, &a.text).cmp(&(b.at, &b.text)));
        said
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::identity::Component;

    fn said(uid: &str, text: &str, second: i64) -> Said {
        let at = Timestamp::from_second(second).unwrap();
        Said::new(Component::Kubelet, "log", uid, at, text)
    }

    #[test]
    fn the_last_of_each_error_is_kept_with_their_number() {
        let mut all = SaidOfPods::default();
        for second in 1..4 {
            all.note(&said("a", "busy", second));
        }
        all.note(&said("a", "refused", 2));
        all.note(&said("b", "busy", 9));
        let of_a = all.of(["a"].into_iter());
        let stored: Vec<(&str, i64, u64)> =
            of_a.iter().map(|s| (s.text.as_str(), s.at.as_second(), s.times)).collect();
        assert_eq!(stored, [("refused", 2, 1), ("busy", 3, 3)]);
    }
}
