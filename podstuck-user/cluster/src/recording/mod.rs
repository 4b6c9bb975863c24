//! Recordings of the API server's answers. The first line of the file describes the run; each further line holds one
//! question and its answer, as JSON. An answer contains only those fields of an object that the decision reads: no
//! data of a Secret or a ConfigMap, no environment and no command line of a container.

mod redact;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use podstuck_model::cluster::{Answer, Facts, Question};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::{read::Server, target::Asked};
use redact::Redactor;

/// Version of the file format.
const FORMAT: &str = "podstuck-cluster-recording/1";
/// Maximum size of a recording, in bytes. It bounds the memory used for a file of another type.
const LARGEST: u64 = 256 << 20;

/// The first line of the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Head {
    format: String,
    podstuck: String,
    pub(crate) asked: Asked,
    pub(crate) server: Server,
    pub(crate) asks_kubelets: bool,
    #[serde(default)]
    pub(crate) tries_removals: bool,
    /// Number of requests that were made, and the limit.
    pub(crate) requests: (u32, u32),
}

/// The questions of a run, each with its answer.
pub(crate) type Answers = BTreeMap<Question, Answer>;

#[derive(Deserialize, Serialize)]
struct Line {
    question: Question,
    answer: Answer,
}

impl Head {
    /// The head for a run of this program.
    pub(crate) fn new(asked: Asked, server: Server, facts: &Facts, requests: (u32, u32)) -> Self {
        let podstuck = env!("CARGO_PKG_VERSION").to_owned();
        let &Facts { asks_kubelets, tries_removals, .. } = facts;
        let format = FORMAT.into();
        Self { format, podstuck, asked, server, asks_kubelets, tries_removals, requests }
    }
}

/// A recording that is not written yet. Its file appears under its name only when it is complete.
pub(crate) struct Pending {
    file: NamedTempFile,
    path: PathBuf,
}

/// Prepares a file that only its owner can read, so that an error is reported before the API server is asked.
///
/// # Errors
///
/// Fails if the file exists or its directory cannot be written.
pub(crate) fn create(path: &Path) -> Result<Pending> {
    let failed = || format!("cannot create the recording {}", path.display());
    if path.symlink_metadata().is_ok() {
        return Err(std::io::Error::from(ErrorKind::AlreadyExists)).with_context(failed);
    }
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let file = NamedTempFile::new_in(directory.unwrap_or(Path::new("."))).with_context(failed)?;
    Ok(Pending { file, path: path.into() })
}

/// Writes the head and all questions with their answers.
///
/// # Errors
///
/// Fails if the file cannot be written, or if another one has its name by now.
pub(crate) fn write(pending: Pending, head: &Head, facts: &Facts, redacted: bool) -> Result<()> {
    let mut redactor = redacted.then(Redactor::default);
    let mut file = BufWriter::new(pending.file);
    let mut line = |value: serde_json::Result<Value>| {
        let mut value = value?;
        slim(&mut value);
        if let Some(redactor) = &mut redactor {
            redactor.value(&mut value);
        }
        serde_json::to_writer(&mut file, &value)?;
        file.write_all(b"\n")
    };
    let mut all = || {
        line(serde_json::to_value(head))?;
        for (question, answer) in facts.answers() {
            let (question, answer) = (question.clone(), answer.clone());
            line(serde_json::to_value(Line { question, answer }))?;
        }
        std::io::Result::Ok(())
    };
    all()
        .and_then(|()| file.into_inner().map_err(Into::into))
        .and_then(|file| file.persist_noclobber(&pending.path).map(drop).map_err(Into::into))
        .with_context(|| format!("cannot write the recording {}", pending.path.display()))
}

/// Removes what no decision reads and what may contain more than names: all annotations except those with Kubernetes'
/// own keys, kubectl's last-applied configuration, templates of ephemeral claims, details of container states (their
/// names stay), the content of webhooks' match conditions (their number stays), and managed fields except finalizers.
fn slim(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(slim),
        Value::Object(fields) => {
            fields.retain(|_, item| !item.is_null());
            for (name, item) in fields {
                match (name.as_str(), item) {
                    ("annotations", Value::Object(all)) => {
                        all.retain(|key, _| {
                            key.contains("kubernetes.io/") || key.contains("k8s.io/")
                        });
                        all.remove("kubectl.kubernetes.io/last-applied-configuration");
                    }
                    ("fieldsV1", all) => {
                        let finalizers =
                            all.pointer_mut("/f:metadata/f:finalizers").map(Value::take);
                        *all = finalizers.map_or(
                            Value::Null,
                            |it| serde_json::json!({"f:metadata": {"f:finalizers": it}}),
                        );
                    }
                    ("ephemeral", it) => *it = Value::Object(Default::default()),
                    ("state", Value::Object(all)) => {
                        all.values_mut().for_each(|it| *it = Value::Null)
                    }
                    ("matchConditions", Value::Array(all)) => all.fill(Value::Null),
                    (_, item) => slim(item),
                }
            }
        }
        _ => {}
    }
}

