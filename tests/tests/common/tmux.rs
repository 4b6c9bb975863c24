//! A real terminal: tmux's, with a shell in it. Keys are typed, and what is to be seen is read.

use std::{
    process::{Command, Output, id},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use podstuck_tests::slowdown;

/// What the shell says when it waits.
pub(crate) const PROMPT: &str = "prompt>";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The terminal, with a server of its own. Ended when dropped.
pub(crate) struct Tmux {
    socket: String,
}

impl Tmux {
    /// Of this size, with these variables; `None` where there is no tmux.
    pub(crate) fn start(width: u16, height: u16, environment: &[(&str, &str)]) -> Option<Self> {
        Command::new("tmux").arg("-V").output().ok()?;
        let socket = format!("podstuck-{}-{}", id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let tmux = Self { socket };
        let (width, height) = (width.to_string(), height.to_string());
        let mut args = vec!["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height];
        let prompt = format!("PS1={PROMPT} ");
        args.extend(["env", "-u", "NO_COLOR", &prompt]);
        let set: Vec<String> =
            environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        args.extend(set.iter().map(String::as_str));
        args.extend(["bash", "--norc", "--noprofile"]);
        let started = tmux.tmux(&args);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        tmux.wait_for("the shell", |screen| screen.contains(PROMPT));
        Some(tmux)
    }

    fn tmux(&self, args: &[&str]) -> Output {
        Command::new("tmux").args(["-L", &self.socket]).args(args).output().unwrap()
    }

    /// Types a line.
    pub(crate) fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.key("Enter");
    }

    /// Presses a key, by tmux's name for it.
    pub(crate) fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Makes the terminal larger or smaller.
    pub(crate) fn resize(&self, width: u16, height: u16) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// What is to be seen, without colours.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// The same with what has scrolled away, lines joined that the terminal has broken.
    pub(crate) fn all(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p", "-J", "-S", "-"]).stdout).into()
    }

    /// The numbers of all colours and weights that are to be seen.
    pub(crate) fn attributes(&self) -> Vec<String> {
        let seen = self.tmux(&["capture-pane", "-p", "-e"]).stdout;
        let seen = String::from_utf8_lossy(&seen).into_owned();
        let sequences = seen.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
        sequences.flat_map(|(numbers, _)| numbers.split(';').map(String::from)).collect()
    }

    /// What its clipboard holds.
    pub(crate) fn clipboard(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["show-buffer"]).stdout).into_owned()
    }

    /// Has programs set the clipboard.
    pub(crate) fn allow_clipboard(&self) {
        self.tmux(&["set-option", "-s", "set-clipboard", "on"]);
    }

    /// Waits until that is to be seen, and returns it.
    pub(crate) fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(30) * slowdown();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "waited for {what}:\n{screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Asserts that the terminal is as a shell needs it: it shows what is typed, and the cursor.
    pub(crate) fn assert_restored(&self) {
        self.line("stty -a | grep -c -w -e '-echo' -e '-icanon' -e '-isig'; echo mode-shown");
        let all = self.wait_for("the mode", |screen| screen.contains("\nmode-shown"));
        assert!(all.contains("\n0\nmode-shown"), "{all}");
        let flags = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).stdout;
        assert_eq!(String::from_utf8_lossy(&flags).trim(), "0 1", "alternate screen, cursor");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
