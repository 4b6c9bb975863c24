//! A child process that does not outlast its test.

use std::{
    ops::{Deref, DerefMut},
    process::{Child, Command},
};

/// Killed and waited for when dropped: also by a test that fails. What it keeps busy can be unmounted after that.
pub struct Ending(Child);

impl Ending {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Deref for Ending {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ending {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
