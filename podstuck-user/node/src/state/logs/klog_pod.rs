//! Complaints about a pod in kubelet's log, whatever their text: any warning, error or message with an error that names
//! the pod. No list of phrases decides what counts; `klog` and `klog_runtime` interpret the known ones.

use std::{borrow::Cow, sync::LazyLock};

use jiff::Timestamp;
use podstuck_model::{
    bounded::Bounded,
    said::{self, Level, is_not_found, template},
};
use regex::Regex;

use super::{
    attempts::Finding,
    deletions::{Deletions, Name},
    fixed,
    go_text::{quoted, value},
    pod_ids::PodIds,
};
use crate::identity::uid::is_pod_uid;

/// Pods whose complaints are kept, those with the latest complaints.
const PODS: usize = 1024;
/// Kinds of complaints that are kept per pod, the last ones: no pod takes the place of another.
const KINDS: usize = 8;

/// Bytes that are kept of a complaint: its subject is at its beginning, and recordings contain it.
const LONGEST: usize = 1024;

/// The pod that an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    Uid(String),
    /// Named without its UID, by kubelet's status manager.
    Name(Name),
    /// Named without its namespace, by older kubelets.
    Alone(String),
    /// Id of one of its containers, or of its sandbox.
    Container(String),
}

/// Where kubelet names a pod outside of klog's fields. Its own text precedes what it quotes, so the first match
/// counts.
static UID: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r#"(?:\bpod \\?"?|\(UID: \\?"|\bpodName:|/pods/|\b[a-z0-9.-]+_[a-z0-9-]+\(|KillPodSandbox\\?" for \\?")"#,
        r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b"
    ))
});
/// Up to 1.19, by its namespace and name (pkg/kubelet/status/status_manager.go: `Status update on pod`).
static NAMED: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"\bpod ([a-z0-9-]+)/([a-z0-9.-]*[a-z0-9])(?:[ :,]|$)"));
/// A pod by its name alone, up to 1.20 (pkg/kubelet/kubelet_pods.go: `Killing unwanted pod`).
static ALONE: LazyLock<Regex> = LazyLock::new(|| fixed(r#"\bpod \\?"([a-z0-9.-]+)\\?""#));
static CONTAINER: LazyLock<Regex> = LazyLock::new(|| fixed(r"\b([0-9a-f]{64})\b"));

/// Entries that are no complaints: those at every container's end, when kubelet asks for a container that was removed
/// meanwhile, and those of probes.
static USUAL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:ContainerStatus from runtime service failed|DeleteContainer returned error|Probe failed$|",
        r#"(?:Readiness|Liveness|Startup) probe for |ContainerStatus "[0-9a-f]{64}" from runtime service failed)"#
    ))
});

/// A complaint about a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) whose: Whose,
    pub(super) level: Level,
    pub(super) text: String,
}

