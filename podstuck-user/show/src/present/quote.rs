//! Shortens a log message that an answer quotes in several places: it is printed in full where the logs are listed,
//! and elsewhere with its beginning, which names the operation, and its end, which names the error.

use std::borrow::Cow;

use textwrap::core::display_width;

use super::elide;
use podstuck_model::{diagnosis::Diagnosis, path::ELLIPSIS, said::Said};

/// A message up to this many columns is printed in full everywhere: two lines of a terminal.
const WHOLE: usize = 160;
/// Columns of a path within a shortened message.
const PATH: usize = 60;
/// Columns of the beginning, which names the operation.
const HEAD: usize = 50;
/// Columns of the end, which names the error.
const TAIL: usize = 100;
/// Digits that are kept of a container's ID, as in the output of docker and crictl.
const ID: usize = 12;

/// The answer with each of these messages shortened. They must be those that are printed in full as well.
pub(super) fn shortened<'a>(
    answer: &Diagnosis,
    printed: impl Iterator<Item = &'a Said>,
) -> Diagnosis {
    let mut out = answer.clone();
    for text in printed.map(|said| &said.text).filter(|text| display_width(text) > WHOLE) {
        let short = short(text);
        let links = out.stages.iter_mut().flat_map(|pod| &mut pod.chain);
        let facts = links.flat_map(|link| &mut link.facts).map(|it| &mut it.fact);
        let evidence = out.causes.iter_mut().flat_map(|cause| &mut cause.evidence);
        facts.chain(evidence.map(|it| &mut it.fact)).chain(&mut out.next).for_each(|fact| {
            if fact.contains(text.as_str()) {
                *fact = fact.replace(text.as_str(), &short);
            }
        });
    }
    out
}

/// The beginning and the end of a message, in whole words; its long paths lose their middle, and its IDs their end.
fn short(message: &str) -> String {
    let words: Vec<_> = message
        .split(' ')
        .map(|word| if word.contains('/') { elide::middle(word, PATH) } else { short_id(word) })
        .collect();
    let up_to = |all: &mut dyn Iterator<Item = usize>, most: usize| {
        let mut columns = 0;
        let fits = |width: &usize| {
            columns += width + 1;
            columns <= most
        };
        all.take_while(fits).count().max(1)
    };
    let head = up_to(&mut words.iter().map(|word| display_width(word)), HEAD);
    let tail = up_to(&mut words.iter().rev().map(|word| display_width(word)), TAIL);
    if head + tail >= words.len() {
        return words.join(" ");
    }
    format!("{} {ELLIPSIS} {}", words[..head].join(" "), words[words.len() - tail..].join(" "))
}

/// A word with a container's ID, 64 digits, in quotes or brackets or alone.
fn short_id(word: &str) -> Cow<'_, str> {
    const WHOLE: usize = 64;
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let mut runs = word.split(|c| !is_digit(c));
    match runs.find(|run| run.len() == WHOLE) {
        Some(id) => word.replacen(id, &format!("{}{ELLIPSIS}", &id[..ID]), 1).into(),
        None => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_and_the_error_stay() {
        let directory = "/var/lib/kubelet/pods/e2eb46cb-cd1c-4c5b-85d7-198882fe5701/volume-subpaths/pvc-80b9188c-de43-4bd6-b226-72aaafca5a4f/repro";
        let message = format!(
            "error cleaning subPath mounts for volume \"cache\" (UniqueName: \
             \"kubernetes.io/csi/virtiofs.csi.example.com^vol-1\") pod \"e2eb46cb\" : error deleting \
             {directory}: remove {directory}: directory not empty"
        );
        assert_eq!(
            short(&message),
            "error cleaning subPath mounts for volume \"cache\" … \
             deleting /var/lib/kubelet/pods/…/repro: remove /var/lib/kubelet/pods/…/repro: directory not empty"
        );
        // kubernetes#44307: the error comes before the ID.
        let id = "339da541c2da3802d73af1a1250069ad85494deb2c2b979a425eb95fd4fabb29";
        let message = format!(
            "error killing pod: failed to \"KillPodSandbox\" for \"62f25a56-2967-4771-a2f9-914e271d588a\" with \
             KillPodSandboxError: \"rpc error: code = 2 desc = NetworkPlugin cni failed to teardown pod \
             \"kube-proxy-cts6b_kube-system\" network: CNI failed to retrieve network namespace path: Error: No such \
             container: {id}\""
        );
        assert_eq!(
            short(&message),
            "error killing pod: failed to \"KillPodSandbox\" for … network: CNI failed to retrieve network namespace \
             path: Error: No such container: 339da541c2da…\""
        );
        let one_word = "x".repeat(300);
        assert_eq!(short(&one_word), one_word);
    }
}
