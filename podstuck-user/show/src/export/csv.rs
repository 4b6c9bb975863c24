//! `histograms.csv`: one row a series, for spreadsheets and notebooks.
//!
//! Counts, means, the shortest and the longest call are exact. Quantiles are the ends of latency buckets, less than an
//! eighth above the truth between 512 ns and 73 minutes.
//!
//! The creator of a volume's directory names the volume, and a spreadsheet runs text that begins with `=`, `+`, `-`
//! or `@`. Such a pod or volume gets a `'` before it, which spreadsheets read as "text".

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    error::ExportError,
    rows::{Labels, rows},
};
use podstuck_model::series::{NamesTable, Series, SeriesTable};

/// Name of the file.
pub const FILE: &str = "histograms.csv";

const HEADER: [&str; 17] = [
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
    "namespace",
    "pod_name",
    "container",
    "plugin",
];

/// A series as in every output. Its names are escaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are the columns of the file")]
pub struct Row {
    pub syscall: String,
    pub outcome: String,
    pub pod: String,
    pub volume: String,
    pub component: String,
    pub count: u64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
    pub max_ns: u64,
    pub mean_ns: String,
    pub namespace: String,
    pub pod_name: String,
    pub container: String,
    pub plugin: String,
}

/// The first series of all, sorted by the first five columns and the container.
pub fn table(series: &SeriesTable, names: &NamesTable, most: usize) -> Vec<Row> {
    let row = |(labels, series): (Labels, Series)| {
        let at = |share| series.quantile(share);
        Row {
            syscall: labels.syscall.into(),
            outcome: labels.outcome,
            pod: labels.pod,
            volume: labels.volume,
            component: labels.component.into(),
            count: series.calls,
            min_ns: series.min_ns(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: series.max_ns(),
            mean_ns: format!("{:.1}", series.mean_ns()),
            namespace: labels.names.namespace,
            pod_name: labels.names.pod_name,
            container: labels.container,
            plugin: labels.names.plugin,
        }
    };
    rows(series, names).into_iter().take(most).map(row).collect()
}

/// Renders the table.
pub fn csv(series: &SeriesTable, names: &NamesTable) -> Result<Vec<u8>, ExportError> {
    // Written explicitly, so that a table without rows has its header too.
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(HEADER).map_err(ExportError::render(FILE))?;
    for row in table(series, names, usize::MAX) {
        let row = row.with_names(|name| text(&name).into_owned());
        writer.serialize(row).map_err(ExportError::render(FILE))?;
    }
    writer.into_inner().map_err(|e| ExportError::Render { file: FILE, source: Box::new(e) })
}

/// Reads the table back.
///
/// # Errors
/// Fails when a row differs from podstuck's format.
pub fn read(file: &[u8]) -> Result<Vec<Row>, csv::Error> {
    let plain = |name: String| match name.strip_prefix('\'') {
        Some(rest) if text(rest) == name => rest.into(),
        _ => name,
    };
    let rows = csv::Reader::from_reader(file).into_deserialize();
    rows.map(|row| row.map(|row: Row| row.with_names(plain))).collect()
}

impl Row {
    /// Applies `change` to each name chosen by others.
    fn with_names(self, change: impl Fn(String) -> String) -> Self {
        Self {
            pod: change(self.pod),
            volume: change(self.volume),
            namespace: change(self.namespace),
            pod_name: change(self.pod_name),
            container: change(self.container),
            plugin: change(self.plugin),
            ..self
        }
    }
}

/// A name in a form that no spreadsheet reads as a formula.
fn text(name: &str) -> Cow<'_, str> {
    if name.starts_with(['=', '+', '-', '@']) { format!("'{name}").into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample;
    use podstuck_model::{
        call::{Call, Outcome},
        series::TargetNames,
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
            let text = String::from_utf8(csv(&table, &NamesTable::new()).unwrap()).unwrap();
            let row = format!("\nrmdir,ok,,{cell},other,1,300,300,");
            assert!(text.contains(&row), "{text}");
            assert_eq!(read(text.as_bytes()).unwrap(), super::table(&table, &NamesTable::new(), 9));
        }
    }

    #[test]
    fn rows_are_sorted_quoted_and_exact_in_the_mean() {
        let of_pod = TargetNames {
            namespace: "shop".into(),
            pod_name: "-1".into(),
            plugin: "kubernetes.io/csi".into(),
        };
        let key = (sample::UID.into(), "data".into(), String::new());
        let names = NamesTable::from([(key, of_pod)]);
        let text = String::from_utf8(csv(&sample::table(), &names).unwrap()).unwrap();
        let uid = sample::UID;
        let expected = format!(
            "syscall,outcome,pod,volume,component,count,min_ns,p50_ns,p90_ns,p99_ns,p99_9_ns,max_ns,mean_ns,namespace,pod_name,container,plugin\n\
             umount2,errno 530,,,other,1,5000000000000,5000000000000,5000000000000,5000000000000,5000000000000,5000000000000,5000000000000.0,,,,\n\
             unlink,ok,{uid},\"a,b\"\" ;c\\x1b\",workload,2,300,300,300,300,300,300,300.0,,,,\n\
             unlinkat,EBUSY,{uid},data,kubelet,103,10000,10239,10239,1233333333,1233333333,1233333333,35932038.8,shop,'-1,,kubernetes.io/csi\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_quiet_window_has_its_header() {
        let text =
            String::from_utf8(csv(&SeriesTable::new(), &NamesTable::new()).unwrap()).unwrap();
        assert_eq!(text, HEADER.join(",") + "\n");
    }
}
