//! `podstuck report`: renders a finished run as a page, or as text for a ticket.

use std::{
    fs,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};

use super::away;
use crate::{
    cli::{Format, Report},
    engine::Engine,
    logging::Unwaiting,
    model::path::{safe, safe_path},
};
use crate::{
    outcome::{Exit, Failure},
    standard_output,
};
use podstuck_show::{
    export::{self, read},
    recording::{Ending, Reader},
    report::{self, Collector, Model},
};

/// Runs the command.
///
/// # Errors
/// Fails when the file is neither a recording nor an export, or the report cannot be written.
pub fn run(mut options: Report) -> Result<Exit, Failure> {
    let to_stdout = match &options.out {
        Some(out) => *out == Path::new("-"),
        // A terminal cannot show a page.
        None => options.format == Format::Markdown || !std::io::stdout().is_terminal(),
    };
    let mut out = options.out.clone().unwrap_or_else(|| report::FILE.into());
    away::leave([&mut options.file, &mut out])?;
    if !to_stdout && options.out.is_none() && out.exists() {
        let there = anyhow!("{} already exists: name another file with --out", safe_path(&out));
        return Err(Failure::Usage(there));
    }
    let model = model(&options.file).map_err(Failure::Usage)?;
    let text = match options.format {
        Format::Html => report::page(&model),
        Format::Markdown => report::markdown(&model),
    };
    if to_stdout {
        standard_output::print(text);
        return Ok(Exit::Clean);
    }
    write(&out, &text).map_err(Failure::Usage)?;
    let _ = writeln!(Unwaiting, "podstuck: wrote {}", safe_path(&out));
    Ok(Exit::Clean)
}

/// The model of a recording or a directory.
fn model(path: &Path) -> anyhow::Result<Model> {
    let about = fs::metadata(path).with_context(|| format!("reading {}", safe_path(path)))?;
    if about.is_dir() { Ok(Model::of_export(read::read(path)?)) } else { of_recording(path) }
}

fn of_recording(path: &Path) -> anyhow::Result<Model> {
    let mut recording = Reader::open(path)?;
    let run = recording.run().clone();
    let mut collector = Collector::new(&run);
    let mut engine = Engine::new(run).of_replay();
    for event in &mut recording {
        collector.take(&event);
        engine.take(&event).iter().for_each(|output| collector.take_output(output));
    }
    let mut model =
        Model::of_run(&engine, &collector).with_series(&engine.series(), &engine.target_names());
    match recording.ending() {
        Some(Ending::Cut) => model.lacks(
            "the recording ends before the run did: the recording \
            process was killed, or the disk was full",
        ),
        Some(Ending::Damaged(why)) => {
            let why = safe(why.as_bytes()).into_owned();
            model.lacks(format!(
                "the recording ends before the run did: what follows is damaged ({why})"
            ));
        }
        Some(Ending::Whole) | None => {}
    }
    Ok(model)
}

fn write(out: &Path, text: &str) -> anyhow::Result<()> {
    let name = out.file_name().and_then(|name| name.to_str());
    let name = name
        .ok_or_else(|| anyhow!("cannot write {}: it has no file name in UTF-8", safe_path(out)))?;
    let above = out.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
    export::replace(&above, name, text.as_bytes())?;
    Ok(())
}
