//! `podstuck holders`: finds the processes that keep a mount, a file or a device busy.

use anyhow::anyhow;
use caps::{CapSet, Capability};
use jiff::Timestamp;

use super::away;
use crate::{
    cli::{Holders, Output},
    live::attribute::Attributor,
    model::{
        holder::{About, Search},
        path::{JsonPath, safe_path},
    },
};
use crate::{
    live::setup,
    outcome::{Exit, Failure},
    standard_output,
};
use podstuck_node::{
    identity::{
        PodNames, kubelet_roots, layout::normalise, log_dirs_for, target_roots::TargetRoots,
    },
    scope::Scope,
    state::holders::snapshot,
};
use podstuck_show::present::{
    json::{self, Line},
    text,
};

/// Runs the command.
pub fn run(mut options: Holders) -> Result<Exit, Failure> {
    // Nothing is touched yet: the file system may be dead.
    away::leave(options.path.iter_mut().chain(away::of_node(&mut options.node)))?;
    let options = &options;
    let about = about(options);
    let needed = Capability::CAP_SYS_PTRACE;
    if !caps::has_cap(None, CapSet::Effective, needed).unwrap_or(false) {
        let error = anyhow!(
            "missing capability {needed}: reading other users' processes requires it; run podstuck as root \
             on the node"
        );
        return Err(Failure::CannotRun(error));
    }
    let mut taken = snapshot(about).map_err(|error| Failure::CannotRun(anyhow!(error)))?;
    let subject = match taken.subject.clone() {
        Ok(subject) => subject,
        Err(why) => return Err(Failure::Usage(anyhow!("{}: {why}", name(options)))),
    };
    let mut names =
        Attributor::new(pod_names(options), Scope::default(), TargetRoots::default(), &[]);
    for holder in &mut taken.holders {
        holder.pod = holder.pod.take().map(|pod| names.pod(pod));
    }
    let (processes, namespaces, mounts) = taken.looked_at;
    let search = Search {
        subject,
        holders: taken.holders.len(),
        explain_ebusy: taken.culprits().count(),
        processes,
        namespaces,
        mounts,
        unseen: taken.unseen,
    };
    let lines = taken.holders.iter().map(Line::Holder).chain([Line::Search(&search)]);
    let out: String = lines.map(|line| render(&line, options.output)).collect();
    standard_output::print(out);
    Ok(if taken.holders.is_empty() { Exit::Clean } else { Exit::Found })
}

fn about(options: &Holders) -> About {
    match options.device {
        Some(device) => About::Device(device),
        None => About::Path(JsonPath(normalise(options.path.as_deref().unwrap_or("/".as_ref())))),
    }
}

fn name(options: &Holders) -> String {
    match (&options.path, options.device) {
        (Some(path), _) => safe_path(path).into_owned(),
        (None, Some(device)) => device.to_string(),
        (None, None) => String::new(),
    }
}

fn pod_names(options: &Holders) -> PodNames {
    let roots = kubelet_roots(&options.node.host_root, &options.node.kubelet_root);
    let dirs = roots.iter().flat_map(|root| log_dirs_for(root));
    setup::pod_names(dirs.map(|dir| setup::on_host(&options.node.host_root, &dir)).collect())
}

fn render(line: &Line<'_>, output: Output) -> String {
    if output == Output::Json {
        return json::line(Timestamp::now(), line);
    }
    let style = standard_output::style();
    match line {
        Line::Holder(holder) => text::holder(holder, style),
        Line::Search(search) => text::search(search, style),
        _ => String::new(),
    }
}
