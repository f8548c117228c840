//! The program of a container image: found in the image's files as the image says, or as the instance says instead.

use super::{Command, etc, variables};
use crate::access::{self, strings};
use crate::maker::Maker;
use anyhow::{Context, bail};
use nfluid_control::access::{Access, WRITABLE};
use nfluid_control::spec::PortSpec;
use nfluid_image::{Ids, Reference, Settings, User};
use nfluid_sandbox::{Layers, Program, Root, Shown, Tree};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories in which a program writes, beside its image.
const IMAGE_SCRATCH: &[&str] = &["/dev/shm"];
/// Directories of programs, for images that name none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The most of a script that names its interpreter (execve(2)), and the most scripts that interpret each other.
const SCRIPT_LINE: u64 = 256;
const SCRIPTS_MAX: u32 = 5;

/// The files of an image for one instance, and how its program is run.
pub(super) struct Files {
    /// The image, as documents name it.
    name: String,
    /// Which image that was.
    id: String,
    pub settings: Settings,
    ids: Ids,
    tree: Arc<Tree>,
}

impl Files {
    /// Puts the files together. `give` hands what keeps the image to the monitor.
    ///
    /// # Errors
    /// There is no such image, or it has no such user.
    pub(super) fn new(
        maker: &Maker,
        user: u32,
        name: &str,
        access: &Access,
        mut give: impl FnMut(OwnedFd) -> RawFd,
    ) -> anyhow::Result<Self> {
        let image = maker.images.use_image(&Reference::parse(name)?)?;
        let [passwd, group] = ["etc/passwd", "etc/group"].map(|file| image.read(Path::new(file)));
        let ids = User::parse(access.user.as_ref().unwrap_or(&image.settings.user));
        let ids = ids.find(&passwd, &group)?;
        let tree = Tree::new(&Layers {
            layers: &image.layers,
            owner: (ids.user, ids.group),
            id: maker
                .kernel_ids
                .get(user)
                .context("no kernel user is left")?,
            writable_bytes: access.writable.unwrap_or(WRITABLE).0,
        })?;
        // Its number is of no use to the monitor: the kernel counts who has it.
        give(image.held);
        Ok(Files {
            name: name.to_owned(),
            id: image.id,
            settings: image.settings,
            ids,
            tree: Arc::new(tree),
        })
    }

    /// Returns the root directory.
    pub(super) fn root(&self, shown: Shown) -> Root {
        let scratch = IMAGE_SCRATCH;
        Root::Image(Arc::clone(&self.tree), Shown { scratch, ..shown })
    }

    /// Returns true if another image has this name now.
    pub(super) fn is_outdated(&self, maker: &Maker) -> bool {
        let current =
            Reference::parse(&self.name).and_then(|name| maker.images.is_current(&name, &self.id));
        !matches!(current, Ok(true))
    }

    /// Opens the program, for the instance `host`, and writes its `/etc`.
    ///
    /// # Errors
    /// The image has no such program, or no room.
    pub(super) fn command(
        &self,
        maker: &Maker,
        (host, ports): (&str, &[PortSpec]),
        (entrypoint, args): (&[String], &[String]),
        access: &Access,
    ) -> anyhow::Result<Command> {
        for (name, content) in etc::network(host, ports) {
            self.tree.write(&Path::new("/etc").join(name), &content)?;
        }
        let directory = match access
            .directory
            .as_deref()
            .unwrap_or(&self.settings.directory)
        {
            "" => "/",
            directory => directory,
        };
        self.tree.make_directory(Path::new(directory))?;
        let environment = environment(&self.settings, access, &self.ids, host);
        let mut words = words(&self.settings, entrypoint, args)?;
        let path = environment
            .iter()
            .find_map(|variable| variable.strip_prefix("PATH="));
        let found = find(&self.tree, &words, directory, path.unwrap_or(PATH))?;
        let program = resolve(&self.tree, found, &mut words)?;
        Ok(Command {
            program: maker.programs.of_image(program)?,
            arguments: strings(words, "an argument")?,
            environment: strings(environment, "a variable")?,
            directory: access::directory(directory)?,
        })
    }
}

/// The program's name and its arguments.
fn words(
    settings: &Settings,
    entrypoint: &[String],
    args: &[String],
) -> anyhow::Result<Vec<String>> {
    let (first, rest) = match (entrypoint, args) {
        // The image's command is for its own entrypoint.
        ([_, ..], args) => (entrypoint, args),
        ([], []) => (&settings.entrypoint[..], &settings.command[..]),
        ([], args) => (&settings.entrypoint[..], args),
    };
    let words: Vec<String> = first.iter().chain(rest).cloned().collect();
    if words.is_empty() {
        bail!("the image names no program: write 'entrypoint: [/PROGRAM]'");
    }
    Ok(words)
}

