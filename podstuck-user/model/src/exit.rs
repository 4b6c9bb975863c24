//! How a command of any of the programs ends, and with which exit status.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nothing wrong was found.
    Clean,
    /// At least one finding.
    Found,
    /// Ran, but lost data.
    Lost,
    /// What was asked about is still there, or its record is; and no cause was found.
    Unexplained,
    /// What was to be said could not all be written to standard output.
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

/// Why a command could not do its work; each has an exit status of its own.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What was asked for makes no sense or does not exist.
    #[error("{0:#}")]
    Usage(anyhow::Error),
    /// A privilege or a kernel feature is missing.
    #[error("{0:#}")]
    CannotRun(anyhow::Error),
}

impl Failure {
    /// What the caller sees.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::CannotRun(_) => 3,
        }
    }
}
