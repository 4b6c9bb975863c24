//! kubelet's `vol_data.json` of a CSI volume: the helper's side.

use std::io::ErrorKind;

use serde::Deserialize;

use super::directory::{Contents, Directory};
use podstuck_model::csi::VolumeData;

/// It is a few hundred bytes.
const DATA_SIZE: u64 = 64 << 10;

/// What it says.
pub(super) fn read(file: &Directory<'_>) -> VolumeData {
    match file.contents(DATA_SIZE) {
        Ok(Contents::Text(text)) => data(&text, text.len() as u64),
        Ok(Contents::Other { size }) => VolumeData::Corrupt { size },
        Err(error) if error.kind() == ErrorKind::NotFound => VolumeData::Missing,
        Err(_) => VolumeData::Unknown,
    }
}

fn data(text: &[u8], size: u64) -> VolumeData {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct File {
        driver_name: String,
        volume_handle: String,
        #[serde(default)]
        volume_lifecycle_mode: String,
    }
    match serde_json::from_slice::<File>(text) {
        Ok(File { driver_name, volume_handle, volume_lifecycle_mode }) => VolumeData::Known {
            driver: driver_name,
            handle: volume_handle,
            lifecycle: volume_lifecycle_mode,
        },
        Err(_) => VolumeData::Corrupt { size },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_vol_data() {
        podstuck_fuzz::fuzz("vol_data", |input| {
            let _ = data(input, input.len() as u64);
        });
    }
}
