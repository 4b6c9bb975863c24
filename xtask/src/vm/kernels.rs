//! Debian's kernels: looked up in its package indexes each time, and downloaded when they are new.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::architecture::Architecture;
use crate::vm::modules;
use crate::vm::offer::{self, Offer, Series};
use podstuck_process::private_apt::PrivateApt;

/// Where to look. Together they have the kernels of five years.
const SUITES: [&str; 5] = ["bullseye", "bookworm", "trixie", "trixie-backports", "sid"];
/// Those of Debian's stable releases, what they run stays in use for years; and how many of the newest series,
/// beside those.
const fn usual(architecture: Architecture) -> (&'static [Series], usize) {
    match architecture {
        Architecture::Amd64 => (&[(5, 10), (6, 1), (6, 12)], 2),
        Architecture::Arm64 => (&[(6, 1), (6, 12)], 1),
    }
}
/// Which packages a folder was made from.
const STAMP: &str = "packages";

/// A kernel, unpacked.
pub(super) struct Kernel {
    pub(super) series: Series,
    /// What the boot loader takes
    pub(super) image: PathBuf,
    /// In the order in which to load them
    pub(super) modules: Vec<PathBuf>,
}

/// Gets the wanted series, or the usual ones when none is wanted.
pub(super) fn get(
    folder: &Path,
    architecture: Architecture,
    wanted: &[String],
) -> Result<Vec<Kernel>> {
    println!("looking up Debian's kernels");
    let apt = PrivateApt::new(folder.join("apt"))?.for_architecture(architecture.of_debian());
    apt.update(&SUITES).context("cannot get Debian's package indexes")?;
    let mut names = BTreeSet::new();
    for prefix in ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"] {
        names.extend(apt.names(prefix)?);
    }
    let offers = offer::newest(&names, architecture);
    let offered: Vec<Series> = offers.keys().copied().collect();
    let mut kernels = Vec::new();
    for series in choose(&offered, architecture, wanted)? {
        let Some(offer) = offers.get(&series) else { continue };
        let kernel = Kernel::get(&apt, &folder.join("kernels"), series, offer)
            .with_context(|| format!("cannot get Linux {}", offer.release))?;
        kernels.push(kernel);
    }
    Ok(kernels)
}

/// The series to test, all of which are offered.
fn choose(
    offered: &[Series],
    architecture: Architecture,
    wanted: &[String],
) -> Result<Vec<Series>> {
    let all = || offered.iter().map(|series| name(*series)).collect::<Vec<_>>().join(", ");
    let named = |wanted: &String| {
        let found = offered.iter().find(|series| name(**series) == *wanted);
        found.copied().with_context(|| format!("Debian has no Linux {wanted}, only {}", all()))
    };
    if !wanted.is_empty() {
        return wanted.iter().map(named).collect();
    }
    let (stable, newest) = usual(architecture);
    if let Some(missing) = stable.iter().find(|series| !offered.contains(series)) {
        bail!("Debian has no Linux {} any more, only {}", name(*missing), all());
    }
    let mut chosen: BTreeSet<Series> = stable.iter().copied().collect();
    chosen.extend(offered.iter().rev().take(newest));
    Ok(chosen.into_iter().collect())
}

/// Such as 6.12.
pub(super) fn name((major, minor): Series) -> String {
    format!("{major}.{minor}")
}

impl Kernel {
    fn get(apt: &PrivateApt, folder: &Path, series: Series, offer: &Offer) -> Result<Self> {
        let place = folder.join(name(series));
        // Of other modules, too, there is nothing in an old folder.
        let mut stamp = apt.files(&offer.packages)?;
        stamp.extend(modules::WANTED.map(str::to_owned));
        let stamp = stamp.join("\n");
        if fs::read_to_string(place.join(STAMP)).is_ok_and(|found| found == stamp) {
            println!("Linux {}: there", offer.release);
        } else {
            println!("Linux {}: downloading it", offer.release);
            // Complete or not there: a download that was cut off leaves no kernel behind.
            let new = folder.join(format!("{}.new", name(series)));
            for old in [&new, &place] {
                remove(old)?;
            }
            fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
            unpack(apt, offer, &new)?;
            let file = new.join(STAMP);
            fs::write(&file, stamp).with_context(|| format!("cannot write {}", file.display()))?;
            fs::rename(&new, &place).with_context(|| format!("cannot rename {}", new.display()))?;
        }
        Ok(Self { series, image: place.join("vmlinuz"), modules: modules::list(&place)? })
    }
}

/// Puts the image and the modules that the tests use into a folder, and nothing else.
fn unpack(apt: &PrivateApt, offer: &Offer, place: &Path) -> Result<()> {
    let whole = place.join("whole");
    apt.unpack_all(&offer.packages, &whole)?;
    let release = &offer.release;
    let images = ["boot/vmlinuz-RELEASE", "usr/lib/modules/RELEASE/vmlinuz"]
        .into_iter()
        .flat_map(|image| [image.to_owned(), format!("{image}.unsigned")])
        .map(|image| image.replace("RELEASE", release))
        .collect::<Vec<_>>();
    let image = images.iter().map(|image| whole.join(image)).find(|image| image.is_file());
    let image = image.with_context(|| {
        format!("{} hold neither {}", offer.packages.join(" and "), images.join(" nor "))
    })?;
    let target = place.join("vmlinuz");
    fs::rename(&image, &target).with_context(|| format!("cannot move {}", image.display()))?;
    modules::pick(&whole, release, place)?;
    remove(&whole)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_ones_are_the_stable_and_the_two_newest() {
        let offered = [(5, 10), (6, 1), (6, 12), (6, 18), (7, 2), (7, 3)];
        let usual = choose(&offered, Architecture::Amd64, &[]).unwrap();
        assert_eq!(usual, [(5, 10), (6, 1), (6, 12), (7, 2), (7, 3)]);
        let usual = choose(&offered, Architecture::Arm64, &[]).unwrap();
        assert_eq!(usual, [(6, 1), (6, 12), (7, 3)]);
        let named = choose(&offered, Architecture::Amd64, &["6.18".to_owned()]).unwrap();
        assert_eq!(named, [(6, 18)]);
    }

    #[test]
    fn a_series_that_debian_lacks_is_named_with_those_that_it_has() {
        let choose =
            |offered: &[Series], wanted: &[String]| choose(offered, Architecture::Amd64, wanted);
        let error = choose(&[(6, 1)], &["4.19".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("4.19") && error.contains("6.1"), "{error}");
        let error = choose(&[(6, 1), (6, 12)], &[]).unwrap_err().to_string();
        assert!(error.contains("5.10"), "{error}");
    }
}
