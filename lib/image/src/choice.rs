//! Which image of those in a directory or archive is meant, and what it consists of.

use crate::blobs::Blobs;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::reference::{Format, Reference};
use oci_spec::image::{
    Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os,
};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The annotation that holds an image's name in an index (annotations of the OCI image specification).
const NAME: &str = "org.opencontainers.image.ref.name";
/// Docker's kind of an index, which has no name in the specification.
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Most indexes in each other, and most layers of an image.
const DEPTH_MAX: u32 = 4;
const LAYERS_MAX: usize = 127;

/// An image that was found.
pub(crate) struct Found {
    /// The digest of its configuration, by which it is known.
    pub id: Digest,
    pub config: ImageConfiguration,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
}

/// A layer as it is stored.
pub(crate) struct Layer {
    /// Its name among the blobs.
    pub blob: PathBuf,
    /// The digest and size of the blob; absent in Docker's archives, where only the content has a digest.
    pub stored: Option<(Digest, u64)>,
    /// The digest of the tar file in it.
    pub content: Digest,
}

/// Opens the place of an image, and finds the image there.
///
/// # Errors
/// The image is not there, or is for another kind of machine, or a document of it is damaged.
pub(crate) fn find(reference: &Reference) -> Result<(Blobs, Found), ImageError> {
    let blobs = match reference.format {
        Format::OciDirectory => Blobs::in_directory(&reference.path)?,
        Format::OciArchive | Format::DockerArchive => Blobs::in_archive(&reference.path)?,
    };
    let found = match reference.format {
        Format::DockerArchive => of_docker(&blobs, reference)?,
        _ => of_oci(&blobs, reference)?,
    };
    check_machine(&found.config)?;
    Ok((blobs, found))
}

fn parse<T: for<'a> Deserialize<'a>>(bytes: &[u8], name: &Path) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| {
        ImageError::bad(
            name.display().to_string(),
            format!("it is not what it should be: {error}"),
        )
    })
}

fn of_oci(blobs: &Blobs, reference: &Reference) -> Result<Found, ImageError> {
    let name = Path::new("index.json");
    let index: ImageIndex = parse(&blobs.document(name)?, name)?;
    let descriptor = chosen(index.manifests(), reference)?;
    let manifest = manifest(blobs, descriptor, 0)?;
    let config = manifest.config();
    let bytes = checked_document(blobs, config)?;
    let config_name = blob_name(&Digest::written(config.digest())?);
    let config: ImageConfiguration = parse(&bytes, &config_name)?;
    let stored = manifest.layers().iter().map(|layer| {
        let digest = Digest::written(layer.digest())?;
        Ok((blob_name(&digest), Some((digest, layer.size()))))
    });
    let stored = stored.collect::<Result<_, ImageError>>()?;
    Ok(Found {
        id: Digest::of(&bytes),
        layers: layers(stored, &config)?,
        config,
    })
}

/// The image of this name, or the only one.
fn chosen<'a>(all: &'a [Descriptor], reference: &Reference) -> Result<&'a Descriptor, ImageError> {
    let name = |one: &'a Descriptor| one.annotations().as_ref()?.get(NAME).map(String::as_str);
    let found = match &reference.tag {
        Some(tag) => all.iter().find(|one| name(one) == Some(tag)),
        None => match all {
            [only] => Some(only),
            _ => None,
        },
    };
    found.ok_or_else(|| none_chosen(reference, all.iter().filter_map(name)))
}

fn none_chosen<'a>(reference: &Reference, names: impl Iterator<Item = &'a str>) -> ImageError {
    let names: Vec<String> = names
        .take(16)
        .map(|name| name.escape_debug().to_string())
        .collect();
    let why = match names.is_empty() {
        true => "it has no image with a name, or none at all".to_owned(),
        false => format!("name one of its images: {}", names.join(", ")),
    };
    ImageError::bad(reference.to_string(), why)
}

/// Follows indexes to the manifest for this machine.
fn manifest(
    blobs: &Blobs,
    descriptor: &Descriptor,
    depth: u32,
) -> Result<ImageManifest, ImageError> {
    let name = blob_name(&Digest::written(descriptor.digest())?);
    let bytes = checked_document(blobs, descriptor)?;
    let kind = descriptor.media_type();
    let is = |oci: MediaType, docker: &str| *kind == oci || kind.to_string() == docker;
    if is(MediaType::ImageManifest, DOCKER_MANIFEST) {
        return parse(&bytes, &name);
    }
    if !is(MediaType::ImageIndex, DOCKER_LIST) || depth == DEPTH_MAX {
        let why = format!("it is no manifest of an image, but {kind}");
        return Err(ImageError::bad(name.display().to_string(), why));
    }
    let index: ImageIndex = parse(&bytes, &name)?;
    let fits = |one: &&Descriptor| {
        let platform = one.platform().as_ref();
        platform.is_none_or(|platform| {
            *platform.os() == Os::Linux && *platform.architecture() == Arch::default()
        })
    };
    let Some(one) = index.manifests().iter().find(fits) else {
        let machines = index
            .manifests()
            .iter()
            .filter_map(|one| one.platform().as_ref());
        let machines: Vec<String> = machines
            .take(16)
            .map(|one| format!("{}/{}", one.os(), one.architecture()))
            .collect();
        return Err(other_machine(&machines.join(", ")));
    };
    manifest(blobs, one, depth + 1)
}

