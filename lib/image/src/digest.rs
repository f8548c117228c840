//! Digests: SHA-256, the one that every image has.

use crate::error::ImageError;
use oci_spec::image::{Digest as Written, DigestAlgorithm};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};

/// A digest, as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Digest(String);

impl Digest {
    /// Takes what a document says.
    ///
    /// # Errors
    /// The digest is of another algorithm.
    pub fn written(digest: &Written) -> Result<Self, ImageError> {
        if *digest.algorithm() != DigestAlgorithm::Sha256 {
            let why = format!(
                "{} digests are not known here, only sha256",
                digest.algorithm()
            );
            return Err(ImageError::bad(digest.to_string(), why));
        }
        Self::parse(digest.digest())
            .ok_or_else(|| ImageError::bad(digest.to_string(), "it is no digest"))
    }

    /// Reads `sha256:HEX` or `HEX`.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == 64 && hex.bytes().all(is_digit)).then(|| Digest(hex.to_owned()))
    }

    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(Sha256::new_with_prefix(bytes))
    }

    fn from_hash(hash: Sha256) -> Self {
        let digits = hash.finalize();
        Digest(digits.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The digits: a name of files.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// A reader that hashes and counts what passes.
pub(crate) struct Hashing<R> {
    from: R,
    hash: Sha256,
    bytes: u64,
}

impl<R: Read> Hashing<R> {
    pub fn new(from: R) -> Self {
        let hash = Sha256::new();
        Hashing {
            from,
            hash,
            bytes: 0,
        }
    }

    /// Reads what is left, and returns the digest and the number of all bytes.
    ///
    /// # Errors
    /// As reading.
    pub fn finish(mut self) -> io::Result<(Digest, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((Digest::from_hash(self.hash), self.bytes))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        let passed = buffer.get(..length).unwrap_or_default();
        self.hash.update(passed);
        self.bytes += passed.len() as u64;
        Ok(length)
    }
}
