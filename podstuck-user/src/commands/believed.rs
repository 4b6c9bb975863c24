//! The daemons that `podstuck doctor` takes for the node's, how far each is trusted, and processes that only have the
//! name of one.

use std::path::Path;

use super::check::Check;
use crate::model::path::safe;
use podstuck_confine::proc;
use podstuck_node::identity::{on_host, runtimes::running_daemons, trust::Belief};

/// Limit of untrusted processes named; the others are counted.
const NAMED: usize = 8;

pub(super) fn believed(host_root: &Path) -> Vec<Check> {
    let proc = on_host(host_root, Path::new("/proc"));
    let daemons = running_daemons(&proc);
    let shown = |pid: &u32| {
        let comm = proc::comm(&proc.join(pid.to_string()));
        format!("{} (pid {pid})", safe(&comm))
    };
    let mut checks: Vec<Check> = daemons
        .standings
        .iter()
        .map(|(pid, standing)| {
            let limit = match standing.belief {
                Belief::Service => "",
                Belief::Administrator => {
                    "; services take precedence over it, and its credentials are not used"
                }
            };
            let (grade, why) = (standing.belief.name(), &standing.why);
            Check::new("believed", true, format!("{} is {grade}: {why}{limit}", shown(pid)), "")
        })
        .collect();
    let named = daemons.disbelieved.iter().take(NAMED);
    checks.extend(
        named.map(|(pid, why)| {
            Check::new("not believed", true, format!("{}: {why}", shown(pid)), "")
        }),
    );
    let more = daemons.disbelieved.len().saturating_sub(NAMED);
    if more > 0 {
        let found = format!("{more} more processes have the name of a daemon");
        checks.push(Check::new("not believed", true, found, ""));
    }
    checks
}
