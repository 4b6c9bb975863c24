//! The names that an unknown one may have been meant to be.

use std::fmt;

use crate::model::identity::Pod;

/// How many are listed.
const LISTED: usize = 5;
/// Longer texts are compared up to here; names and UIDs are shorter.
const COMPARED: usize = 320;

/// Pods of this node, those that resemble what was asked for first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearby(Vec<String>);

impl Nearby {
    /// Sorts the pods by how much `asked` resembles their UID, or their `namespace/name`.
    pub(super) fn new(asked: &str, pods: Vec<Pod>) -> Self {
        let mut ranked: Vec<(usize, String)> = pods
            .into_iter()
            .map(|pod| {
                let name = match (&pod.namespace, &pod.name) {
                    (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
                    _ => None,
                };
                let far = distance(asked, &pod.uid);
                match name {
                    Some(name) => {
                        (far.min(distance(asked, &name)), format!("{name} (uid {})", pod.uid))
                    }
                    None => (far, format!("uid {} (no name known)", pod.uid)),
                }
            })
            .collect();
        ranked.sort();
        ranked.dedup();
        Self(ranked.into_iter().map(|(_, text)| text).collect())
    }
}

impl fmt::Display for Nearby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "no pods are known on this node: is it the right one, and is --kubelet-root (or \
                 --host-root, in a container) where its kubelet keeps its files?",
            );
        }
        let listed: Vec<&str> = self.0.iter().take(LISTED).map(String::as_str).collect();
        write!(f, "pods on this node: {}", listed.join(", "))?;
        match self.0.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, ", … and {more} more"),
        }
    }
}

/// Insertions, deletions and changes of a byte that turn one text into the other.
fn distance(a: &str, b: &str) -> usize {
    let a = a.as_bytes().get(..COMPARED).unwrap_or(a.as_bytes());
    let b = b.as_bytes().get(..COMPARED).unwrap_or(b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut left = i + 1;
        let mut next = Vec::with_capacity(row.len());
        next.push(left);
        for (pair, y) in row.windows(2).zip(b) {
            let [diagonal, above] = pair else { break };
            left = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: Option<&str>, uid: &str) -> Pod {
        Pod { uid: uid.into(), namespace: name.map(|_| "shop".into()), name: name.map(Into::into) }
    }

    #[test]
    fn distances() {
        let table =
            [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("abc", "abc", 0)];
        for (a, b, expected) in table {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
        assert_eq!(distance(&"x".repeat(10_000), ""), COMPARED);
    }

    #[test]
    fn the_nearest_come_first_and_the_rest_is_counted() {
        let mut pods: Vec<Pod> =
            (0..6).map(|i| pod(Some(&format!("database-{i}")), &format!("{i}"))).collect();
        pods.push(pod(Some("web-0"), "w"));
        let text = Nearby::new("shop/web-1", pods).to_string();
        assert!(text.starts_with("pods on this node: shop/web-0 (uid w), shop/database-"), "{text}");
        assert!(text.ends_with(", … and 2 more"), "{text}");
    }

    #[test]
    fn a_pod_without_a_name_and_a_node_without_a_pod() {
        let text = Nearby::new("x", vec![pod(None, "u")]).to_string();
        assert_eq!(text, "pods on this node: uid u (no name known)");
        assert!(Nearby::new("x", vec![]).to_string().contains("--kubelet-root"));
    }
}
