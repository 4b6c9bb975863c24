//! Records from the ring buffer, as slices of a buffer that they share.

use std::io;

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{MapData, RingBuf},
};
use bytes::{Bytes, BytesMut};
use tokio::io::{Interest, unix::AsyncFd};

/// Enough for a full ring at a time; the buffer is reused once its records are gone.
const BATCH_BYTES: usize = 256 << 10;
/// The probes' `EVENTS`.
const RING_BYTES: usize = 1 << 20;

/// The reading end of the ring.
pub struct Ring {
    fd: AsyncFd<RingBuf<MapData>>,
    buffer: BytesMut,
}

impl Ring {
    /// Takes the ring out of the loaded probes. Call it inside the runtime.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let map = ebpf.take_map("EVENTS").context("this build has no map `EVENTS`")?;
        let ring = RingBuf::try_from(map).context("map `EVENTS`")?;
        // SAFETY: the ring owns its descriptor until it is dropped together with the `AsyncFd`.
        let fd = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }
            .map_err(io::Error::from)
            .context("waiting for the ring buffer")?;
        Ok(Self { fd, buffer: BytesMut::new() })
    }

    /// Waits for records and returns those that are there. Safe to cancel: a record leaves the ring only when it is
    /// returned.
    pub async fn next(&mut self) -> io::Result<Vec<Bytes>> {
        loop {
            let records = {
                let mut ready = self.fd.readable_mut().await?;
                let records = drain(ready.get_inner_mut(), &mut self.buffer);
                // Only after draining, and only an empty ring is not ready: a record that arrives between the last
                // read and this line wakes the descriptor again.
                if records.is_empty() {
                    ready.clear_ready();
                }
                records
            };
            if !records.is_empty() {
                return Ok(records);
            }
        }
    }

    /// The records in the ring now, without waiting, even while more are written.
    pub fn rest(&mut self) -> Vec<Bytes> {
        let batch = |_| drain(self.fd.get_mut(), &mut self.buffer);
        (0..RING_BYTES / BATCH_BYTES).flat_map(batch).collect()
    }
}

/// The only copy of a record: out of the ring, whose space the kernel needs back.
fn drain(ring: &mut RingBuf<MapData>, buffer: &mut BytesMut) -> Vec<Bytes> {
    let mut records = Vec::new();
    let mut taken = 0;
    while taken < BATCH_BYTES
        && let Some(item) = ring.next()
    {
        buffer.extend_from_slice(&item);
        records.push(buffer.split().freeze());
        taken += item.len();
    }
    records
}