/// Reads a recording.
///
/// # Errors
///
/// Fails if the file cannot be read or is not a recording of this format.
pub(crate) fn read(path: &Path) -> Result<(Head, Answers)> {
    let shown = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot open the recording {shown}"))?;
    parse(BufReader::new(std::io::Read::take(file, LARGEST)), &shown)
}

/// Reads the content of a recording; an error names the file as `shown`.
fn parse(from: impl BufRead, shown: &str) -> Result<(Head, Answers)> {
    let mut lines = from.lines().enumerate();
    let (_, first) = lines.next().with_context(|| format!("{shown} is empty"))?;
    let first = first.with_context(|| format!("cannot read {shown}"))?;
    let value: Value = serde_json::from_str(&first).unwrap_or_default();
    if value["format"] != FORMAT {
        bail!(
            "{shown} is not a recording of `kubectl podstuck --record` that this version reads ({FORMAT}); \
             `podstuck replay` reads those of a node"
        );
    }
    let head = serde_json::from_value(value).with_context(|| format!("{shown}, line 1"))?;
    let mut answers = BTreeMap::new();
    for (number, line) in lines {
        let of_line = || format!("{shown}, line {}", number + 1);
        let Line { question, answer } = serde_json::from_str(&line.with_context(of_line)?)
            .with_context(|| format!("{}: the file was cut off or changed", of_line()))?;
        answers.insert(question, answer);
    }
    Ok((head, answers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_may_hold_a_password_is_not_recorded() {
        let mut value = json!({
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
                "team.example.com/token": "hunter2",
                "kubernetes.io/config.mirror": "x",
            },
            "volumes": [{"ephemeral": {"volumeClaimTemplate": "hunter2"}}],
            "containerStatuses": [{"state": {"waiting": {"message": "hunter2"}}}],
            "matchConditions": [{"expression": "hunter2"}],
            "fieldsV1": {"f:data": {"f:hunter2": {}}, "f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}}},
        });
        slim(&mut value);
        assert_eq!(
            value,
            json!({
                "annotations": {"kubernetes.io/config.mirror": "x"},
                "volumes": [{"ephemeral": {}}],
                "containerStatuses": [{"state": {"waiting": null}}],
                "matchConditions": [null],
                "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}}},
            })
        );
    }

    #[test]
    fn another_file_is_refused_with_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, why) in [
            ("", "is empty"),
            ("{\"run\":1}\n", "is not a recording of `kubectl podstuck --record`"),
            ("{\"format\":\"podstuck-cluster-recording/1\"}\n", "line 1"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let error = format!("{:#}", read(file.path()).unwrap_err());
            assert!(
                error.contains(why) && error.contains(file.path().to_str().unwrap()),
                "{error}"
            );
        }
        let error = format!("{:#}", create(file.path()).err().unwrap());
        assert!(error.contains("already exists"), "{error}");
    }

    #[test]
    fn a_recording_appears_when_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("case");
        drop(create(&path).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
        let (early, late) = (create(&path).unwrap(), create(&path).unwrap());
        let facts = Facts::new(jiff::Timestamp::UNIX_EPOCH);
        let asked = Asked::All { namespace: None, labels: None, all_types: false };
        let server = Server { now: facts.now, version: String::new() };
        let head = Head::new(asked, server, &facts, (0, 0));
        write(early, &head, &facts, false).unwrap();
        assert!(read(&path).is_ok());
        let error = format!("{:#}", write(late, &head, &facts, false).unwrap_err());
        assert!(error.contains("exists"), "{error}");
    }

    /// Answers from any content, in each format.
    #[test]
    fn fuzz_cluster_recording() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        podstuck_fuzz::fuzz("cluster_recording", |input| {
            let Ok((head, answers)) = parse(input, "x") else { return };
            let report = runtime.block_on(crate::run::answered(&head, answers));
            let Ok(report) = report else { return };
            let kubectl = crate::present::Kubectl::default();
            for wide in [false, true] {
                crate::present::text(&report, &kubectl, true, wide);
            }
            crate::present::yaml(&report, &kubectl);
            crate::present::names(&report);
        });
    }
}
