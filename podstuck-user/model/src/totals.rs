//! Counts of a node, summed over pods, volumes and containers. They can outlive a process of podstuck.

use std::collections::BTreeMap;

use podstuck_common::count::CallTotals;
use serde::{Deserialize, Serialize};

use super::{
    call::Outcome,
    identity::Component,
    series::{Series, Span},
    summary::Completeness,
};

/// Version of the text.
const VERSION: u32 = 1;
/// Limit of series. Those of further plugins have no plugin.
const SERIES: usize = 2048;

/// The labels of one series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeKey {
    /// The measured span.
    pub span: Span,
    /// The outcome.
    pub outcome: Outcome,
    /// The caller's component.
    pub component: Component,
    /// Plugin of the volume; empty if unknown.
    pub plugin: String,
    /// Whether the calls were made on a pod, a container or a volume. Of other calls, only the number is known.
    pub on_target: bool,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The series.
    pub series: BTreeMap<NodeKey, Series>,
    /// Data that earlier processes have lost; only its numbers.
    pub lost_before: Completeness,
    /// Number of times that calls between two processes may be missing.
    pub gaps: u64,
    /// Whether the counts outlive this process; `None` if they are not to.
    pub is_kept: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    series: Vec<(NodeKey, Series)>,
    lost: Completeness,
    /// The kernel's own counters of losses that `lost` has.
    raw_losses: Vec<u64>,
    gaps: u64,
}

impl Totals {
    /// Adds calls.
    pub fn add(&mut self, key: NodeKey, bucket: u16, count: CallTotals) {
        let is_full = self.series.len() >= SERIES && !self.series.contains_key(&key);
        let key = if is_full { NodeKey { plugin: String::new(), ..key } } else { key };
        let on_target = key.on_target;
        let series = self.series.entry(key).or_default();
        if on_target {
            series.add(bucket, count);
        } else {
            series.calls = series.calls.saturating_add(count.calls);
        }
    }

    /// As text, with the losses of this process and the kernel's own counters of them.
    ///
    /// # Errors
    /// Fails if it cannot be represented.
    pub fn to_text(&self, lost: &Completeness, raw_losses: &[u64]) -> serde_json::Result<Vec<u8>> {
        let mut all = Completeness::default();
        all.add_losses(&self.lost_before);
        all.add_losses(lost);
        let series =
            self.series.iter().map(|(key, series)| (key.clone(), series.clone())).collect();
        let raw_losses = raw_losses.to_vec();
        serde_json::to_vec(&Text {
            version: VERSION,
            series,
            lost: all,
            raw_losses,
            gaps: self.gaps,
        })
    }

    /// The totals of such a text, and the kernel's counters at that time; `None` for a text of another version.
    pub fn of_text(text: &[u8]) -> Option<(Self, Vec<u64>)> {
        let text: Text =
            serde_json::from_slice(text).ok().filter(|text: &Text| text.version == VERSION)?;
        let Text { series, lost, raw_losses, gaps, .. } = text;
        let series = series.into_iter().collect();
        Some((Self { series, lost_before: lost, gaps, is_kept: None }, raw_losses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    fn key(plugin: &str, on_target: bool) -> NodeKey {
        let (span, outcome, component) = (Span::Call(Call::Rmdir), Outcome(16), Component::Kubelet);
        NodeKey { span, outcome, component, plugin: plugin.into(), on_target }
    }

    #[test]
    fn the_next_process_reads_what_was_written() {
        let mut totals = Totals { gaps: 2, ..Totals::default() };
        totals.add(key("kubernetes.io/csi", true), 7, CallTotals::of_equal(3, 900));
        totals.add(key("", false), 7, CallTotals::of_equal(4, 900));
        totals.lost_before.map_full = 5;
        let lost = Completeness { map_full: 1, probes_skipped: Some(6), ..Completeness::default() };
        let text = totals.to_text(&lost, &[0, 9]).unwrap();
        let (read, raw) = Totals::of_text(&text).unwrap();
        assert_eq!((read.series, read.gaps, raw), (totals.series, 2, vec![0, 9]));
        assert_eq!((read.lost_before.map_full, read.lost_before.probes_skipped), (6, Some(6)));
        assert!(Totals::of_text(b"{}").is_none() && Totals::of_text(b"").is_none());
    }

    #[test]
    fn too_many_plugins_have_no_name_and_no_call_is_lost() {
        let mut totals = Totals::default();
        for plugin in 0..SERIES + 9 {
            totals.add(key(&plugin.to_string(), true), 7, CallTotals::of_equal(1, 900));
        }
        assert_eq!(totals.series.len(), SERIES + 1);
        assert_eq!(totals.series[&key("", true)].calls, 9);
    }
}
