//! Metrics in both of Prometheus' exposition formats: text 0.0.4, and protobuf, which alone has native histograms.

pub mod message;
mod text;

use jiff::Timestamp;
use prost::Message;

use message::{Created, Kind, Metric, MetricFamily, Number};
pub use message::{Histogram, LabelPair};

/// The content type of [`Families::protobuf`].
pub const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The labels of a series.
pub fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Vec<LabelPair> {
    pairs.map(|(name, value)| LabelPair { name: name.into(), value: value.into() }).into()
}

/// The metrics of one page.
#[derive(Debug, Default)]
pub struct Families {
    families: Vec<MetricFamily>,
    /// The time at which all counters and histograms were 0, if it is known.
    created: Option<Created>,
}

impl Families {
    /// Empty, with the time at which all counters and histograms were 0, if it is known.
    pub fn since(created: Option<Timestamp>) -> Self {
        let created =
            created.map(|at| Created { seconds: at.as_second(), nanos: at.subsec_nanosecond() });
        Self { families: Vec::new(), created }
    }

    /// Adds a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauges(name, help, [(Vec::new(), value)]);
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.counters(name, help, [(Vec::new(), value)]);
    }

    /// Adds gauges.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Vec<LabelPair>, f64)>,
    ) {
        let metrics = series.into_iter().map(|(label, value)| {
            let gauge = Some(Number { value, created: None });
            Metric { label, gauge, ..Metric::default() }
        });
        self.add(name, help, Kind::Gauge, metrics.collect());
    }

    /// Adds counters.
    pub fn counters(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Vec<LabelPair>, f64)>,
    ) {
        let created = self.created;
        let metrics = series.into_iter().map(|(label, value)| {
            let counter = Some(Number { value, created });
            Metric { label, counter, ..Metric::default() }
        });
        self.add(name, help, Kind::Counter, metrics.collect());
    }

    /// Adds histograms.
    pub fn histograms(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Vec<LabelPair>, Histogram)>,
    ) {
        let created = self.created;
        let metrics = series.into_iter().map(|(label, histogram)| {
            let histogram = Some(Histogram { created, ..histogram });
            Metric { label, histogram, ..Metric::default() }
        });
        self.add(name, help, Kind::Histogram, metrics.collect());
    }

    fn add(&mut self, name: &str, help: &str, kind: Kind, metric: Vec<Metric>) {
        // A family without metrics is an error in the text format.
        if !metric.is_empty() {
            let (name, help, kind) = (name.into(), help.into(), kind.into());
            self.families.push(MetricFamily { name, help, kind, metric });
        }
    }

    /// As text, without native histograms.
    ///
    /// # Errors
    /// Fails if a family is not valid.
    pub fn text(&self) -> prometheus::Result<String> {
        text::text(&self.families)
    }

    /// As protobuf: each family with its length before it. So pages can be joined, as text can.
    pub fn protobuf(&self) -> Vec<u8> {
        self.families.iter().flat_map(Message::encode_length_delimited_to_vec).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use message::Span;

    #[test]
    fn both_formats_have_the_same_and_native_buckets_are_decoded_as_they_were_encoded() {
        let created = Timestamp::new(1_700_000_000, 5).unwrap();
        let mut families = Families::since(Some(created));
        let counts = BTreeMap::from([(-10, 3), (-9, 5), (0, 1), (4, 7)]);
        let mut histogram =
            Histogram { count: 18, sum: 1.5, zero_count: 2, ..Histogram::default() };
        histogram.set_native(3, &counts);
        families.counter("calls_total", "Calls.", 0.0);
        families.gauges("none", "Left out.", []);
        families.gauges("info", "A \"gauge\".", [(labels([("of", "a\"b\nc")]), -1.0)]);
        families.histograms("seconds", "Durations.", [(labels([("of", "x")]), histogram)]);

        let text = families.text().unwrap();
        for line in ["calls_total 0", "info{of=\"a\\\"b\\nc\"} -1", "seconds_count{of=\"x\"} 18"] {
            assert!(text.lines().any(|it| it == line), "no {line} in {text}");
        }
        assert!(!text.contains("none"), "{text}");

        let bytes = families.protobuf();
        let (mut rest, mut decoded) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            decoded.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
        }
        assert_eq!(decoded, families.families);
        let counter = decoded[0].metric[0].counter.unwrap();
        assert_eq!(counter.created, Some(Created { seconds: 1_700_000_000, nanos: 5 }));
        let histogram = decoded[2].metric[0].histogram.as_ref().unwrap();
        assert_eq!((histogram.native(), histogram.created), (counts, counter.created));
        let spans = [(-10, 2), (8, 1), (3, 1)].map(|(offset, length)| Span { offset, length });
        assert_eq!((&histogram.spans[..], &histogram.deltas[..]), (&spans[..], &[3, 2, -4, 6][..]));
    }
}