/// The complaint in a message, if it is one about a pod.
pub(super) fn complaint(severity: u8, message: &str) -> Option<Complaint> {
    let level = match severity {
        b'E' | b'F' => Level::Error,
        b'W' => Level::Warning,
        _ => Level::Info,
    };
    let is_error = level != Level::Info;
    // Most messages of a log end here.
    if !is_error && !["ailed", "err", "Warning"].iter().any(|word| message.contains(word)) {
        return None;
    }
    let Some((headline, fields)) = quoted(message) else {
        let whose = of_words(message).filter(|_| is_error || message.contains("ailed"))?;
        let is_usual = USUAL.is_match(message);
        let complaint = Complaint { whose, level, text: first_of(message) };
        return (!is_usual).then_some(complaint);
    };
    if USUAL.is_match(&headline) {
        return None;
    }
    let fields = Fields(fields).collect::<Vec<_>>();
    let field = |name: &str| fields.iter().find(|field| field.0 == name).map(|field| &*field.1);
    let named = |name: &str| {
        let (namespace, name) = field(name)?.split_once('/')?;
        Some(Whose::Name((namespace.to_owned(), name.to_owned())))
    };
    // An event that kubelet has sent, with its own text.
    if let (Some("Warning"), Some("Pod"), Some(reason)) =
        (field("type"), field("kind"), field("reason"))
    {
        let text = format!("{reason}: {}", field("message").unwrap_or_default());
        let level = level.max(Level::Warning);
        return Some(Complaint { whose: named("object")?, level, text: first_of(&text) });
    }
    let error = field("err");
    // kubelet asks for the state of what was removed meanwhile; a stop or removal of it names itself.
    let of_state = |error: &str| {
        let acts = ["ill", "top", "emov", "elet", "mount", "TearDown"];
        is_not_found(error) && !acts.iter().any(|it| headline.contains(it) || error.contains(it))
    };
    if error.is_some_and(of_state) {
        return None;
    }
    if error.is_none() && !is_error && !headline.contains("ailed") {
        return None;
    }
    let of_field = || {
        let uid = field("podUID").filter(|uid| is_pod_uid(uid.as_bytes()));
        uid.map(|uid| Whose::Uid(uid.to_owned())).or_else(|| named("pod"))
    };
    // Fields of other names have a UID or an ID alone: `podName` of kubelet's volume manager, `sandboxID` of its clean-up.
    let others = || fields.iter().filter(|(name, _)| name != "err").map(|(_, value)| &**value);
    let of_container = || {
        let id = others().find_map(|value| Some(CONTAINER.captures(value)?[1].to_owned()))?;
        Some(Whose::Container(id))
    };
    let of_other = || {
        let uid = others().find(|value| is_pod_uid(value.as_bytes()))?;
        Some(Whose::Uid(uid.to_owned()))
    };
    let of_text = || [Some(headline.as_str()), error].into_iter().flatten().find_map(of_uid);
    let whose = of_field().or_else(of_other).or_else(of_text).or_else(of_container)?;
    let text = error.map_or_else(|| headline.clone(), |error| format!("{headline}: {error}"));
    Some(Complaint { whose, level, text: first_of(&text) })
}

fn of_uid(text: &str) -> Option<Whose> {
    UID.captures(text).map(|found| Whose::Uid(found[1].to_owned()))
}

/// A pod's directory in a path.
static DIRECTORY: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"/pods/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/")
});

/// The complaint about a volume's device, for each pod in whose directory the device is still in use: kubelet releases a
/// device that no pod uses any more, as far as it knows.
pub(super) fn of_device(error: &str) -> impl Iterator<Item = Complaint> {
    let mut uids: Vec<&str> =
        DIRECTORY.captures_iter(error).filter_map(|it| Some(it.get(1)?.as_str())).collect();
    uids.sort_unstable();
    uids.dedup();
    let text = first_of(error);
    let complaint = move |uid: &str| Complaint {
        whose: Whose::Uid(uid.to_owned()),
        level: Level::Error,
        text: text.clone(),
    };
    uids.into_iter().map(complaint).collect::<Vec<_>>().into_iter()
}

/// The pod in a message without fields, by the most specific name.
fn of_words(text: &str) -> Option<Whose> {
    let alone = || ALONE.captures(text).map(|found| Whose::Alone(found[1].to_owned()));
    let container = || CONTAINER.captures(text).map(|found| Whose::Container(found[1].to_owned()));
    let named = || {
        let found = NAMED.captures(text)?;
        Some(Whose::Name((found[1].to_owned(), found[2].to_owned())))
    };
    of_uid(text).or_else(named).or_else(alone).or_else(container)
}

/// kubelet's list and watch of its own pods at the API server (client-go's reflector), which fails.
static WATCH: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?s)[Ff]ailed to (?:watch|list(?: and watch)?) \*(?:v1|api|core)\.Pod: (.*)$")
});

/// Why kubelet gets no updates of its pods from the API server.
pub(super) fn of_watch(severity: u8, message: &str) -> Option<String> {
    if !matches!(severity, b'W' | b'E') || !message.contains("ailed to") {
        return None;
    }
    let (headline, error, of) = match quoted(message) {
        None => (message.to_owned(), String::new(), String::new()),
        Some((headline, fields)) => {
            let fields = Fields(fields).collect::<Vec<_>>();
            let field = |name: &str| fields.iter().find(|it| it.0 == name).map(|it| it.1.clone());
            (headline, field("err").unwrap_or_default(), field("type").unwrap_or_default())
        }
    };
    // Since client-go 1.33 (tools/cache/reflector.go).
    if headline == "Failed to watch" && matches!(&*of, "*v1.Pod" | "*api.Pod") {
        let why = WATCH
            .captures(&error)
            .map_or(error.as_str(), |it| it.get(1).map_or("", |it| it.as_str()));
        return Some(first_of(why));
    }
    let found = WATCH.captures(&headline).or_else(|| WATCH.captures(&error))?;
    let why = found.get(1)?.as_str();
    // The error may be quoted in itself.
    let inner = WATCH.captures(why).and_then(|found| found.get(1));
    Some(first_of(inner.map_or(why, |inner| inner.as_str())))
}

