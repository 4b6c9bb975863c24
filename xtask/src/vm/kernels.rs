//! Debian's kernels: looked up in the package indexes on each run, and downloaded if they are new.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::architecture::Architecture;
use crate::vm::modules;
use crate::vm::offer::{self, Flavour, Name, Offer, Series};
use podstuck_process::folder;
use podstuck_process::private_apt::PrivateApt;

/// The suites to search. Together they contain the kernels of five years.
const SUITES: [&str; 5] = ["bullseye", "bookworm", "trixie", "trixie-backports", "sid"];
/// The series of Debian's stable releases, which remain in use for years; and how many of the newest series are
/// tested in addition.
const fn usual(architecture: Architecture) -> (&'static [Series], usize) {
    match architecture {
        Architecture::Amd64 => (&[(5, 10), (6, 1), (6, 12)], 2),
        Architecture::Arm64 => (&[(6, 1), (6, 12)], 1),
    }
}
/// The series of the machines with hidden BTF, with a locked-down kernel, and with runtimes; if it is not selected,
/// the last one of the run.
pub(super) const COMMON_SERIES: Series = (6, 12);

/// An unpacked kernel.
pub(super) struct Kernel {
    pub(super) name: Name,
    /// The image for the boot loader
    pub(super) image: PathBuf,
    /// In load order
    pub(super) modules: Vec<PathBuf>,
}

/// The wanted kernels.
pub(super) enum Wanted<'a> {
    /// Those that are tested to this extent
    All(Extent),
    /// As in 6.12, 6.12-plain and 6.12-rt
    These(&'a [String]),
}

/// The extent of the tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The tests that fail first if hooks differ: on the oldest kernel, the newest one, and one between
    Brief,
    /// The tests that depend most on the kernel
    Usual,
    /// All tests; for Debian's stable releases also the plain kernels and those with `PREEMPT_RT`
    Whole,
}

/// Provides the wanted kernels.
pub(super) fn get(
    folder: &Path,
    architecture: Architecture,
    wanted: &Wanted<'_>,
) -> Result<Vec<Kernel>> {
    println!("looking up Debian's kernels");
    let apt = PrivateApt::new(folder.join("apt"))?.for_architecture(architecture.of_debian());
    apt.update(&SUITES).context("cannot get Debian's package indexes")?;
    let mut names = BTreeSet::new();
    for prefix in ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"] {
        names.extend(apt.names(prefix)?);
    }
    let offers = offer::newest(&names, architecture);
    let offered: Vec<Name> = offers.keys().copied().collect();
    let mut kernels = Vec::new();
    for name in choose(&offered, architecture, wanted)? {
        let Some(offer) = offers.get(&name) else { continue };
        let kernel = Kernel::get(&apt, &folder.join("kernels"), name, offer)
            .with_context(|| format!("cannot get Linux {}", offer.release))?;
        kernels.push(kernel);
    }
    Ok(kernels)
}

/// The kernels to test, all of which must be offered.
fn choose(offered: &[Name], architecture: Architecture, wanted: &Wanted<'_>) -> Result<Vec<Name>> {
    let all = || offered.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let named = |wanted: &String| {
        let found = offered.iter().find(|name| name.to_string() == *wanted);
        found.copied().with_context(|| format!("Debian has no Linux {wanted}, only {}", all()))
    };
    let extent = match wanted {
        Wanted::These(wanted) => return wanted.iter().map(named).collect(),
        Wanted::All(extent) => *extent,
    };
    let (stable, newest) = usual(architecture);
    let of = |flavour| move |series: &Series| Name { series: *series, flavour };
    let stable_of = |flavour| stable.iter().map(of(flavour));
    if let Some(missing) = stable_of(Flavour::Cloud).find(|name| !offered.contains(name)) {
        bail!("Debian has no Linux {missing} any more, only {}", all());
    }
    let for_clouds = offered.iter().filter(|name| name.flavour == Flavour::Cloud).copied();
    let mut chosen: BTreeSet<Name> = stable_of(Flavour::Cloud).collect();
    chosen.extend(for_clouds.rev().take(newest));
    if extent == Extent::Whole {
        let others = [Flavour::Plain, Flavour::RealTime].into_iter().flat_map(stable_of);
        let (there, missing): (Vec<Name>, Vec<Name>) =
            others.partition(|name| offered.contains(name));
        missing.iter().for_each(|name| println!("SKIPPED Linux {name}: Debian has none"));
        chosen.extend(there);
    }
    if extent == Extent::Brief {
        let ends = [chosen.first().copied(), chosen.last().copied()];
        chosen.retain(|name| ends.contains(&Some(*name)) || name.series == COMMON_SERIES);
    }
    Ok(chosen.into_iter().collect())
}

