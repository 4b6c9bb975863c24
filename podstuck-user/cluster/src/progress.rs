//! A line on standard error about a run that reads for longer than a second, where that is a terminal.

use std::{fmt, time::Duration};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use podstuck_model::path::safe;

use crate::read::Reader;

/// The time until the line appears, and between its changes.
const EVERY: Duration = Duration::from_secs(1);

/// The line, which is removed when this is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins to follow a reader.
    pub(crate) fn begin(reader: &Reader) -> Self {
        Self::show(on(reader, ProgressDrawTarget::stderr()))
    }

    /// Begins to follow the examination of a node.
    pub fn examining(node: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
            bar.set_style(style);
        }
        let node = safe(node.as_bytes());
        bar.set_message(format!("podstuck's own pod on {node} looks for what keeps the pod"));
        Self::show(bar)
    }

    fn show(bar: ProgressBar) -> Self {
        bar.enable_steady_tick(EVERY);
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn on(reader: &Reader, target: ProgressDrawTarget) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target);
    let reader = reader.clone();
    let said = move |_: &ProgressState, out: &mut dyn fmt::Write| {
        let (made, max) = (reader.made(), reader.max());
        let listed = HumanCount(reader.listed());
        // The line has no other place for an error.
        let _ = write!(out, "{listed} objects read, {made} of at most {max} requests made");
    };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {said}") {
        bar.set_style(style.with_key("said", said));
    }
    bar
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use indicatif::TermLike;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_has_what_was_read_and_goes_at_the_end() {
        let terminal = Terminal::default();
        let reader = Reader::of_recording(Default::default());
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = on(&reader, target);
        reader.count(12_345);
        bar.tick();
        let text = || terminal.0.lock().unwrap().clone();
        assert!(text().contains("12,345 objects read, 0 of at most 0 requests made"), "{}", text());
        drop(Progress(bar));
        assert_eq!(text().trim(), "");
    }
}
