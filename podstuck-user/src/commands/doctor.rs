//! `podstuck doctor`: checks what works here, and names what is lost without the rest.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use super::{
    believed::believed,
    check::{Check, obstacles, probes},
};
use crate::{
    cli::{Api, Doctor, Output, Target},
    model::{
        identity::Component,
        path::{safe, safe_path},
    },
};
use crate::{
    live::{
        api_reader::ApiReader,
        known_roots::{apart, known_roots},
        setup,
    },
    outcome::{Exit, Failure},
    standard_output,
};
use podstuck_confine::{facts, privilege, proc, role};
use podstuck_node::{
    identity::{
        runtimes::running_daemons,
        target_roots::{Holds, TargetRoot},
    },
    state::{
        clients,
        kubelet::{self, Kubelet},
        logs,
        look_alikes::{self, LookAlike},
        show_roots::{Sought, find_roots, resolve},
    },
};
use podstuck_probe::kernel::{
    layout::{self, BTF_PATH},
    obstacle, selinux,
};
use podstuck_show::present::{json, words};

/// Limit of look-alikes named; the others are counted.
const NAMED: usize = 8;

/// Runs the command: 0 when everything needed works, 3 when tracing cannot run at all.
pub fn run(options: &Doctor) -> Result<Exit, Failure> {
    let mut checks = vec![
        Check::new("kernel", true, facts::release(), ""),
        Check::new("cgroups", true, facts::cgroup_layout(), ""),
    ];
    let privileged = privilege::check();
    checks.push(match &privileged {
        Ok(()) => Check::new("privileges", true, "enough to load and attach probes", ""),
        Err(missing) => {
            Check::new("privileges", false, missing.to_string(), "nothing can be traced")
        }
    });
    let limits = role::tried();
    checks.push(Check::new(
        "least privilege",
        limits.is_ok(),
        limits.unwrap_or_else(|why| why),
        "the limits on what a fault in podstuck or its helpers can do; findings are complete",
    ));
    let layout = layout::read(Path::new(BTF_PATH));
    checks.push(Check::new(
        "kernel types (BTF)",
        layout.problems.is_empty(),
        layout.problems.first().cloned().unwrap_or_else(|| BTF_PATH.to_owned()),
        "paths relative to a directory descriptor, and with them most targets of calls; counts and errnos remain",
    ));
    let obstacle = obstacle::check();
    checks.extend(obstacles(&obstacle));
    checks.extend(selinux::enforced().map(|context| {
        Check::new("SELinux", true, format!("enforcing, podstuck runs as {}", context), "")
    }));
    if privileged.is_ok() && obstacle.is_ok() {
        checks.extend(probes(&layout));
    }
    checks.push(sockets());
    checks.extend(node(options));
    let text = render(&checks, options.output, Timestamp::now());
    standard_output::print(text);
    let fatal = checks.iter().find(|c| !c.ok && c.lost == Some("nothing can be traced"));
    match fatal {
        Some(check) => Err(Failure::CannotRun(anyhow::anyhow!("{}: {}", check.name, check.found))),
        None => Ok(Exit::Clean),
    }
}

fn sockets() -> Check {
    let lost = "whether a running runtime answers requests, and which processes wait for it";
    match clients::are_shown() {
        Ok(()) => {
            Check::new("local sockets", true, "the kernel lists what is connected to what", "")
        }
        Err(why) => Check::new("local sockets", false, format!("{why:#}"), lost),
    }
}

