//! `histograms.csv`: one row a series, for spreadsheets and notebooks.
//!
//! Counts and means are exact. The other durations are middles of latency buckets, at most 6.25 %
//! from the truth between 512 ns and 73 minutes; so `mean_ns` may lie outside `min_ns..max_ns`.
//!
//! A volume is named by whoever made its directory, and a spreadsheet runs what begins with `=`, `+`,
//! `-` or `@`. Such a pod or volume has a `'` before it, which spreadsheets take for "text".

use std::borrow::Cow;

use serde::Serialize;

use super::{
    error::ExportError,
    histogram::{histogram, quantile},
    rows::rows,
};
use crate::model::series::SeriesTable;

/// Name of the file.
pub const FILE: &str = "histograms.csv";

const HEADER: [&str; 13] = [
    "syscall",
    "outcome",
    "pod",
    "volume",
    "component",
    "count",
    "min_ns",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p99_9_ns",
    "max_ns",
    "mean_ns",
];

#[derive(Serialize)]
struct Row<'a> {
    syscall: &'a str,
    outcome: &'a str,
    pod: &'a str,
    volume: &'a str,
    component: &'a str,
    count: u64,
    min_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p99_9_ns: u64,
    max_ns: u64,
    mean_ns: String,
}

/// Renders the table, sorted by its first five columns.
pub fn csv(series: &SeriesTable) -> Result<Vec<u8>, ExportError> {
    // Written by hand, so that a table without rows has its header too.
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(HEADER).map_err(ExportError::render(FILE))?;
    for (labels, series) in rows(series) {
        let histogram = histogram(&series).map_err(ExportError::render(FILE))?;
        let at = |share| quantile(&histogram, share);
        let row = Row {
            syscall: labels.syscall,
            outcome: &labels.outcome,
            pod: &text(&labels.pod),
            volume: &text(&labels.volume),
            component: labels.component,
            count: series.calls,
            min_ns: at(0.0),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: at(1.0),
            mean_ns: format!("{:.1}", series.mean_ns()),
        };
        writer.serialize(row).map_err(ExportError::render(FILE))?;
    }
    writer.into_inner().map_err(|e| ExportError::Render { file: FILE, source: Box::new(e) })
}

/// A name, which no spreadsheet takes for a formula.
fn text(name: &str) -> Cow<'_, str> {
    if name.starts_with(['=', '+', '-', '@']) { format!("'{name}").into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::sample,
        model::call::{Call, Outcome},
    };

    #[test]
    fn a_name_is_no_formula() {
        for (volume, cell) in [
            ("=HYPERLINK(0)", "'=HYPERLINK(0)"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("a=b", "a=b"),
        ] {
            let key = sample::key(Call::Rmdir, Outcome::OK, "", volume);
            let table = SeriesTable::from([(key, sample::series(&[(300, 1)]))]);
            let text = String::from_utf8(csv(&table).unwrap()).unwrap();
            let row = format!("\nrmdir,ok,,{cell},other,1,256,");
            assert!(text.contains(&row), "{text}");
        }
    }

    #[test]
    fn rows_are_sorted_quoted_and_exact_in_the_mean() {
        let text = String::from_utf8(csv(&sample::table()).unwrap()).unwrap();
        let uid = sample::UID;
        let expected = format!(
            "syscall,outcome,pod,volume,component,count,min_ns,p50_ns,p90_ns,p99_ns,p99_9_ns,max_ns,mean_ns\n\
             umount2,errno 530,,,other,1,4398046511104,4398046511104,4398046511104,4398046511104,4398046511104,4398046511104,5000000000000.0\n\
             unlink,ok,{uid},\"a,b\"\" ;c\\x1b\",workload,2,256,256,256,256,256,256,300.0\n\
             unlinkat,EBUSY,{uid},data,kubelet,103,9728,9728,9728,1275068416,1275068416,1275068416,35932038.8\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_quiet_window_has_its_header() {
        let text = String::from_utf8(csv(&SeriesTable::new()).unwrap()).unwrap();
        assert_eq!(text, HEADER.join(",") + "\n");
    }
}
