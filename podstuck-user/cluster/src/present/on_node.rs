//! What a node's answer has beside its causes.

use podstuck_model::path::safe;

use super::{
    Kubectl,
    text::{Paint, way},
};
use crate::examine::Said;

/// Number of the latest log messages that are shown; JSON has all.
const SAID: usize = 5;

/// The rest of the answer, without the causes.
pub(super) fn rest(
    out: &mut String,
    said: &Said,
    is_without_cause: bool,
    kubectl: &Kubectl,
    paint: Paint,
) {
    let node = safe(said.node.as_bytes());
    let Some(answer) = &said.answer else {
        let why = said.error.as_deref().unwrap_or_default();
        let why = safe(why.as_bytes());
        out.push_str(&format!("\npodstuck's own pod on {node} gave no answer: {why}\n"));
        return;
    };
    if let Some(seconds) = answer.gone_after_s {
        out.push_str(&format!("\nThe pod was gone from {node} after {seconds:.0} s.\n"));
    } else if is_without_cause {
        out.push_str(&format!("\nNo known cause was recognised on {node}.\n"));
    }
    for name in &answer.unknown {
        let name = safe(name.as_bytes());
        out.push_str(&format!(
            "\npodstuck on {node} names the cause {name}, which this version of kubectl-podstuck does not know: \
             use the version of its image.\n"
        ));
    }
    let list = |out: &mut String, title: &str, items: &[String]| {
        if !items.is_empty() {
            out.push_str(&format!("\n{}\n", paint.bold(title)));
        }
        for item in items {
            out.push_str(&format!("  - {}\n", safe(item.as_bytes())));
        }
    };
    list(out, "What else matters on the node", &answer.notes);
    list(out, "What its logs say", &answer.said[answer.said.len().saturating_sub(SAID)..]);
    if !answer.remedies.is_empty() {
        let title = paint.bold("What may release it (not proven to help)");
        out.push_str(&format!("\n{title}\n"));
    }
    for (at, remedy) in answer.remedies.iter().enumerate() {
        out.push_str(&way(at + 1, remedy, Some(&said.node), kubectl));
    }
    list(out, "Where to look next", &answer.next);
    list(out, "What podstuck did not see there", &answer.missed);
}
