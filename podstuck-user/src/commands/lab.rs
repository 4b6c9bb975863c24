//! `podstuck lab`: builds a case, or lists them.

use std::time::Duration;

use anyhow::anyhow;
use podstuck_lab::{self as lab, HelperArgs, Options, RemovalArgs, Unsupported};

use super::near::near;
use crate::{
    cli::{Lab, LabRemoval},
    model::path::{safe, safe_path},
};
use crate::{
    interrupt,
    outcome::{Exit, Failure},
    standard_output,
};

/// Runs the command.
pub fn run(options: &Lab) -> Result<Exit, Failure> {
    let Some(id) = &options.cause else {
        standard_output::print(list());
        return Ok(Exit::Clean);
    };
    let Some(case) = lab::find(id) else {
        let near = near(id, lab::cases().map(|case| case.id)).join(", ");
        let id = safe(id.as_bytes());
        let error = anyhow!(
            "there is no lab case {id:?}; similar names: {near}. `podstuck lab` lists all cases"
        );
        return Err(Failure::Usage(error));
    };
    let lab_options = Options {
        duration: options.duration,
        start_delay: options.hold.unwrap_or(Duration::ZERO),
        entries: options.entries,
        rate: options.rate,
        late: options.late,
        ..Options::default()
    };
    // However many signals arrive, it ends its case in order: nothing of it may stay on the node.
    let stop = interrupt::patient().map_err(Failure::CannotRun)?;
    match lab::run(case, &lab_options, &stop) {
        Ok(()) => Ok(Exit::Clean),
        Err(error) if error.is::<Unsupported>() => Err(Failure::CannotRun(error)),
        Err(error) => Err(Failure::CannotRun(error.context(format!("lab case {id}")))),
    }
}

/// The removing process of a case.
pub fn removal(options: &LabRemoval) -> Result<Exit, Failure> {
    let Some(root) = lab::lab_directory(&options.root_dir) else {
        let path = safe_path(&options.root_dir);
        return Err(Failure::Usage(anyhow!("--root-dir {path}: no lab has its kubelet there")));
    };
    let args = RemovalArgs {
        root: root.into(),
        case: options.case.clone(),
        uid: options.uid.clone(),
        rate: options.rate,
        attempts: options.attempts,
        late: options.late,
    };
    lab::removal_main(&args).map(|()| Exit::Clean).map_err(Failure::CannotRun)
}

/// The helper process of a case.
pub fn helper(options: &HelperArgs) -> Result<Exit, Failure> {
    lab::helper_main(options).map(|()| Exit::Clean).map_err(Failure::CannotRun)
}

fn list() -> String {
    lab::cases().map(|case| format!("{:32} {}\n", case.id, case.summary)).collect()
}
