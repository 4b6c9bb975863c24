//! The chart's README, which Artifact Hub shows: its values, from `values.yaml` with its comments and from the schema.

use std::{env, fmt::Write, fs};

use serde_json::Value;

use super::common::CHART;

const HEAD: &str = "# podstuck-agent

Says which pods of each node are stuck Terminating, why, and which command releases them: as Events on the pods, and as
metrics for Prometheus. A DaemonSet with four capabilities, without `privileged`, and with read-only mounts of the node.
It takes no command over the network, and fetches nothing.

```console
$ helm install podstuck-agent . --namespace kube-system --set image.repository=REGISTRY/podstuck
```

[docs/agent.md](../../../docs/agent.md) says what it writes, measures, may do and needs.

## Values

Written by `PODSTUCK_BLESS=1 cargo test -p podstuck-agent --test chart`, from values.yaml and values.schema.json.

| value | default | may be | meaning |
|---|---|---|---|
";

/// A line of values.yaml with a value of its own: the path, and the comment above it.
struct Row {
    path: Vec<String>,
    comment: String,
}

/// The rows. A comment above a section belongs to its first value.
fn rows(text: &str) -> Vec<Row> {
    let (mut rows, mut path, mut comment) = (Vec::new(), Vec::<String>::new(), String::new());
    // The first lines are about the file.
    let (_, text) = text.split_once("\nimage:").unwrap();
    for line in format!("image:{text}").lines() {
        let inner = line.trim_start();
        if let Some(more) = inner.strip_prefix("# ") {
            let space = if comment.is_empty() { "" } else { " " };
            write!(comment, "{space}{more}").unwrap();
        } else if let Some((key, value)) = inner.split_once(':') {
            path.truncate((line.len() - inner.len()) / 2);
            path.push(key.to_owned());
            if !value.is_empty() {
                rows.push(Row { path: path.clone(), comment: std::mem::take(&mut comment) });
            }
        }
    }
    rows
}

/// What the schema permits, in words.
fn permitted(schema: &Value, path: &[String]) -> String {
    let mut at = schema;
    for key in path {
        // The rest is Kubernetes' own, which its schemas describe.
        let Some(inner) = at.get("properties") else { break };
        at = &inner[key];
        if let Some(name) = at["$ref"].as_str() {
            at = schema.pointer(name.trim_start_matches('#')).unwrap();
        }
    }
    if let Some(words) = at["enum"].as_array() {
        let words = words.iter().map(|word| format!("`{}`", word.as_str().unwrap()));
        return words.collect::<Vec<_>>().join(", ");
    }
    if let Some(kinds) = at["oneOf"].as_array() {
        let kinds = kinds.iter().map(|kind| kind["type"].as_str().unwrap());
        return kinds.collect::<Vec<_>>().join(" or ");
    }
    at["type"].as_str().unwrap_or_else(|| panic!("{path:?} is not in the schema")).to_owned()
}

#[test]
fn the_readme_has_each_value() {
    let read = |name: &str| fs::read_to_string(format!("{CHART}/{name}")).unwrap();
    let text = read("values.yaml");
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut made = HEAD.to_owned();
    let rows = rows(&text);
    for Row { path, comment } in &rows {
        let pointer = format!("/{}", path.join("/"));
        let default = values.pointer(&pointer).unwrap_or_else(|| panic!("no {pointer}"));
        let permitted = permitted(&schema, path);
        writeln!(made, "| `{}` | `{default}` | {permitted} | {comment} |", path.join(".")).unwrap();
    }
    let leaves: usize = values.as_object().unwrap().values().map(leaves).sum();
    assert!(rows.len() >= 15 && rows.len() <= leaves, "{} rows of {leaves}", rows.len());
    if env::var_os("PODSTUCK_BLESS").is_some() {
        fs::write(format!("{CHART}/README.md"), &made).unwrap();
    }
    let is_fresh = fs::read_to_string(format!("{CHART}/README.md")).is_ok_and(|it| it == made);
    assert!(is_fresh, "README.md is not what the values make: PODSTUCK_BLESS=1 writes it");
}

fn leaves(value: &Value) -> usize {
    value.as_object().filter(|it| !it.is_empty()).map_or(1, |it| it.values().map(leaves).sum())
}

/// By <https://artifacthub.io/docs/topics/annotations/helm/>.
#[test]
fn artifact_hub_understands_the_annotations() {
    let read = |name: &str| -> Value {
        serde_saphyr::from_str(&fs::read_to_string(format!("{CHART}/{name}")).unwrap()).unwrap()
    };
    let (chart, values) = (read("Chart.yaml"), read("values.yaml"));
    let annotation = |name: &str| -> Value {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap();
        serde_saphyr::from_str(text).unwrap()
    };
    assert_eq!(annotation("category"), "monitoring-logging");
    assert_eq!((annotation("operator"), annotation("prerelease")), (false.into(), true.into()));
    let image = format!(
        "{}:{}",
        values["image"]["repository"].as_str().unwrap(),
        chart["appVersion"].as_str().unwrap()
    );
    assert_eq!(annotation("images")[0]["image"], image, "what the chart starts");
    let kinds = ["added", "changed", "deprecated", "removed", "fixed", "security"];
    for change in annotation("changes").as_array().unwrap() {
        assert!(kinds.contains(&change["kind"].as_str().unwrap()), "{change}");
        assert!(!change["description"].as_str().unwrap().is_empty(), "{change}");
    }
}
