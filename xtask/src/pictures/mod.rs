//! `cargo xtask pictures`: the pictures in the documents, from a real terminal and a real browser.

mod browser;
mod terminal;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use podstuck_process as process;

use crate::demo::{self, CASE, Running};
use crate::workspace::Workspace;
use crate::{build, setup};

use self::browser::Browser;
use self::terminal::Terminal;

/// The folder of the pictures.
const FOLDER: &str = "docs/pictures";
const PROMPT: &str = "# ";
/// Maximum wait for the expected text.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(200);
/// Longer than both pictures take together.
const LAB: &str = "180s";
/// The source of the large screen and the report: a recording contains all that a run shows, and needs no kernel.
const RECORDING: &str = "tests/tests/recordings/emptydir-mass-files.zst";

/// How to make them.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// This program, and build none
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Makes all pictures.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if !geteuid().is_root() {
        bail!("the pictures show probes in the kernel, which takes root");
    }
    if process::find("tmux").is_none() {
        bail!("no `tmux`, which is the terminal; on Debian: `apt-get install tmux`");
    }
    let browser = Browser::find()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            setup::run(workspace)?;
            let how = build::Options { release: true, ..build::Options::default() };
            build::program(workspace, &how)?
        }
    };
    let folder = workspace.root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    demo::note_interrupts()?;
    let mut lab = Command::new(&program);
    lab.args(["lab", CASE, "--duration", LAB]);
    let said = tempfile::NamedTempFile::new().context("creating a file for what the lab says")?;
    lab.stdout(said.reopen().context("opening it again")?);
    let mut lab = Running::start(lab)?;
    let pod = Pod::of(&mut lab, said.path())?;

    let mut lab_runs = || lab.expect_running();
    let terminal = Terminal::start(120, 30, &program, workspace)?;
    terminal.line(&format!("podstuck diagnose {pod} --brief"))?;
    // The shell prints its prompt again below the answer.
    terminal.wait_for(&mut lab_runs, |screen| {
        screen.contains("since") && screen.contains(CASE) && screen.trim_end().ends_with('#')
    })?;
    terminal.draw(&folder.join("diagnose.svg"))?;

    let terminal = Terminal::start(80, 24, &program, workspace)?;
    terminal.line(&format!("podstuck watch {pod}"))?;
    terminal.wait_for(&mut lab_runs, |screen| screen.contains(&format!("WARNING  {CASE}")))?;
    terminal.draw(&folder.join("watch.svg"))?;

    let terminal = Terminal::start(200, 60, &program, workspace)?;
    terminal.line(&format!("podstuck replay {RECORDING}"))?;
    terminal.wait_for(|| Ok(()), |screen| screen.contains("· ended"))?;
    terminal.draw(&folder.join("replay.svg"))?;

    let page = tempfile::Builder::new().suffix(".html").tempfile().context("creating a page")?;
    let mut report = Command::new(&program);
    report.args(["report", RECORDING]).current_dir(&workspace.root);
    fs::write(page.path(), process::output(&mut report)?).context("writing a page")?;
    browser.draw(page.path(), (1280, 1600), &folder.join("report.png"))?;
    browser.draw(page.path(), (390, 1600), &folder.join("report-phone.png"))
}

/// The lab's pod, in the form of options.
struct Pod {
    uid: String,
    kubelet_root: String,
}

impl Pod {
    /// Reads the pod from the lab's output when the lab is ready.
    fn of(lab: &mut Running, said: &Path) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            lab.expect_running()?;
            let text = fs::read_to_string(said).context("reading what the lab says")?;
            if let Some((line, _)) = text.split_once('\n') {
                let ready: serde_json::Value =
                    serde_json::from_str(line).with_context(|| format!("the lab says {line}"))?;
                let field = |name: &str| {
                    let value = ready[name].as_str().map(str::to_owned);
                    value.with_context(|| format!("the lab does not say its {name}: {line}"))
                };
                return Ok(Self { uid: field("pod_uid")?, kubelet_root: field("kubelet_root")? });
            }
            sleep(LOOK);
        }
        bail!("the lab does not say that it is ready");
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--pod-uid {} --kubelet-root {}", self.uid, self.kubelet_root)
    }
}
