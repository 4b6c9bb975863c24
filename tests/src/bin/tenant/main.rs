//! What a tenant runs in a container: each verb is an attack on a tool that reads the node. It says `ready` on
//! a line of its own, and goes on until it is killed.

mod crowd;
mod fail;
mod hang;
mod invent;
mod long_line;

use std::{ffi::OsString, path::Path};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [verb, rest @ ..] = words.as_slice() else { bail!("no verb") };
    let paths: Vec<&Path> = rest.iter().map(Path::new).collect();
    match (verb.to_str(), paths.as_slice()) {
        (Some("invent"), [top, count]) => invent::invent(top, number(count)?),
        (Some("crowd"), [point, count]) => crowd::hang(point, number(count)?),
        (Some("crowd-of-threads"), [point, count]) => crowd::threads(point, number(count)?),
        (Some("fail"), [top, count]) => fail::everywhere(top, number(count)?),
        (Some("long-line"), [length, path]) => long_line::show(number(length)?, path),
        (Some("hang"), [point, volume, program, count]) => {
            hang::all(point, volume, program, number(count)?)
        }
        (Some("hang-one"), [file, volume]) => hang::one(file, volume),
        _ => bail!("unknown attack {words:?}"),
    }
}

fn number(text: &Path) -> Result<u64> {
    text.to_str().and_then(|t| t.parse().ok()).with_context(|| format!("{text:?} is no number"))
}