/// The image's variables, and the instance's over them.
fn environment(settings: &Settings, access: &Access, ids: &Ids, host: &str) -> Vec<String> {
    let home = ids.home.as_deref().unwrap_or("/");
    let own = vec![
        format!("PATH={PATH}"),
        format!("HOME={home}"),
        format!("HOSTNAME={host}"),
    ];
    variables(variables(own, &settings.environment), &access.environment)
}

/// The place of the first word: a path, or a name in one of the directories of `path`.
fn find(tree: &Tree, words: &[String], directory: &str, path: &str) -> anyhow::Result<PathBuf> {
    let name = words.first().map_or("", String::as_str);
    if name.contains('/') {
        return Ok(Path::new(directory).join(name));
    }
    let mut places = path.split(':').map(|folder| Path::new(folder).join(name));
    let is_there = |place: &PathBuf| tree.open(place).is_ok_and(|file| is_file(&file));
    places.find(is_there).with_context(|| {
        format!(
            "the image has no program '{}' in {path}",
            name.escape_debug()
        )
    })
}

fn is_file(file: &OwnedFd) -> bool {
    let found =
        rustix::fs::fstat(file).map(|found| rustix::fs::FileType::from_raw_mode(found.st_mode));
    found == Ok(rustix::fs::FileType::RegularFile)
}

/// Opens the program at a place. Of a script, that is its interpreter, to whose arguments the script is added.
fn resolve(tree: &Tree, mut place: PathBuf, words: &mut Vec<String>) -> anyhow::Result<Program> {
    for _ in 0..SCRIPTS_MAX {
        let file = tree.open(&place);
        let file = file.map_err(|errno| match errno {
            Errno::NOENT => anyhow::anyhow!("the image has no {}", place.display()),
            errno => anyhow::anyhow!("opening {} of the image: {errno}", place.display()),
        })?;
        if !is_file(&file) {
            bail!("{} of the image is no file", place.display());
        }
        let mut file = File::from(file);
        let mut start = Vec::new();
        let reading = || format!("reading {} of the image", place.display());
        (&mut file)
            .take(SCRIPT_LINE)
            .read_to_end(&mut start)
            .with_context(reading)?;
        let Some(line) = start.strip_prefix(b"#!") else {
            return Ok(Program::of_image(file.into(), &place)?);
        };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let (interpreter, argument) = match line.trim().split_once([' ', '\t']) {
            Some((interpreter, argument)) => {
                (interpreter.to_owned(), Some(argument.trim().to_owned()))
            }
            None => (line.trim().to_owned(), None),
        };
        if !interpreter.starts_with('/') {
            bail!(
                "the script {} of the image names no interpreter by a path",
                place.display()
            );
        }
        // As the kernel does it (execve(2)).
        let script = place.to_string_lossy().into_owned();
        let own = [Some(interpreter.clone()), argument, Some(script)];
        words.splice(..1, own.into_iter().flatten());
        place = PathBuf::from(OsStr::from_bytes(interpreter.as_bytes()));
    }
    bail!(
        "{} of the image is a script of scripts of scripts",
        place.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        Settings {
            entrypoint: words("/entry -a"),
            command: words("run now"),
            environment: words("A=1 PATH=/own B=2"),
            ..Settings::default()
        }
    }

    #[test]
    fn arguments_replace_the_command_and_an_entrypoint_replaces_both() {
        let own = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let said = |entrypoint: &[&str], args: &[&str]| {
            words(&settings(), &own(entrypoint), &own(args))
                .expect("a program")
                .join(" ")
        };
        assert_eq!(said(&[], &[]), "/entry -a run now");
        assert_eq!(said(&[], &["-x"]), "/entry -a -x");
        assert_eq!(said(&["sh"], &[]), "sh");
        assert_eq!(said(&["sh"], &["-c"]), "sh -c");
        words(&Settings::default(), &[], &[]).expect_err("there is no program");
    }

    #[test]
    fn variables_of_the_instance_replace_those_of_the_image() {
        let access = Access {
            environment: vec!["B=3".to_owned(), "C=4".to_owned()],
            ..Access::default()
        };
        let ids = Ids {
            user: 0,
            group: 0,
            home: Some("/root".to_owned()),
        };
        let all = environment(&settings(), &access, &ids, "web");
        assert_eq!(
            all.join(" "),
            "HOME=/root HOSTNAME=web A=1 PATH=/own B=3 C=4"
        );
    }
}
