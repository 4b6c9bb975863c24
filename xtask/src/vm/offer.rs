//! The kernels that Debian offers, derived from the names of its packages.

use std::collections::{BTreeMap, BTreeSet};

use crate::architecture::Architecture;

/// Such as 6.12.
pub(super) type Series = (u32, u32);

/// The build variant of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flavour {
    /// For virtual machines in clouds
    Cloud,
    /// For any machine: more drivers, none of them built in
    Plain,
    /// With `PREEMPT_RT`: most locks sleep, and most interrupt handlers can be preempted
    RealTime,
}

impl Flavour {
    const ALL: [Self; 3] = [Self::Cloud, Self::Plain, Self::RealTime];

    /// The suffix in the names of this program.
    const fn ending(self) -> &'static str {
        match self {
            Self::Cloud => "",
            Self::Plain => "-plain",
            Self::RealTime => "-rt",
        }
    }

    /// The suffix of Debian's packages, before the name of the architecture.
    const fn of_debian(self) -> &'static str {
        match self {
            Self::Cloud => "-cloud",
            Self::Plain => "",
            Self::RealTime => "-rt",
        }
    }
}

/// A kernel to test: its series and its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) series: Series,
    pub(super) flavour: Flavour,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.series;
        write!(f, "{major}.{minor}{}", self.flavour.ending())
    }
}

/// A kernel and its packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// The output of `uname -r`
    pub(super) release: String,
    pub(super) packages: Vec<String>,
}

/// The newest kernel of each series and variant for this architecture.
pub(super) fn newest(
    names: &BTreeSet<String>,
    architecture: Architecture,
) -> BTreeMap<Name, Offer> {
    let of = |flavour| newest_of(names, architecture, flavour);
    Flavour::ALL.into_iter().flat_map(of).collect()
}

fn newest_of(
    names: &BTreeSet<String>,
    architecture: Architecture,
    flavour: Flavour,
) -> Vec<(Name, Offer)> {
    let ending = format!("{}-{}", flavour.of_debian(), architecture.of_debian());
    let mut all: Vec<(Vec<u32>, Offer)> =
        names.iter().filter_map(|name| offer(name, names, &ending)).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let name =
        |numbers: &[u32]| Some(Name { series: (*numbers.first()?, *numbers.get(1)?), flavour });
    // The last kernel of each series remains.
    all.into_iter().filter_map(|(numbers, offer)| Some((name(&numbers)?, offer))).collect()
}

/// The kernel in a package; `None` without one.
fn offer(name: &str, names: &BTreeSet<String>, flavour: &str) -> Option<(Vec<u32>, Offer)> {
    // `linux-image-unsigned`, `-dbg` and the like do not match this form.
    let form = ["linux-binary-unsigned-", "linux-binary-", "linux-image-"];
    let (prefix, version) =
        form.iter().find_map(|prefix| Some((*prefix, name.strip_prefix(prefix)?)))?;
    let version = version.strip_suffix(flavour)?;
    // The plain variant has no word of its own.
    let words = Flavour::ALL.map(Flavour::of_debian);
    let is_of_another = words.iter().any(|word| !word.is_empty() && version.ends_with(word));
    if is_of_another || !version.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let with =
        |prefix: &str| Some(format!("{prefix}{version}{flavour}")).filter(|n| names.contains(n));
    let packages = if prefix == "linux-image-" {
        // Newer kernels are split into several packages, and this one is empty.
        if with("linux-binary-").or_else(|| with("linux-binary-unsigned-")).is_some() {
            return None;
        }
        vec![name.to_owned()]
    } else {
        // A kernel is built before it is signed; then Debian has both packages.
        if prefix == "linux-binary-unsigned-" && with("linux-binary-").is_some() {
            return None;
        }
        // The signed kernel stays in backports for longer than its modules and the list of its built-in modules.
        vec![name.to_owned(), with("linux-modules-")?, with("linux-base-")?]
    };
    let numbers = version.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    Some((numbers.collect(), Offer { release: format!("{version}{flavour}"), packages }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cloud(major: u32, minor: u32) -> Name {
        Name { series: (major, minor), flavour: Flavour::Cloud }
    }

    fn offered(names: &[&str]) -> BTreeMap<Name, Offer> {
        newest(&names.iter().map(|name| (*name).to_owned()).collect(), Architecture::Amd64)
    }

    #[test]
    fn the_newest_of_each_series_is_by_number() {
        let offers = offered(&[
            "linux-image-6.12.94+deb13-cloud-amd64",
            "linux-image-6.12.107+deb13-cloud-amd64",
            "linux-image-6.12.108+deb13-cloud-amd64-dbg",
            "linux-image-5.10.0-9-cloud-amd64",
            "linux-image-5.10.0-32-cloud-amd64",
            "linux-image-5.10.0-32-cloud-amd64-unsigned",
            "linux-image-cloud-amd64",
            "linux-image-6.12.109+deb13-cloud-arm64",
        ]);
        let releases: Vec<&str> = offers.values().map(|offer| offer.release.as_str()).collect();
        assert_eq!(releases, ["5.10.0-32-cloud-amd64", "6.12.107+deb13-cloud-amd64"]);
        assert_eq!(offers[&cloud(5, 10)].packages, ["linux-image-5.10.0-32-cloud-amd64"]);
    }

    #[test]
    fn each_flavour_has_kernels_of_its_own() {
        let offers = offered(&[
            "linux-image-6.12.94+deb13-amd64",
            "linux-image-6.12.94+deb13-cloud-amd64",
            "linux-image-6.12.107+deb13-rt-amd64",
            "linux-image-rt-amd64",
        ]);
        let all: Vec<String> =
            offers.iter().map(|(name, offer)| format!("{name} {}", offer.release)).collect();
        let expected = [
            "6.12 6.12.94+deb13-cloud-amd64",
            "6.12-plain 6.12.94+deb13-amd64",
            "6.12-rt 6.12.107+deb13-rt-amd64",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_kernel_in_parts_needs_its_modules() {
        let offers = offered(&[
            "linux-image-7.0.13+deb13-cloud-amd64",
            "linux-binary-7.0.13+deb13-cloud-amd64",
            "linux-image-7.2.13+deb14-cloud-amd64",
            "linux-binary-7.2.13+deb14-cloud-amd64",
            "linux-binary-unsigned-7.2.13+deb14-cloud-amd64",
            "linux-modules-7.2.13+deb14-cloud-amd64",
            "linux-base-7.2.13+deb14-cloud-amd64",
            "linux-binary-unsigned-7.3.4+deb13-cloud-amd64",
            "linux-modules-7.3.4+deb13-cloud-amd64",
            "linux-base-7.3.4+deb13-cloud-amd64",
        ]);
        assert!(!offers.contains_key(&cloud(7, 0)), "its modules are gone");
        assert!(offers[&cloud(7, 2)].packages[0].starts_with("linux-binary-7.2.13"));
        assert!(offers[&cloud(7, 3)].packages[0].starts_with("linux-binary-unsigned-7.3.4"));
        assert!(offers.values().all(|offer| offer.packages.len() == 3));
    }
}