/// The text before the patch in an error about a pod's status (`PatchPodStatus` in pkg/util/pod).
const PATCH: &str = "failed to patch status ";

/// An error without that patch: it is long, and contains the termination messages of the pod's containers.
fn without_patch(text: &str) -> Cow<'_, str> {
    let Some((before, patch)) = text.split_once(PATCH) else { return text.into() };
    let mut escaped = false;
    let end = patch.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    let after = end.and_then(|(end, _)| patch.get(end + 1..)).unwrap_or_default();
    format!("{before}{PATCH}...{after}").into()
}

pub(super) fn first_of(text: &str) -> String {
    let text = without_patch(text);
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default().to_owned()
}

/// klog's fields: ` NAME=VALUE`, the value quoted where it would be ambiguous.
pub(super) struct Fields<'a>(pub(super) &'a str);

impl Iterator for Fields<'_> {
    type Item = (String, String);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = self.0.trim_start().split_once('=')?;
        let bare = || {
            let (value, rest) = rest.split_at(rest.find([' ', '\n']).unwrap_or(rest.len()));
            (value.to_owned(), rest)
        };
        let (value, rest) = value(rest).unwrap_or_else(bare);
        self.0 = rest;
        Some((name.to_owned(), value))
    }
}

/// One kind of complaint about a pod.
struct Kind {
    template: String,
    at: Timestamp,
    times: u64,
    level: Level,
    text: String,
    is_proven: bool,
}

/// Whom a complaint is about: a name means the pod that had it then.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Known {
    Uid(String),
    Name(Name, u64),
    Container(String),
    /// About all pods.
    All(said::Complaint),
}

/// The last complaint of each kind, by pod.
#[derive(Default)]
pub(super) struct OfPods(Bounded<Known, Vec<Kind>, PODS>);

impl OfPods {
    /// Adds the next complaint of the log.
    pub(super) fn push(
        &mut self,
        complaint: Complaint,
        at: Timestamp,
        is_proven: bool,
        deletions: &mut Deletions,
    ) {
        let Complaint { whose, level, text } = complaint;
        let name = match whose {
            Whose::Uid(uid) => Err(Known::Uid(uid)),
            Whose::Container(id) => Err(Known::Container(id)),
            Whose::Name(name) => Ok(name),
            Whose::Alone(name) => match deletions.in_any_namespace(&name) {
                Some(name) => Ok(name),
                None => return,
            },
        };
        let known = name.map_or_else(
            |known| known,
            |name| {
                let life = deletions.life(&name);
                let uid = deletions.uid(&name, life).map(|uid| Known::Uid(uid.to_owned()));
                uid.unwrap_or(Known::Name(name, life))
            },
        );
        self.note(known, level, text, at, is_proven);
    }

    /// Adds a complaint about all pods.
    pub(super) fn of_all(
        &mut self,
        what: said::Complaint,
        why: String,
        at: Timestamp,
        is_proven: bool,
    ) {
        self.note(Known::All(what), Level::Error, why, at, is_proven);
    }

    fn note(&mut self, known: Known, level: Level, text: String, at: Timestamp, is_proven: bool) {
        let template = template(&text);
        let kinds = self.0.or_insert_with(known, Vec::new);
        // The latest kind is the last one.
        let known = kinds.iter().position(|kind| kind.template == template);
        let before = known.map(|at| kinds.remove(at));
        let times = before.as_ref().map_or(0, |kind| kind.times) + 1;
        let is_proven = is_proven && before.is_none_or(|kind| kind.is_proven);
        if kinds.len() >= KINDS {
            kinds.remove(0);
        }
        kinds.push(Kind { template, at, times, level, text, is_proven });
    }

