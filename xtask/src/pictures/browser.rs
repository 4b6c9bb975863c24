//! A headless browser: Chromium.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use podstuck_process as process;

/// The path of the browser.
pub(super) struct Browser(PathBuf);

impl Browser {
    pub(super) fn find() -> Result<Self> {
        match ["chromium", "google-chrome"].into_iter().find_map(process::find) {
            Some(program) => Ok(Self(program)),
            None => bail!(
                "no browser; on Debian: `apt-get install --no-install-recommends chromium fonts-dejavu-core`"
            ),
        }
    }

    /// Draws the top of a page, in a window of this size in pixels.
    pub(super) fn draw(&self, page: &Path, (width, height): (u32, u32), file: &Path) -> Result<()> {
        let mut browser = Command::new(&self.0);
        // As root, it refuses to run with its sandbox; the page is generated here and loads nothing.
        browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        browser.arg(format!("--window-size={width},{height}"));
        browser.arg(format!("--screenshot={}", file.display()));
        browser.arg(format!("file://{}", page.display()));
        process::output(&mut browser)?;
        println!("{}", file.display());
        Ok(())
    }
}
