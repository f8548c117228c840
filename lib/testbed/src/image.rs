//! Container images for tests: layers made of given entries, in a directory of the OCI layout.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tar::{Builder, EntryType, Header};

/// A layer that is being made.
pub struct Layer(Builder<Vec<u8>>);

impl Default for Layer {
    fn default() -> Self {
        Layer(Builder::new(Vec::new()))
    }
}

impl Layer {
    /// Adds a file of this mode and owner.
    ///
    /// # Errors
    /// The name does not fit.
    pub fn file(
        &mut self,
        path: &str,
        mode: u32,
        owner: (u32, u32),
        content: &[u8],
    ) -> anyhow::Result<()> {
        self.entry(EntryType::Regular, path, mode, owner, "", content)
    }

    /// Adds an entry of any kind, also one that no layer should have. The name is written as it is.
    ///
    /// # Errors
    /// The name or the target is too long.
    pub fn entry(
        &mut self,
        kind: EntryType,
        path: &str,
        mode: u32,
        (user, group): (u32, u32),
        target: &str,
        content: &[u8],
    ) -> anyhow::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(user.into());
        header.set_gid(group.into());
        header.set_size(content.len() as u64);
        // The crate refuses names that leave the archive.
        let old = header.as_old_mut();
        for (field, text) in [(&mut old.name, path), (&mut old.linkname, target)] {
            ensure!(text.len() <= field.len(), "{text} is too long");
            let (used, _) = field.split_at_mut(text.len());
            used.copy_from_slice(text.as_bytes());
        }
        header.set_cksum();
        self.0.append(&header, content).context("adding an entry")
    }

    /// Adds a program of this host, with the libraries that it needs, at their paths.
    ///
    /// # Errors
    /// There is none.
    pub fn program(&mut self, program: &Path) -> anyhow::Result<()> {
        let listed = Command::new("ldd")
            .arg(program)
            .output()
            .context("running ldd")?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let libraries = listed
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        let files = libraries.map(PathBuf::from).chain([program.to_owned()]);
        for file in files {
            let content =
                std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            let path = file.display().to_string();
            self.file(path.trim_start_matches('/'), 0o755, (0, 0), &content)?;
        }
        Ok(())
    }

    /// Returns the tar file.
    ///
    /// # Errors
    /// As writing to memory.
    pub fn finish(self) -> anyhow::Result<Vec<u8>> {
        self.0.into_inner().context("finishing a layer")
    }
}

/// A directory of the OCI layout that is being written.
pub struct Layout<'a> {
    directory: &'a Path,
    /// The image's configuration: "config" of the specification.
    pub config: Value,
    /// The name of the image in the index.
    pub tag: Option<&'a str>,
    /// The kind of machine.
    pub architecture: &'a str,
}

impl<'a> Layout<'a> {
    /// An image for this machine without a name.
    pub fn new(directory: &'a Path, config: Value) -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Layout {
            directory,
            config,
            tag: None,
            architecture,
        }
    }

    /// Writes an image of these layers: each a tar file, and the blob that it is stored as with its kind. Returns the digest of the
    /// configuration.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, layers: &[(&[u8], &[u8], &str)]) -> anyhow::Result<String> {
        let contents: Vec<String> = layers.iter().map(|(tar, ..)| digest(tar)).collect();
        let config = json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": contents },
        });
        let config = serde_json::to_vec(&config)?;
        let stored = layers
            .iter()
            .map(|(_, blob, kind)| self.blob(blob, &format!("layer.v1.{kind}")));
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.blob(&config, "config.v1+json")?,
            "layers": stored.collect::<Result<Vec<_>, _>>()?,
        });
        let mut manifest = self.blob(&serde_json::to_vec(&manifest)?, "manifest.v1+json")?;
        if let (Some(tag), Some(described)) = (self.tag, manifest.as_object_mut()) {
            let name = json!({ "org.opencontainers.image.ref.name": tag });
            described.insert("annotations".to_owned(), name);
        }
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        self.put(Path::new("index.json"), &serde_json::to_vec(&index)?)?;
        self.put(
            Path::new("oci-layout"),
            br#"{"imageLayoutVersion":"1.0.0"}"#,
        )?;
        Ok(digest(&config))
    }

    /// As [`Layout::write`], with layers that are not compressed.
    ///
    /// # Errors
    /// As there.
    pub fn write_plain(&self, layers: &[Vec<u8>]) -> anyhow::Result<String> {
        let layers: Vec<_> = layers
            .iter()
            .map(|tar| (&tar[..], &tar[..], "tar"))
            .collect();
        self.write(&layers)
    }

    fn blob(&self, bytes: &[u8], kind: &str) -> anyhow::Result<Value> {
        let digest = digest(bytes);
        self.put(&Path::new("blobs").join(digest.replace(':', "/")), bytes)?;
        Ok(json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": digest,
            "size": bytes.len(),
        }))
    }

    fn put(&self, name: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.directory.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).context("making a directory")?;
        }
        let mut file = std::fs::File::create(&path).context("making a file")?;
        file.write_all(bytes).context("writing a file")
    }
}

fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}
