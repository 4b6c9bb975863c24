//! One call at a time for each volume: a second one is refused, as most drivers do.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

type Volumes = Arc<Mutex<BTreeSet<String>>>;

/// The volumes about which a call is being answered.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    volumes: Volumes,
}

/// The lock of one volume, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Lock {
    volumes: Volumes,
    volume: String,
}

impl InFlight {
    /// The volume's lock, or none if another call has it.
    pub fn lock(&self, volume: &str) -> Option<Lock> {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let free = volumes.insert(volume.to_owned());
        free.then(|| Lock { volumes: Arc::clone(&self.volumes), volume: volume.to_owned() })
    }
}

impl Lock {
    /// Keeps it until the process ends.
    pub fn keep(self) {
        mem::forget(self);
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.remove(&self.volume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_lock() {
        let in_flight = InFlight::default();
        let first = in_flight.lock("v1").unwrap();
        assert!(in_flight.lock("v1").is_none());
        assert!(in_flight.lock("v2").is_some());
        drop(first);
        in_flight.lock("v1").unwrap().keep();
        assert!(in_flight.lock("v1").is_none());
    }
}