    /// Ids of the containers and sandboxes with complaints.
    pub(super) fn containers(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|(whose, _)| match whose {
            Known::Container(id) => Some(id.as_str()),
            _ => None,
        })
    }

    /// All complaints whose pod is known, each with whether it is proven.
    pub(super) fn into_findings(self, deletions: &Deletions, ids: &PodIds) -> Vec<(Finding, bool)> {
        let uid = |whose: &Known| match whose {
            Known::Uid(uid) => Some(uid.clone()),
            Known::Name(name, life) => deletions.uid(name, *life).map(str::to_owned),
            Known::Container(id) => ids.pod(id).map(str::to_owned),
            Known::All(_) => Some(String::new()),
        };
        let finding = |uid: &str, known, kind: &Kind| {
            let &Kind { at, times, level, is_proven, .. } = kind;
            let (uid, error) = (uid.to_owned(), kind.text.clone());
            (Finding::OfPod { uid, known, at, error, times, level }, is_proven)
        };
        let of = |whose: &Known| match whose {
            Known::All(what) => Some(*what),
            _ => None,
        };
        let all = self.0.iter().filter_map(|(whose, kinds)| Some((uid(whose)?, of(whose), kinds)));
        all.flat_map(|(uid, known, kinds)| kinds.iter().map(move |kind| finding(&uid, known, kind)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: &str = "0f0e0d0c-1111-4222-8333-444455556666";
    const OTHER: &str = "1f0e0d0c-1111-4222-8333-444455556666";

    fn heard(severity: u8, message: &str) -> Option<(Whose, Level, String)> {
        complaint(severity, message).map(|it| (it.whose, it.level, it.text))
    }

    fn of_uid(level: Level, text: &str) -> Option<(Whose, Level, String)> {
        Some((Whose::Uid(U.into()), level, text.into()))
    }

    /// As in kubernetes issue 106942, rook issue 4695, kyverno issue 16281 and the kubelet's own source.
    #[test]
    fn any_error_that_names_a_pod_is_a_complaint() {
        let orphan =
            format!("orphaned pod \"{U}\" found, but failed to rmdir() subpath: not a directory");
        let message = format!("\"There were many similar errors.\" err={orphan:?} numErrs=3");
        let text = format!("There were many similar errors.: {orphan}");
        assert_eq!(heard(b'E', &message), of_uid(Level::Error, &text));
        let flex = format!(
            "FlexVolume: driver call failed: args: [unmount /k/pods/{U}/volumes/x], error: exit status 1"
        );
        assert_eq!(heard(b'W', &flex), of_uid(Level::Warning, &flex));
        assert_eq!(heard(b'I', &flex), of_uid(Level::Info, &flex));
        let status =
            "\"Failed to delete status for pod\" pod=\"shop/web\" err=\"failed calling webhook\"";
        let name = || Whose::Name(("shop".into(), "web".into()));
        let text = "Failed to delete status for pod: failed calling webhook";
        assert_eq!(heard(b'I', status), Some((name(), Level::Info, text.into())));
        let lines = format!(
            "\"Error syncing pod, skipping\" err=<\n\ta\n\tb\n > pod=\"shop/web\" podUID=\"{U}\""
        );
        let text = "Error syncing pod, skipping: a\nb";
        assert_eq!(heard(b'E', &lines), of_uid(Level::Error, text));
        let rejected = "\"Event occurred\" object=\"shop/web\" fieldPath=\"\" kind=\"Pod\" apiVersion=\"v1\" type=\"Warning\" \
            reason=\"TaintToleration\" message=\"Predicate TaintToleration failed\"";
        let text = "TaintToleration: Predicate TaintToleration failed";
        assert_eq!(heard(b'I', rejected), Some((name(), Level::Warning, text.into())));
        // The volume manager and the garbage collection have fields of other names.
        let volume = format!(
            "\"Could not construct volume information\" podName=\"{U}\" volumeSpecName=\"data\" err=\"no\""
        );
        let text = "Could not construct volume information: no";
        assert_eq!(heard(b'I', &volume), of_uid(Level::Info, text));
        let id = "a".repeat(64);
        let sandbox = format!("\"Failed to remove sandbox\" err=\"not closed\" sandboxID=\"{id}\"");
        let text = "Failed to remove sandbox: not closed".to_owned();
        assert_eq!(heard(b'E', &sandbox), Some((Whose::Container(id), Level::Error, text)));
        for quiet in [
            format!("\"SyncLoop DELETE\" source=\"api\" podUID=\"{U}\""),
            format!("\"Probe failed\" probeType=\"Startup\" pod=\"shop/web\" podUID=\"{U}\""),
            rejected.replace("Warning", "Normal"),
            "\"PLEG: Write status\" err=\"rpc error: code = NotFound desc = no\" pod=\"shop/web\""
                .into(),
        ] {
            assert_eq!(heard(b'I', &quiet), None, "{quiet}");
        }
    }

    /// A container's termination message is part of its status (`terminationMessagePath`).
    #[test]
    fn a_termination_message_is_no_error_of_kubelets() {
        let patch = r#"{"message":"access \"x\" is forbidden"}"#;
        for why in ["etcdserver: request timed out", "pods \"web\" is forbidden"] {
            let error = format!("failed to patch status {patch:?} for pod \"shop\"/\"web\": {why}");
            let line =
                format!("\"Failed to update status for pod\" pod=\"shop/web\" err={error:?}");
            let text = heard(b'W', &line).unwrap().2;
            let expected = "Failed to update status for pod: failed to patch status ... for pod \"shop\"/\"web\": ";
            assert_eq!(text, format!("{expected}{why}"));
        }
        assert_eq!(
            without_patch("failed to patch status \"cut \\\" off"),
            "failed to patch status ..."
        );
        assert_eq!(without_patch("failed to patch status"), "failed to patch status");
    }

    /// As in kubernetes issues 106711, 23742, 22480 and 87470.
    #[test]
    fn old_kubelets_name_a_pod_by_its_name_or_a_container() {
        let id = "a".repeat(64);
        let failed = format!(
            "Failed killing the pod \"web\": failed to \"KillContainer\" for \"app\": No such container: {id}"
        );
        let alone = Whose::Alone("web".into());
        assert_eq!(heard(b'E', &failed), Some((alone, Level::Error, failed.clone())));
        let refused = "Status update on pod shop/web aborted: terminated container a attempted illegal transition";
        let named = Whose::Name(("shop".into(), "web".into()));
        assert_eq!(heard(b'E', refused), Some((named, Level::Error, refused.into())));
        let stop = format!("StopContainer \"{id}\" from runtime service failed: no");
        let container = Whose::Container(id.clone());
        assert_eq!(heard(b'E', &stop), Some((container, Level::Error, stop.clone())));
        let sync = format!("Error syncing pod {U}, skipping: failed to \"StartContainer\"");
        assert_eq!(heard(b'E', &sync), of_uid(Level::Error, &sync));
        let old = format!("Failed to update status for pod \"web_shop({U})\": no");
        assert_eq!(heard(b'W', &old), of_uid(Level::Warning, &old));
        let gone = format!("ContainerStatus \"{id}\" from runtime service failed: not found");
        assert_eq!(heard(b'E', &gone), None);
    }

    /// As in kubernetes issues 25759 and 96035, and as client-go 1.33 writes it.
    #[test]
    fn a_failed_watch_is_found_in_the_form_of_all_versions() {
        let why = "Get \"https://10.0.0.1:6443/api/v1/pods\": x509: certificate has expired";
        for message in [
            format!("pkg/kubelet/config/apiserver.go:43: Failed to watch *api.Pod: {why}"),
            format!(
                "k8s.io/kubernetes/pkg/kubelet/config/apiserver.go:66: Failed to watch *v1.Pod: failed to list *v1.Pod: {why}"
            ),
            format!(
                "\"Unhandled Error\" err={:?} logger=\"UnhandledError\"",
                format!(
                    "pkg/kubelet/config/apiserver.go:66: Failed to watch *v1.Pod: failed to list *v1.Pod: {why}"
                )
            ),
            format!(
                "\"Failed to watch\" err={:?} logger=\"UnhandledError\" reflector=\"pkg/kubelet/config/apiserver.go:66\" type=\"*v1.Pod\"",
                format!("failed to list *v1.Pod: {why}")
            ),
        ] {
            assert_eq!(of_watch(b'E', &message).as_deref(), Some(why), "{message}");
            assert_eq!(of_watch(b'I', &message), None);
        }
        for other in [
            "x.go:1: Failed to watch *v1.Node: no",
            "\"Failed to watch\" err=\"no\" type=\"*v1.ConfigMap\"",
            "\"Failed to delete status for pod\" pod=\"shop/web\" err=\"no\"",
        ] {
            assert_eq!(of_watch(b'E', other), None, "{other}");
        }
    }

    #[test]
    fn what_an_error_quotes_names_no_other_pod() {
        let quotes = format!(
            "\"x\" err=\"cannot remove a\\\" podUID=\\\"{OTHER}\\\"\" pod=\"shop/web\" podUID=\"{U}\""
        );
        assert_eq!(complaint(b'E', &quotes).unwrap().whose, Whose::Uid(U.into()));
        let path = format!("\"x\" err=\"unlinkat /k/pods/{U}/volumes/a/pods/{OTHER}/b: busy\"");
        assert_eq!(complaint(b'E', &path).unwrap().whose, Whose::Uid(U.into()));
        let name = format!("\"x\" err=\"pod \\\"{OTHER}\\\"\" pod=\"shop/web\"");
        let whose = complaint(b'E', &name).unwrap().whose;
        assert_eq!(whose, Whose::Name(("shop".into(), "web".into())));
    }

    type Heard = (i64, String, u64, bool);

    fn findings(all: OfPods, deletions: &Deletions, ids: &PodIds) -> Vec<Heard> {
        let found = all.into_findings(deletions, ids).into_iter().map(|finding| match finding {
            (Finding::OfPod { at, error, times, .. }, is_proven) => {
                (at.as_second(), error, times, is_proven)
            }
            _ => panic!(),
        });
        let mut found: Vec<_> = found.collect();
        found.sort();
        found
    }

    fn push(all: &mut OfPods, whose: Whose, text: &str, second: i64, deletions: &mut Deletions) {
        let (level, text) = (Level::Error, text.into());
        let at = Timestamp::from_second(second).unwrap();
        all.push(Complaint { whose, level, text }, at, second < 9, deletions);
    }

    #[test]
    fn the_last_of_each_kind_is_kept_with_its_count() {
        let (mut all, mut deletions) = (OfPods::default(), Deletions::default());
        for second in 1..4 {
            let text = format!("cannot: try {second}");
            push(&mut all, Whose::Uid(U.into()), &text, second, &mut deletions);
        }
        push(&mut all, Whose::Uid(U.into()), "no more", 9, &mut deletions);
        let unknown = Whose::Name(("shop".into(), "web".into()));
        push(&mut all, unknown, "whose", 9, &mut deletions);
        push(&mut all, Whose::Container("a".repeat(64)), "whose", 9, &mut deletions);
        let expected = [(3, "cannot: try 3".into(), 3, true), (9, "no more".into(), 1, false)];
        assert_eq!(findings(all, &deletions, &PodIds::default()), expected);
    }

    #[test]
    fn a_line_that_names_a_pod_by_its_name_is_about_the_one_that_was_there_then() {
        let (mut all, mut deletions) = (OfPods::default(), Deletions::default());
        let name = || Whose::Name(("shop".into(), "web".into()));
        let add = |deletions: &mut Deletions| {
            let text = "\"SyncLoop ADD\" source=\"api\" pods=[\"shop/web\"]";
            deletions.listen(text, || Some(Timestamp::UNIX_EPOCH));
        };
        add(&mut deletions);
        push(&mut all, name(), "no known pod's", 1, &mut deletions);
        add(&mut deletions);
        push(&mut all, name(), "before its UID was named", 2, &mut deletions);
        push(&mut all, Whose::Alone("web".into()), "by its name alone", 3, &mut deletions);
        deletions.named("shop", "web", U);
        push(&mut all, name(), "after that", 4, &mut deletions);
        add(&mut deletions);
        push(&mut all, name(), "the next one's", 5, &mut deletions);
        let mut ids = PodIds::default();
        ids.extend([("a".repeat(64), U.to_owned())].into());
        push(&mut all, Whose::Container("a".repeat(64)), "a container's", 6, &mut deletions);
        let times: Vec<i64> = findings(all, &deletions, &ids).iter().map(|it| it.0).collect();
        assert_eq!(times, [2, 3, 4, 6]);
    }
}
