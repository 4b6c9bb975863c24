//! The outcome of a command of any of the programs, and its exit status.

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// No problem found.
    Clean,
    /// At least one finding.
    Found,
    /// The command ran but lost data.
    Lost,
    /// The target, or its record, still exists, and no cause was found.
    Unexplained,
    /// The output could not be written completely to standard output.
    Unwritten,
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Clean => 0,
            Exit::Found => 1,
            Exit::Lost => 4,
            Exit::Unexplained => 5,
            Exit::Unwritten => 6,
        }
    }
}

/// The reason why a command could not run; each has its own exit status.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The arguments are invalid, or the target does not exist.
    #[error("{0:#}")]
    Usage(anyhow::Error),
    /// A privilege or a kernel feature is missing.
    #[error("{0:#}")]
    CannotRun(anyhow::Error),
}

impl Failure {
    /// The exit status.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::CannotRun(_) => 3,
        }
    }
}
