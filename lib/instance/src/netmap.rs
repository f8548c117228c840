//! The library that gives a program on netmap its ports.

use anyhow::Context;
use nfluid_sandbox::{Root, Shown, View};
use std::path::{Path, PathBuf};

/// The variable by which a program's loader takes a library before all others.
const PRELOAD: &str = "LD_PRELOAD";
/// Where instances see the library's folder.
const SEEN_AT: &str = "/nfluid";
/// Its name where it is installed.
const INSTALLED: &str = "libnfluid-netmap.so";
/// Its folder there, from the folder of programs.
const INSTALLED_FOLDER: &str = "../lib/nfluid";
/// Its name where it was built, beside the programs.
const BUILT: &str = "libnfluid_netmap.so";

/// The library, found.
#[derive(Debug)]
pub(crate) struct NetmapLibrary {
    folder: PathBuf,
    name: &'static str,
}

impl NetmapLibrary {
    /// Finds the library that belongs to the program that hosts built-in NFs.
    pub(crate) fn beside(program: &Path) -> anyhow::Result<Self> {
        let folder = program.parent().unwrap_or(Path::new("/"));
        let places = [
            (folder.join(INSTALLED_FOLDER), INSTALLED),
            (folder.to_owned(), BUILT),
        ];
        let found = places
            .iter()
            .find(|(folder, name)| folder.join(name).is_file());
        let (folder, name) = found.with_context(|| {
            format!(
                "{} is not there: install it",
                places[0].0.join(places[0].1).display()
            )
        })?;
        let looking = || format!("looking at {}", folder.display());
        Ok(NetmapLibrary {
            // A view has no `..`.
            folder: folder.canonicalize().with_context(looking)?,
            name,
        })
    }

    /// The variable by which the program's loader finds the library.
    pub(crate) fn preload(&self) -> (&'static str, String) {
        (PRELOAD, format!("{SEEN_AT}/{}", self.name))
    }

    /// The files that the program sees: the host's libraries and this one.
    pub(crate) fn root(&self) -> Root {
        Root::Libraries(Shown {
            extra: vec![View {
                of: self.folder.clone(),
                at: SEEN_AT.into(),
                is_writable: false,
            }],
            ..Shown::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::NetmapLibrary;

    #[test]
    fn the_installed_library_comes_before_one_that_was_built() {
        let home = std::env::temp_dir().join(format!("nfl-netmap-{}", std::process::id()));
        let (programs, libraries) = (home.join("bin"), home.join("lib/nfluid"));
        for folder in [&programs, &libraries] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        let found = || NetmapLibrary::beside(&programs.join("nfluid-nf"));
        let missing = found().expect_err("there is none").to_string();
        assert!(
            missing.contains("libnfluid-netmap.so is not there: install it"),
            "{missing}"
        );
        std::fs::write(programs.join(super::BUILT), "").expect("a file");
        let preload = found().expect("built").preload();
        assert_eq!(preload.1, "/nfluid/libnfluid_netmap.so");
        std::fs::write(libraries.join(super::INSTALLED), "").expect("a file");
        let preload = found().expect("installed").preload();
        assert_eq!(
            preload,
            ("LD_PRELOAD", "/nfluid/libnfluid-netmap.so".to_owned())
        );
        std::fs::remove_dir_all(home).expect("removed");
    }
}
