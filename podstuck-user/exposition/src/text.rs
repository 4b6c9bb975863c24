//! The text format, by the types that its encoder takes.

use prometheus::{
    Result, TextEncoder,
    proto::{self, MetricType},
};

use crate::message::{Bucket, Histogram, Kind, LabelPair, Metric, MetricFamily};

pub(super) fn text(families: &[MetricFamily]) -> Result<String> {
    TextEncoder::new().encode_to_string(&families.iter().map(family).collect::<Vec<_>>())
}

fn family(of: &MetricFamily) -> proto::MetricFamily {
    let mut family = proto::MetricFamily::default();
    family.set_name(of.name.clone());
    family.set_help(of.help.clone());
    family.set_field_type(match of.kind() {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram => MetricType::HISTOGRAM,
    });
    family.set_metric(of.metric.iter().map(metric).collect());
    family
}

fn metric(of: &Metric) -> proto::Metric {
    let mut metric = proto::Metric::from_label(of.label.iter().map(label).collect());
    if let Some(of) = &of.gauge {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(of.value);
        metric.set_gauge(gauge);
    }
    if let Some(of) = &of.counter {
        let mut counter = proto::Counter::default();
        counter.set_value(of.value);
        metric.set_counter(counter);
    }
    if let Some(of) = &of.histogram {
        metric.set_histogram(histogram(of));
    }
    metric
}

fn label(of: &LabelPair) -> proto::LabelPair {
    let mut label = proto::LabelPair::default();
    label.set_name(of.name.clone());
    label.set_value(of.value.clone());
    label
}

fn histogram(of: &Histogram) -> proto::Histogram {
    let bucket = |of: &Bucket| {
        let mut bucket = proto::Bucket::default();
        bucket.set_cumulative_count(of.count);
        bucket.set_upper_bound(of.bound);
        bucket
    };
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(of.buckets.iter().map(bucket).collect());
    histogram.set_sample_count(of.count);
    histogram.set_sample_sum(of.sum);
    histogram
}