fn check_machine(config: &ImageConfiguration) -> Result<(), ImageError> {
    if *config.os() == Os::Linux && *config.architecture() == Arch::default() {
        return Ok(());
    }
    Err(other_machine(&format!(
        "{}/{}",
        config.os(),
        config.architecture()
    )))
}

fn other_machine(which: &str) -> ImageError {
    let why = format!(
        "it is for {}, and this machine is linux/{}: copy it with 'skopeo --override-arch {1} copy'",
        which.escape_debug(),
        Arch::default()
    );
    ImageError::bad("the image", why)
}

/// Reads a document and compares it with its descriptor.
fn checked_document(blobs: &Blobs, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
    let digest = Digest::written(descriptor.digest())?;
    let name = blob_name(&digest);
    let bytes = blobs.document(&name)?;
    if bytes.len() as u64 != descriptor.size() || Digest::of(&bytes) != digest {
        return Err(ImageError::bad(
            name.display().to_string(),
            "it is not what its digest says",
        ));
    }
    Ok(bytes)
}

fn blob_name(digest: &Digest) -> PathBuf {
    Path::new("blobs/sha256").join(digest.hex())
}

/// An image in the `manifest.json` of Docker's archives.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: PathBuf,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<PathBuf>,
}

impl DockerImage {
    fn names(&self) -> &[String] {
        self.repo_tags.as_deref().unwrap_or_default()
    }
}

fn of_docker(blobs: &Blobs, reference: &Reference) -> Result<Found, ImageError> {
    let name = Path::new("manifest.json");
    let images: Vec<DockerImage> = parse(&blobs.document(name)?, name)?;
    let found = match (&reference.tag, &images[..]) {
        (Some(tag), all) => all
            .iter()
            .find(|one| one.names().iter().any(|name| is_named(name, tag))),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let names = images
        .iter()
        .flat_map(DockerImage::names)
        .map(String::as_str);
    let image = found.ok_or_else(|| none_chosen(reference, names))?;
    let bytes = blobs.document(&image.config)?;
    let config: ImageConfiguration = parse(&bytes, &image.config)?;
    let stored = image
        .layers
        .iter()
        .map(|blob| (blob.clone(), None))
        .collect();
    Ok(Found {
        id: Digest::of(&bytes),
        layers: layers(stored, &config)?,
        config,
    })
}

/// Returns true if `written` names the image that is called `name`: the registry, and `library`, may be left out, and `latest`.
fn is_named(name: &str, written: &str) -> bool {
    let full = |text: &str| {
        let text = text.strip_prefix("docker.io/").unwrap_or(text);
        let text = text.strip_prefix("library/").unwrap_or(text);
        let is_tagged = text
            .rsplit('/')
            .next()
            .is_some_and(|last| last.contains(':'));
        if is_tagged {
            text.to_owned()
        } else {
            format!("{text}:latest")
        }
    };
    full(name) == full(written)
}

/// Joins the layers as they are stored with the digests of their contents.
fn layers(
    stored: Vec<(PathBuf, Option<(Digest, u64)>)>,
    config: &ImageConfiguration,
) -> Result<Vec<Layer>, ImageError> {
    let contents = config.rootfs().diff_ids();
    if stored.len() != contents.len() || stored.is_empty() || stored.len() > LAYERS_MAX {
        let why = format!(
            "its manifest has {} layers, and its configuration {}: an image has 1 to {LAYERS_MAX}, and both are the same",
            stored.len(),
            contents.len()
        );
        return Err(ImageError::bad("the image", why));
    }
    let pairs = stored.into_iter().zip(contents);
    pairs
        .map(|((blob, stored), content)| {
            let content = Digest::parse(content).ok_or_else(|| {
                ImageError::bad("the image", "the digest of a layer is none of sha256")
            })?;
            Ok(Layer {
                blob,
                stored,
                content,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn an_image_of_an_archive_has_a_short_name_as_well() {
        let name = "docker.io/library/nginx:latest";
        for written in [name, "nginx", "nginx:latest", "library/nginx"] {
            assert!(is_named(name, written), "{written}");
        }
        for other in ["nginx:1.2", "web", "quay.io/nginx"] {
            assert!(!is_named(name, other), "{other}");
        }
        assert!(is_named("localhost:5000/a/web:1", "localhost:5000/a/web:1"));
        assert!(!is_named("localhost:5000/a/web:1", "localhost:5000/a/web"));
    }
}
