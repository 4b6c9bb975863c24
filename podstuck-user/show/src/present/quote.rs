//! Shortens a log message that an answer quotes in several places: it is printed in full where the logs are listed,
//! and elsewhere with its beginning, which names the operation, and its end, which names the error.

use textwrap::core::display_width;

use super::elide;
use podstuck_model::{diagnosis::Diagnosis, path::ELLIPSIS, said::Said};

/// A message up to this many columns is printed in full everywhere: two lines of a terminal.
const WHOLE: usize = 160;
/// Columns of a path within a shortened message.
const PATH: usize = 60;
/// Columns of the beginning, and of the end.
const ENDS: usize = 70;

/// The answer with each of these messages shortened. They must be those that are printed in full as well.
pub(super) fn shortened<'a>(
    answer: &Diagnosis,
    printed: impl Iterator<Item = &'a Said>,
) -> Diagnosis {
    let mut out = answer.clone();
    for text in printed.map(|said| &said.text).filter(|text| display_width(text) > WHOLE) {
        let short = short(text);
        let links = out.stages.iter_mut().flat_map(|pod| &mut pod.chain);
        let facts = links.map(|link| &mut link.fact);
        let evidence = out.causes.iter_mut().flat_map(|cause| &mut cause.evidence);
        facts.chain(evidence.map(|it| &mut it.fact)).chain(&mut out.next).for_each(|fact| {
            if fact.contains(text.as_str()) {
                *fact = fact.replace(text.as_str(), &short);
            }
        });
    }
    out
}

/// The beginning and the end of a message, in whole words; its long paths lose their middle.
fn short(message: &str) -> String {
    let words: Vec<_> = message
        .split(' ')
        .map(|word| if word.contains('/') { elide::middle(word, PATH) } else { word.into() })
        .collect();
    let up_to = |all: &mut dyn Iterator<Item = usize>| {
        let mut columns = 0;
        let fits = |width: &usize| {
            columns += width + 1;
            columns <= ENDS
        };
        all.take_while(fits).count().max(1)
    };
    let head = up_to(&mut words.iter().map(|word| display_width(word)));
    let tail = up_to(&mut words.iter().rev().map(|word| display_width(word)));
    if head + tail >= words.len() {
        return words.join(" ");
    }
    format!("{} {ELLIPSIS} {}", words[..head].join(" "), words[words.len() - tail..].join(" "))
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
            "error cleaning subPath mounts for volume \"cache\" (UniqueName: … \
             remove /var/lib/kubelet/pods/…/repro: directory not empty"
        );
        let one_word = "x".repeat(300);
        assert_eq!(short(&one_word), one_word);
    }
}
