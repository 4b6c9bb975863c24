//! The messages of `io.prometheus.client` (`metrics.proto` of prometheus/client_model), without what is not used here.

use std::collections::BTreeMap;

use prost::{Enumeration, Message};

/// All series of one name.
#[derive(Clone, PartialEq, Message)]
pub struct MetricFamily {
    /// Name of the metric.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it means.
    #[prost(string, tag = "2")]
    pub help: String,
    /// Its type.
    #[prost(enumeration = "Kind", tag = "3")]
    pub kind: i32,
    /// The series.
    #[prost(message, repeated, tag = "4")]
    pub metric: Vec<Metric>,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// It only grows.
    Counter = 0,
    /// It grows and falls.
    Gauge = 1,
    /// Counts by value.
    Histogram = 4,
}

/// One series.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    /// Its labels.
    #[prost(message, repeated, tag = "1")]
    pub label: Vec<LabelPair>,
    /// The value of a gauge.
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<Number>,
    /// The value of a counter.
    #[prost(message, optional, tag = "3")]
    pub counter: Option<Number>,
    /// The value of a histogram.
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<Histogram>,
}

/// A label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct LabelPair {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// The messages `Gauge` and `Counter`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Number {
    /// The value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// When a counter was 0.
    #[prost(message, optional, tag = "3")]
    pub created: Option<Created>,
}

/// The message `Timestamp` of `google.protobuf`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Created {
    /// Seconds since the epoch.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, in nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A histogram, with classic buckets, native ones, or both.
#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    /// Number of values.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// Their sum.
    #[prost(double, tag = "2")]
    pub sum: f64,
    /// The classic buckets.
    #[prost(message, repeated, tag = "3")]
    pub buckets: Vec<Bucket>,
    /// Resolution of the native buckets: 2 to the power of this many for each power of two.
    #[prost(sint32, tag = "5")]
    pub schema: i32,
    /// The greatest value of the zero bucket.
    #[prost(double, tag = "6")]
    pub zero_threshold: f64,
    /// Values in the zero bucket.
    #[prost(uint64, tag = "7")]
    pub zero_count: u64,
    /// Which of the native buckets have values.
    #[prost(message, repeated, tag = "12")]
    pub spans: Vec<Span>,
    /// Their counts, each as the difference to the one before.
    #[prost(sint64, repeated, tag = "13")]
    pub deltas: Vec<i64>,
    /// When the histogram was empty.
    #[prost(message, optional, tag = "15")]
    pub created: Option<Created>,
}

/// A classic bucket.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Bucket {
    /// Values up to the bound.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// The bound.
    #[prost(double, tag = "2")]
    pub bound: f64,
}

/// Consecutive native buckets.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Span {
    /// Number of empty buckets before it; of the first, its index.
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    /// Number of its buckets.
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

impl Histogram {
    /// Sets the native buckets: the counts by index. The bucket with index `i` ends at 2^(`i` / 2^`schema`).
    pub fn set_native(&mut self, schema: i32, counts: &BTreeMap<i32, u64>) {
        self.schema = schema;
        let (mut next, mut before) = (0, 0);
        for (index, count) in counts {
            match self.spans.last_mut().filter(|_| *index == next) {
                Some(span) => span.length += 1,
                None => self.spans.push(Span { offset: index - next, length: 1 }),
            }
            let count = count.cast_signed();
            self.deltas.push(count.wrapping_sub(before));
            (next, before) = (index + 1, count);
        }
    }

    /// The native buckets' counts by index.
    pub fn native(&self) -> BTreeMap<i32, u64> {
        let (mut counts, mut next, mut count) = (BTreeMap::new(), 0, 0_i64);
        let mut deltas = self.deltas.iter();
        for span in &self.spans {
            next += span.offset;
            for delta in deltas.by_ref().take(span.length as usize) {
                count = count.wrapping_add(*delta);
                counts.insert(next, count.cast_unsigned());
                next += 1;
            }
        }
        counts
    }
}