fn node(options: &Doctor) -> Vec<Check> {
    let host_root = &options.node.host_root;
    let (kubelets, _) = kubelet::running(host_root, &options.node.kubelet_root);
    let roots = setup::roots(&options.node, &kubelets);
    let mut checks = believed(host_root);
    checks.extend(roots.iter().map(|root| {
        let lost =
            "--pod-uid and --pod cannot be checked, and calls on files of its pods name no pod";
        let is_there = resolve(host_root, &root.join("pods")).is_some();
        Check::new("kubelet root", is_there, safe_path(root), lost)
    }));
    checks.extend(kubelets.iter().flat_map(|kubelet| &kubelet.unread).map(|why| {
        Check::new(
            "kubelet's files",
            false,
            why,
            "the directory of its pods' logs, if it is not the default",
        )
    }));
    checks.extend(logs::read(host_root).places.into_iter().map(log));
    checks.extend(target_roots(host_root, &roots, &kubelets));
    let directories = setup::log_dirs(host_root, &roots, &kubelets);
    checks.extend(logs::of_drivers(host_root, &directories).into_iter().map(log));
    let found = match directories.iter().find(|dir| resolve(Path::new("/"), dir).is_some()) {
        Some(dir) => Ok(safe_path(dir).into_owned()),
        None => Err("no directory of pods' logs"),
    };
    let lost = "names of running pods, unless the API server or the runtime reports them; logs of CSI \
        drivers in pods";
    checks.push(Check::new("pod names", found.is_ok(), found.unwrap_or_else(Into::into), lost));
    checks.push(api(options, kubelets));
    let running = runtimes(host_root);
    let found = if running.is_empty() { "none is running".to_owned() } else { running.join(", ") };
    checks.push(Check::new("runtimes", true, found, ""));
    checks
}

/// Whether a log can be read and parsed.
fn log(place: logs::Place) -> Check {
    let (name, lost) = match place.component {
        Component::Kubelet => (
            "kubelet's log",
            "attempts from before the start, and names of pods whose containers are gone",
        ),
        Component::CsiDriver => ("CSI driver's log", "why the driver does not unpublish a volume"),
        Component::Other => ("kernel's log", "whether AppArmor refuses a runtime's signals"),
        _ => (
            "runtime's log",
            "why a container or a sandbox cannot be stopped, if no system call shows it",
        ),
    };
    let text = match &place.read {
        Ok(log) if place.component == Component::Other => log.clone(),
        Ok(log) => format!("{log}: {}", understood(place.lines)),
        Err(why) => why.clone(),
    };
    Check::new(name, place.read.is_ok() && !place.lines.are_foreign(), text, lost)
}

/// The share of a log that was parsed.
fn understood(lines: logs::Lines) -> String {
    match lines.seen {
        0 => "it has no lines yet".to_owned(),
        seen => {
            let all = words::plural(seen, "line", "lines");
            format!("{} of {all} parsed", words::count(lines.understood))
        }
    }
}

/// The roots whose calls are about a pod, a volume or a container; and mounts that only look like a pod's.
fn target_roots(host_root: &Path, roots: &[PathBuf], kubelets: &[Kubelet]) -> [Check; 2] {
    let (known, _) = known_roots(host_root, roots, apart(host_root, kubelets, roots), None);
    let known: Vec<&TargetRoot> = known.all().iter().collect();
    let sought = known.iter().map(|root| Sought::unshown(root.process(), &root.path));
    let found = find_roots(host_root, sought.collect()).paths;
    let of_pods = known.iter().zip(&found).filter(|(root, _)| root.holds == Holds::Pods);
    let of_pods: Vec<_> =
        of_pods.filter_map(|(root, path)| Some((root.process(), path.clone()?))).collect();
    let mut found: Vec<PathBuf> = found.into_iter().flatten().collect();
    found.sort();
    found.dedup();
    let names: Vec<_> = found.iter().map(|path| safe_path(path)).collect();
    let text = if names.is_empty() { "none found".to_owned() } else { names.join(", ") };
    let lost = "the pod, volume or container of each call; calls are counted without them";
    let here = Check::new("directories of kubelets and runtimes", !names.is_empty(), text, lost);
    let beside = Check::new("look-alikes", true, beside(&look_alikes::of_node(&of_pods)), "");
    [here, beside]
}

