//! JSON Lines, the contract `podstuck/v1`.

use std::{borrow::Cow, io};

use jiff::Timestamp;
use podstuck_engine::versions::Entry;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{
    Serializer,
    ser::{CompactFormatter, Formatter},
};

use podstuck_model::{
    SCHEMA,
    deleted::Deleted,
    diagnosis::{Diagnosis, Gone},
    finding::{Finding, Progress},
    holder::{Holder, Search},
    hung::Hung,
    path::safe,
    summary::{Start, Summary},
    time::rfc3339,
};

/// The content of a line.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// First line of a run.
    Start(&'a Start),
    /// A finding, new or updated.
    Finding(&'a Finding),
    /// A call that does not return, or has returned at last.
    Hung(&'a Hung),
    /// The progress of a mass deletion.
    Progress(&'a Progress),
    /// The pod in question has gone from this node.
    Gone(&'a Gone),
    /// A pod that is being deleted.
    Pod(&'a Deleted),
    /// The answer of `diagnose`.
    Diagnosis(&'a Diagnosis),
    /// A holder of the object that `holders` was asked about.
    Holder(&'a Holder),
    /// The object that `holders` was asked about, and the extent of the search.
    Search(&'a Search),
    /// Last line of a run.
    Summary(&'a Summary),
    /// A cause of the catalogue.
    Cause(&'a Entry<'a>),
}

/// One line with its newline, which is its only control character.
pub fn line(time: Timestamp, line: &Line<'_>) -> String {
    match line {
        Line::Start(body) => render(time, "start", body),
        Line::Finding(body) => render(time, "finding", body),
        Line::Hung(body) => render(time, "hung", body),
        Line::Progress(body) => render(time, "progress", body),
        Line::Gone(body) => render(time, "gone", body),
        Line::Pod(body) => render(time, "pod", body),
        Line::Diagnosis(body) => render(time, "diagnosis", body),
        Line::Holder(body) => render(time, "holder", body),
        Line::Search(body) => render(time, "search", body),
        Line::Summary(body) => render(time, "summary", body),
        Line::Cause(body) => render(time, "cause", body),
    }
}

/// The schemas of all lines of [`Line`], each with its type.
pub fn schemas(generator: &mut SchemaGenerator) -> Vec<Schema> {
    vec![
        schema_of::<Start>("start", generator),
        schema_of::<Finding>("finding", generator),
        schema_of::<Hung>("hung", generator),
        schema_of::<Progress>("progress", generator),
        schema_of::<Gone>("gone", generator),
        schema_of::<Deleted>("pod", generator),
        schema_of::<Diagnosis>("diagnosis", generator),
        schema_of::<Holder>("holder", generator),
        schema_of::<Search>("search", generator),
        schema_of::<Summary>("summary", generator),
        schema_of::<Entry<'_>>("cause", generator),
    ]
}

/// The schema of a line of this type, as [`render`] writes it.
pub fn schema_of<T: JsonSchema>(kind: &'static str, generator: &mut SchemaGenerator) -> Schema {
    let mut schema = Envelope::<'_, T>::json_schema(generator);
    if let Some(field) = schema.pointer_mut("/properties/type") {
        *field = serde_json::json!({"const": kind});
    }
    schema
}

#[derive(Serialize, JsonSchema)]
struct Envelope<'a, T> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    time: String,
    #[serde(flatten)]
    body: &'a T,
}

/// A line of a type that only one command prints; the body is an object.
pub fn render<T: Serialize>(time: Timestamp, kind: &'static str, body: &T) -> String {
    let envelope = |kind, body| Envelope { schema: SCHEMA, kind, time: rfc3339(time), body };
    // A body that is not an object would fail; the tests below show that each type's is one. Still, a reader must
    // then get a whole line that says so, rather than none.
    encode(&envelope(kind, body)).unwrap_or_else(|error| {
        let error = safe(error.to_string().as_bytes()).replace(['"', '\\'], "'");
        format!(
            r#"{{"schema":"{SCHEMA}","type":"error","time":"{}","error":"{error}"}}{}"#,
            rfc3339(time),
            '\n'
        )
    })
}

fn encode<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let mut out = Vec::with_capacity(1024);
    value.serialize(&mut Serializer::with_formatter(&mut out, TerminalSafe))?;
    out.push(b'\n');
    String::from_utf8(out).map_err(serde::ser::Error::custom)
}

/// JSON permits most control characters unescaped, although a terminal obeys some of them (`U+009B`) or shows text
/// reordered (`U+202E`). Escaped as `\uNNNN`, they mean the same to a program.
struct TerminalSafe;

impl Formatter for TerminalSafe {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        if is_safe(fragment) {
            return CompactFormatter.write_string_fragment(writer, fragment);
        }
        for c in fragment.chars() {
            let mut buffer = [0; 4];
            let text: &str = c.encode_utf8(&mut buffer);
            if is_safe(text) {
                writer.write_all(text.as_bytes())?;
            } else {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

fn is_safe(text: &str) -> bool {
    matches!(safe(text.as_bytes()), Cow::Borrowed(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::sample;

    fn at(of: &Line<'_>) -> String {
        line(sample::time(0), of)
    }

    #[test]
    fn a_start_is_pinned() {
        assert_eq!(
            at(&Line::Start(&sample::start())),
            concat!(
                r#"{"schema":"podstuck/v1","type":"start","time":"2023-11-14T22:13:20.000000000Z","#,
                r#""version":"0.1.0","kernel":"6.1.0-18-amd64","backend":"tracepoint","#,
                r#""probes_attached":["sys_enter_umount","sys_exit_umount"],"#,
                r#""probes_missing":["sched_process_exec: not permitted"],"#,
                r#""not_covered":["calls of 32-bit programs: not shown"],"#,
                r#""target":"pod shop/cart-0","roots_searched":["/var/lib/kubelet"]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_finding_is_pinned() {
        assert_eq!(
            at(&Line::Finding(&sample::finding())),
            concat!(
                r#"{"schema":"podstuck/v1","type":"finding","time":"2023-11-14T22:13:20.000000000Z","#,
                r#""id":"volume-held-by-host-process","instance":"volume-held-by-host-process-1","#,
                r#""state":"new","severity":"critical","certainty":"firm","confidence":0.95,"#,
                r#""stage":"volumes","blocks_deletion":true,"#,
                r#""pod":{"uid":"3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d","namespace":"shop","name":"cart-0"},"#,
                r#""container":null,"#,
                r#""volume":{"name":"data","plugin":"kubernetes.io/csi","#,
                r#""path":"/var/lib/kubelet/pods/3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d/volumes/kubernetes.io~csi/data/mount"},"#,
                r#""actor":{"pid":812,"comm":"umount","cgroup":"/system.slice/kubelet.service","#,
                r#""component":"umount-helper","pod":null,"parent":{"pid":700,"comm":"kubelet"}},"#,
                r#""call":{"syscall":"umount2","#,
                r#""path":"/var/lib/kubelet/pods/3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d/volumes/kubernetes.io~csi/data/mount","#,
                r#""errno":16,"errno_name":"EBUSY"},"count":3,"#,
                r#""first":"2023-11-14T22:13:20.000000000Z","last":"2023-11-14T22:17:24.000000000Z","#,
                r#""held_by":"backup (pid 4242) of /system.slice/backup.service","#,
                r#""evidence":[{"fact":"umount2 failed with EBUSY 3 times, 122 s apart","source":"syscall probe","since":"2023-11-14T22:13:20.000000000Z"},"#,
                r#"{"fact":"process 4242 (backup) has its working directory there","source":"/proc/4242/cwd","since":"2023-11-14T22:13:20.000000000Z"}],"#,
                r#""explanation":"A process of the host works in the volume. The kernel does not unmount a file system that is in use, so kubelet tries again every 122 seconds.","#,
                r#""remedies":[{"kind":"command","does":"end backup (pid 4242), which keeps the volume busy","command":"kill 4242","advice":null,"risk":"ends the backup","where":"node","guard":null,"affects":[],"verify":null}],"#,
                r#""likely_causes_ruled_out":["nested-mount-under-volume: nothing is mounted below it"],"not_known":[]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_stuck_call_is_pinned() {
        assert_eq!(
            at(&Line::Hung(&sample::hung())),
            concat!(
                r#"{"schema":"podstuck/v1","type":"hung","time":"2023-11-14T22:13:20.000000000Z","#,
                r#""syscall":"newfstatat","path":"/v/data/m","pid":812,"tid":815,"comm":"kubelet","#,
                r#""age_s":4.2,"since":"first-look","phase":"in-syscall","since_before_start":true,"#,
                r#""over":false,"errno_name":null,"state":"S","wchan":"request_wait_answer","#,
                r#""stack":["request_wait_answer","fuse_do_getattr"],"#,
                r#""victim":{"uid":"3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d","namespace":"shop","name":"cart-0"},"#,
                r#""volume":null}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_progress_is_pinned() {
        assert_eq!(
            at(&Line::Progress(&sample::progress())),
            concat!(
                r#"{"schema":"podstuck/v1","type":"progress","time":"2023-11-14T22:13:20.000000000Z","#,
                r#""path":"/var/lib/kubelet/pods/3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d/volumes/kubernetes.io~empty-dir/cache","#,
                r#""pod":{"uid":"3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d","namespace":"shop","name":"cart-0"},"#,
                r#""deleted":812345,"directories":12001,"rate_per_s":5120.5,"remaining_estimate":200000,"#,
                r#""remaining_range":[150000,300000],"eta_s":39,"eta_range_s":[29,58]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_summary_is_pinned() {
        assert_eq!(
            at(&Line::Summary(&sample::summary())),
            concat!(
                r#"{"schema":"podstuck/v1","type":"summary","time":"2023-11-14T22:13:20.000000000Z","#,
                r#""window_s":30.0,"calls":800015,"#,
                r#""by_outcome":{"unlinkat":{"EISDIR":12},"unlinkat+AT_REMOVEDIR":{"EBUSY":3,"ok":800000}},"#,
                r#""completeness":{"events_lost":0,"events_limited":0,"unmatched_exits":0,"outcome_unknown":0,"map_full":0,"probes_skipped":0,"#,
                r#""io_uring_deletions":0,"drains_failed":0,"looks_late_s":0,"objects_dropped":0,"unresolved":0,"look_alikes":0,"look_alike":null,"probes_missing":[],"degraded":[]},"#,
                r#""self":{"cpu_s":0.12,"rss_bytes":12897485,"bpf_ns_per_call":null}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_holder_is_pinned() {
        assert_eq!(
            at(&Line::Holder(&sample::holder())),
            concat!(
                r#"{"schema":"podstuck/v1","type":"holder","time":"2023-11-14T22:13:20.000000000Z","#,
                r#""how":"fd","object":{"path":"/host/v/log"},"count":3,"through":"propagated-copy","#,
                r#""mount":{"id":77,"namespace":4026532001,"path":"/host/v"},"explains_ebusy":true,"#,
                r#""exact":true,"pid":42,"comm":"agent","component":"workload","#,
                r#""cgroup":"/kubepods/pod0/0123","container":"0123","#,
                r#""pod":{"uid":"3f2a1f5c-8a54-4c0e-9d38-0d7e5a1b2c3d","namespace":"shop","name":"cart-0"},"#,
                r#""source":"/proc/42/fdinfo/7"}"#,
                "\n"
            )
        );
        assert_eq!(
            at(&Line::Search(&sample::search())),
            concat!(
                r#"{"schema":"podstuck/v1","type":"search","time":"2023-11-14T22:13:20.000000000Z","#,
                r#""path":"/v","what":"mount of tmpfs of type tmpfs, device 0:45","device":"0:45","#,
                r#""mount_id":70,"namespace":4026531841,"holders":0,"explain_ebusy":0,"#,
                r#""processes":120,"namespaces":3,"mounts":1000,"unseen":["mapped files of pid 7"]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn a_cause_is_a_line() {
        let cause = podstuck_engine::catalogue::find("mass-deletion").unwrap();
        let value: serde_json::Value =
            serde_json::from_str(&at(&Line::Cause(&cause.into()))).unwrap();
        assert_eq!((&value["type"], &value["id"]), (&"cause".into(), &"mass-deletion".into()));
        assert_eq!(value["look_alikes"][0]["cause"], "call-hung-unexplained");
        assert_eq!(value["kind"], "cause");
    }

    #[test]
    fn a_path_that_is_not_utf8_is_escaped_with_its_bytes_beside_it() {
        let line = at(&Line::Finding(&sample::hostile()));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["call"]["path"], r"/v/caf\xe9\x1b[2J");
        assert_eq!(value["call"]["path_bytes"], "L3YvY2Fm6RtbMko=");
        assert_eq!(value["call"]["errno_name"], "EBUSY");
        assert_eq!(value["volume"]["path"], r"/v\xff");
        assert_eq!(value["volume"]["path_bytes"], "L3b/");
        assert_eq!(value["volume"]["name"], sample::HOSTILE);
    }

    #[test]
    fn no_control_character_is_written_and_none_is_lost() {
        let line = at(&Line::Finding(&sample::hostile()));
        assert!(is_safe(line.trim_end_matches('\n')), "{line:?}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["actor"]["comm"], sample::HOSTILE);
        assert_eq!(value["evidence"][0]["fact"], sample::HOSTILE);
    }

    #[test]
    fn a_body_that_fails_to_serialise_is_still_a_line() {
        let line = render(sample::time(0), "finding", &[1, 2]);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["type"], "error");
    }
}
