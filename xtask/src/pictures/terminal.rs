//! A real terminal (tmux), in which commands are typed and whose screen is drawn.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Instant;

use anstyle::{AnsiColor, Color};
use anstyle_svg::{Term, WIN10_CONSOLE};
use anyhow::{Context, Result, bail};
use podstuck_process as process;

use super::{LOOK, PATIENCE, PROMPT};
use crate::workspace::Workspace;

const FOREGROUND: Color = Color::Ansi(AnsiColor::BrightWhite);

/// A terminal with its own tmux server, which ends when this is dropped.
pub(super) struct Terminal {
    socket: String,
}

impl Terminal {
    /// Starts a shell that has the program in its `PATH`.
    pub(super) fn start(
        width: u16,
        height: u16,
        program: &Path,
        workspace: &Workspace,
    ) -> Result<Self> {
        let terminal = Self { socket: format!("podstuck-pictures-{width}-{}", std::process::id()) };
        let folder = program.canonicalize().with_context(|| format!("no {}", program.display()))?;
        let folder = folder.parent().context("a program lies in a folder")?;
        let path = env::join_paths(
            [folder.to_path_buf()]
                .into_iter()
                .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
        )
        .context("PATH cannot be extended")?;
        let (width, height) = (width.to_string(), height.to_string());
        let mut start = terminal.tmux(&["-f", "/dev/null", "new-session", "-d"]);
        start.arg("-c").arg(&workspace.root);
        start.args(["-x", &width, "-y", &height, "env", "-u", "NO_COLOR", "TERM=screen-256color"]);
        let mut set = std::ffi::OsString::from("PATH=");
        set.push(path);
        start.arg(set).arg(format!("PS1={PROMPT}")).args(["bash", "--norc", "--noprofile"]);
        process::output(&mut start)?;
        // Text that is typed before the shell is ready is shown twice.
        terminal.wait_for(|| Ok(()), |screen| screen.starts_with(PROMPT.trim_end()))?;
        Ok(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.socket]).args(args);
        tmux
    }

    pub(super) fn line(&self, text: &str) -> Result<()> {
        println!("{PROMPT}{text}");
        process::output(&mut self.tmux(&["send-keys", "-l", text]))?;
        process::output(&mut self.tmux(&["send-keys", "Enter"])).map(drop)
    }

    /// Waits until the screen satisfies `is_there`. `beside` checks that the other processes still run.
    pub(super) fn wait_for(
        &self,
        mut beside: impl FnMut() -> Result<()>,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            beside()?;
            let screen = process::output(&mut self.tmux(&["capture-pane", "-p"]))?;
            if is_there(&screen) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("what was to be seen does not come; the screen shows:\n{screen}");
            }
            sleep(LOOK);
        }
    }

    /// Draws the present screen, with its colours.
    pub(super) fn draw(&self, file: &Path) -> Result<()> {
        let screen = process::output(&mut self.tmux(&["capture-pane", "-p", "-e", "-N"]))?;
        let terminal = Term::new().palette(WIN10_CONSOLE).fg_color(FOREGROUND);
        // Terminals dim such text less than the renderer does.
        let picture =
            terminal.render_svg(screen.trim_end()).replace("opacity: 0.4;", "opacity: 0.65;");
        fs::write(file, picture).with_context(|| format!("writing {}", file.display()))?;
        println!("{}", file.display());
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Err(error) = process::output(&mut self.tmux(&["kill-server"])) {
            eprintln!("ending the terminal: {error:#}");
        }
    }
}
