//! The architectures that podstuck is built for.

use std::env::consts::ARCH;

/// An architecture, by Debian's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// This machine's architecture.
    pub(crate) fn own() -> Self {
        if ARCH == Self::Arm64.of_rust() { Self::Arm64 } else { Self::Amd64 }
    }

    /// Debian's name, which most container tools use as well.
    pub(crate) const fn of_debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name in Rust, QEMU and the GNU tools.
    pub(crate) const fn of_rust(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Rust's target triple.
    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.of_rust())
    }

    /// The cross linker.
    pub(crate) fn linker(self) -> String {
        format!("{}-linux-gnu-gcc", self.of_rust())
    }

    /// Debian's packages with the cross linker and its libraries.
    pub(crate) fn linker_packages(self) -> [String; 2] {
        let gcc = self.of_rust().replace('_', "-");
        [format!("gcc-{gcc}-linux-gnu"), format!("libc6-dev-{}-cross", self.of_debian())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_others() {
        assert_eq!(Architecture::own().of_rust(), ARCH);
        assert_eq!(Architecture::Arm64.target(), "aarch64-unknown-linux-gnu");
        assert_eq!(Architecture::Arm64.linker(), "aarch64-linux-gnu-gcc");
        let packages = Architecture::Amd64.linker_packages();
        assert_eq!(packages, ["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"]);
    }
}
