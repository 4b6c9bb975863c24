//! `podstuck explain`: explains a cause, or lists all of them.

use anyhow::anyhow;
use jiff::Timestamp;
use podstuck_engine::{catalogue, cause::Cause};

use crate::{
    cli::{Explain, Output},
    model::path::safe,
};
use crate::{
    outcome::{Exit, Failure},
    standard_output,
};
use podstuck_show::present::{
    json::{self, Line},
    text,
};

/// Runs the command: 0, or 2 for a name of no cause.
///
/// # Errors
/// [`Failure::Usage`] for an unknown name.
pub fn run(options: &Explain) -> Result<Exit, Failure> {
    let wanted = match &options.cause {
        Some(name) => Some(catalogue::find(name).ok_or_else(|| Failure::Usage(unknown(name)))?),
        None => None,
    };
    let out = if options.output == Output::Json {
        let lines = catalogue::all().filter(|cause| wanted.is_none_or(|wanted| wanted == *cause));
        lines.map(|cause| json::line(Timestamp::now(), &Line::Cause(&cause.into()))).collect()
    } else {
        explanation(wanted)
    };
    standard_output::print(out);
    Ok(Exit::Clean)
}

fn explanation(wanted: Option<&Cause>) -> String {
    let style = standard_output::style();
    match wanted {
        Some(cause) => text::explain(cause, style),
        None => text::explain_all(style),
    }
}

/// The error for an unknown name, with the names near it.
fn unknown(name: &str) -> anyhow::Error {
    anyhow!(
        "there is no cause {:?}; similar names: {}. `podstuck explain` lists all causes",
        safe(name.as_bytes()),
        near(name).join(", ")
    )
}

fn near(name: &str) -> Vec<&'static str> {
    super::near::near(name, catalogue::all().map(|cause| cause.id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_understood() {
        assert_eq!(near("imutable-atribute")[0], "immutable-attribute");
        assert_eq!(near("swapfile")[0], "swapfile-active");
        assert!(near("frozen").contains(&"filesystem-frozen"));
        assert!(near("frozen").contains(&"cgroup-v1-frozen"));
        assert_eq!(near("").len(), super::super::near::OFFERED);
    }

    #[test]
    fn an_unknown_name_is_wrong_usage_and_harmless() {
        let options = Explain { cause: Some("\u{1b}[2Jx".into()), output: Output::Text };
        let Err(Failure::Usage(error)) = run(&options) else { panic!("it is no cause") };
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}