impl Kernel {
    fn get(apt: &PrivateApt, folder: &Path, name: Name, offer: &Offer) -> Result<Self> {
        let place = folder.join(name.to_string());
        // A folder that was made with another list of modules is outdated as well.
        let mut stamp = apt.files(&offer.packages)?;
        stamp.extend(modules::WANTED.map(str::to_owned));
        println!("Linux {}", offer.release);
        folder::unless_stamped(&place, &stamp.join("\n"), || unpack(apt, offer, &place))?;
        Ok(Self { name, image: place.join("vmlinuz"), modules: modules::list(&place)? })
    }
}

/// Extracts only the image and the modules that the tests use into a folder.
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
    folder::remove(&whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flavour: Flavour, offered: &[Series]) -> Vec<Name> {
        offered.iter().map(|series| Name { series: *series, flavour }).collect()
    }

    fn chosen(architecture: Architecture, wanted: &Wanted<'_>) -> Vec<String> {
        let mut offered = of(Flavour::Cloud, &[(5, 10), (6, 1), (6, 12), (6, 18), (7, 2), (7, 3)]);
        offered.extend(of(Flavour::RealTime, &[(6, 1), (6, 12), (7, 2)]));
        let chosen = choose(&offered, architecture, wanted).unwrap();
        chosen.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_usual_ones_are_the_stable_and_the_two_newest() {
        let usual = chosen(Architecture::Amd64, &Wanted::All(Extent::Usual));
        assert_eq!(usual, ["5.10", "6.1", "6.12", "7.2", "7.3"]);
        let usual = chosen(Architecture::Arm64, &Wanted::All(Extent::Usual));
        assert_eq!(usual, ["6.1", "6.12", "7.3"]);
        let named = chosen(Architecture::Amd64, &Wanted::These(&["6.18".into(), "7.2-rt".into()]));
        assert_eq!(named, ["6.18", "7.2-rt"]);
    }

    #[test]
    fn in_brief_one_stands_for_those_between() {
        let brief = chosen(Architecture::Amd64, &Wanted::All(Extent::Brief));
        assert_eq!(brief, ["5.10", "6.12", "7.3"]);
    }

    #[test]
    fn all_of_them_are_those_and_the_stable_ones_of_other_flavours() {
        let whole = chosen(Architecture::Amd64, &Wanted::All(Extent::Whole));
        assert_eq!(whole, ["5.10", "6.1", "6.1-rt", "6.12", "6.12-rt", "7.2", "7.3"]);
    }

    #[test]
    fn a_series_that_debian_lacks_is_named_with_those_that_it_has() {
        let fails = |offered: &[Series], wanted: &Wanted<'_>| {
            let offered = of(Flavour::Cloud, offered);
            choose(&offered, Architecture::Amd64, wanted).unwrap_err().to_string()
        };
        let error = fails(&[(6, 1)], &Wanted::These(&["4.19".into()]));
        assert!(error.contains("4.19") && error.contains("6.1"), "{error}");
        let error = fails(&[(6, 1), (6, 12)], &Wanted::All(Extent::Usual));
        assert!(error.contains("5.10"), "{error}");
    }
}
