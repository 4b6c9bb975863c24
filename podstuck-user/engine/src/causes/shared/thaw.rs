//! The thaw of a frozen file system (fsfreeze(8)).

use std::path::Path;

use crate::command::{Step, View};

/// Thaws what is mounted there. It fails where that is not frozen.
pub(crate) fn thaw(view: View, point: &Path, mount: Option<u32>) -> Step {
    view.on_mounted("thaw the file system", point, mount, |it| format!("fsfreeze --unfreeze {it}"))
}
