//! Processes that run as the node's services do, whichever user runs the tests; and directories for their files.

use std::{ffi::OsStr, process::Command};

/// Leaves the login session that the tests may have been started in: its control group, and the user who has logged in.
const SCRIPT: &str = r#"if grep -q user.slice /proc/self/cgroup; then
        if [ -e /sys/fs/cgroup/cgroup.controllers ]; then trees=/sys/fs/cgroup; else trees="/sys/fs/cgroup/*"; fi
        for tree in $trees; do echo 0 > $tree/cgroup.procs; done
    fi 2>/dev/null
    [ "$(cat /proc/self/loginuid 2>/dev/null)" = 4294967295 ] || echo 4294967295 > /proc/self/loginuid 2>/dev/null
    exec "$@""#;

/// A command that runs a program as a service; until it is executed, the process is a shell.
pub fn service(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(program);
    command
}

/// A directory in which, and above which, only root can have made anything, where root runs the test.
///
/// # Errors
/// Fails when none can be made.
#[cfg(feature = "api-server")]
pub fn roots_directory() -> std::io::Result<tempfile::TempDir> {
    let run = tempfile::Builder::new().prefix("podstuck-test-").tempdir_in("/run");
    run.or_else(|_| tempfile::tempdir())
}
