//! Names of images: where an image is read from, as `skopeo copy` names it.

use crate::error::ImageError;
use std::fmt;
use std::path::{Path, PathBuf};

/// The place of an image, and which one there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The kind of the place.
    pub(crate) format: Format,
    /// The directory or file: absolute.
    pub(crate) path: PathBuf,
    /// The name of the image there; absent: there is only one.
    pub(crate) tag: Option<String>,
}

/// The formats that images are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    /// A directory of the OCI layout.
    OciDirectory,
    /// The same in a tar file.
    OciArchive,
    /// What `docker save` and `podman save` write.
    DockerArchive,
}

const FORMATS: [(&str, Format); 3] = [
    ("oci", Format::OciDirectory),
    ("oci-archive", Format::OciArchive),
    ("docker-archive", Format::DockerArchive),
];

const WRITTEN: &str =
    "write oci:/DIR[:TAG], oci-archive:/FILE[:TAG] or docker-archive:/FILE[:NAME:TAG]";

impl Reference {
    /// Reads a name whose path is absolute.
    ///
    /// # Errors
    /// The format is unknown, or the path is not absolute.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let found = Self::parse_near(text, Path::new(""))?;
        if !found.path.is_absolute() {
            return Err(bad(text, "its path is not absolute"));
        }
        Ok(found)
    }

    /// Reads a name whose path may be relative to a directory.
    ///
    /// # Errors
    /// The format is unknown, or there is no path.
    pub fn parse_near(text: &str, directory: &Path) -> Result<Self, ImageError> {
        let (word, rest) = text.split_once(':').ok_or_else(|| bad(text, WRITTEN))?;
        let format = FORMATS.iter().find(|(name, _)| *name == word);
        let (_, format) = format.ok_or_else(|| bad(text, WRITTEN))?;
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        if path.is_empty() || tag.is_some_and(str::is_empty) {
            return Err(bad(text, WRITTEN));
        }
        Ok(Reference {
            format: *format,
            path: directory.join(path),
            tag: tag.map(str::to_owned),
        })
    }
}

fn bad(text: &str, why: &'static str) -> ImageError {
    ImageError::Reference {
        text: text.escape_debug().to_string(),
        why,
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = FORMATS.iter().find(|(_, format)| *format == self.format);
        let word = word.map_or("", |(word, _)| word);
        write!(f, "{word}:{}", self.path.display())?;
        match &self.tag {
            Some(tag) => write!(f, ":{tag}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_it_is_written_as() {
        for text in [
            "oci:/images/web",
            "oci:/images/web:1.2",
            "oci-archive:/web.tar",
            "docker-archive:/web.tar:docker.io/library/web:1.2",
        ] {
            assert_eq!(Reference::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_names_no_image_is_refused() {
        for text in [
            "",
            "web",
            "docker://web",
            "oci:",
            "oci::tag",
            "oci:web",
            "oci:/web:",
            "OCI:/web",
        ] {
            Reference::parse(text).expect_err(text);
        }
        let near = Reference::parse_near("oci:web", Path::new("/images")).expect("a name");
        assert_eq!(near.to_string(), "oci:/images/web");
    }
}