/// Mounts whose paths look like a pod's, but are not.
fn beside(all: &[LookAlike]) -> String {
    let named = all.iter().take(NAMED).map(|it| {
        let LookAlike { point, namespace, pid } = it;
        format!("{} in mount namespace {namespace} (pid {pid})", safe_path(point))
    });
    let named: Vec<String> = named.collect();
    match all.len() {
        0 => "no mount outside the pods' directories has a path like a pod's".to_owned(),
        count => {
            let more = count.saturating_sub(NAMED);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            format!(
                "mounts outside the pods' directories with paths like pods' volumes: {}{more}",
                named.join(", ")
            )
        }
    }
}

/// Whether the API server can be asked, and with which credentials.
fn api(options: &Doctor, kubelets: Vec<Kubelet>) -> Check {
    let host_root = options.node.host_root.clone();
    let mut asked = ApiReader::start(host_root, &options.api, kubelets, &Target::default());
    asked.name_pods(&mut setup::pod_names(Vec::new()));
    let not_asked = || match options.api {
        Api::Never => (true, "not asked (--api never)".to_owned()),
        _ => (false, "no running kubelet has credentials that podstuck can use".to_owned()),
    };
    let place = asked.outcome().cloned();
    let (ok, found) =
        place.map_or_else(not_asked, |place| (place.is_ok(), place.unwrap_or_else(|why| why)));
    let lost = "the pods' API objects (one can be given by --pod-json), and names of pods without other traces";
    Check::new("API server", ok, found, lost)
}

/// Running runtimes and kubelets.
fn runtimes(host_root: &Path) -> Vec<String> {
    let directory = setup::on_host(host_root, Path::new("/proc"));
    let daemons = running_daemons(&directory);
    let pids = daemons.kubelets.into_iter().chain(daemons.runtimes.into_iter().map(|(pid, _)| pid));
    let named = pids.map(|pid| {
        let comm = proc::comm(&directory.join(pid.to_string()));
        format!("{} (pid {pid})", safe(&comm))
    });
    named.collect()
}

fn render(checks: &[Check], output: Output, time: Timestamp) -> String {
    let mut text = String::new();
    for check in checks {
        if output == Output::Json {
            text.push_str(&json::render(time, "check", check));
            continue;
        }
        let mark = if check.ok { "ok     " } else { "MISSING" };
        let _ = writeln!(text, "{mark} {:20} {}", check.name, safe(check.found.as_bytes()));
        if let Some(lost) = check.lost {
            let _ = writeln!(text, "        {:20} lost: {lost}", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_pinned() {
        let checks = [Check::new("kernel", true, "6.1", ""), Check::new("probes", false, "", "x")];
        let head =
            r#"{"schema":"podstuck/v1","type":"check","time":"1970-01-01T00:00:00.000000000Z","#;
        assert_eq!(
            render(&checks, Output::Json, Timestamp::UNIX_EPOCH),
            format!(
                "{head}{}\n{head}{}\n",
                r#""name":"kernel","ok":true,"found":"6.1","lost":null}"#,
                r#""name":"probes","ok":false,"found":"","lost":"x"}"#
            )
        );
    }

    #[test]
    fn look_alikes_are_named_and_not_without_end() {
        let one = |at| LookAlike { point: format!("/x{at}\n").into(), namespace: 5, pid: 7 };
        assert!(beside(&[]).starts_with("no mount"));
        let all: Vec<_> = (0..20).map(one).collect();
        let text = beside(&all);
        assert!(text.contains("/x7\\x0a in mount namespace 5 (pid 7), and 12 more"), "{text}");
        assert!(!beside(&all[..1]).contains("more"));
    }

    #[test]
    fn found_names_cannot_reach_the_terminal() {
        let checks = [Check::new("kubelet's files", false, "\u{9b}2J\nok\u{202e}", "x")];
        for output in [Output::Text, Output::Json] {
            let shown = render(&checks, output, Timestamp::UNIX_EPOCH);
            assert!(shown.lines().all(|line| safe(line.as_bytes()) == line), "{shown:?}");
            assert!(!shown.contains("\nok"), "{shown}");
        }
    }
}
