//! Switching features of an interface off and on again (`ethtool -k`; `linux/ethtool.h`).
//!
//! Works on the interfaces of the calling thread's namespace.

use crate::error::NetdevError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const NAME_BYTES: usize = 32;
/// More features than any kernel has.
const FEATURES_MAX: usize = 512;
const DRVINFO_BYTES: usize = 196;
const DRVINFO_BUS: usize = 100;

/// The features of one interface.
#[derive(Debug)]
pub struct Features {
    socket: OwnedFd,
    interface: String,
    /// Bit of each name.
    bits: HashMap<String, usize>,
}

impl Features {
    /// Asks for the features that the kernel knows.
    ///
    /// # Errors
    /// When there is no such interface here, or the kernel refuses.
    pub fn of(interface: &str) -> Result<Self, NetdevError> {
        let what = || NetdevError::system(format!("reading the features of {interface}"));
        let socket = ioctl_socket()?;
        // Command, reserved, mask in two words, one word per set.
        let mut info = vec![ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
        ethtool(&socket, interface, &mut info).map_err(what())?;
        let count = (info[4] as usize).min(FEATURES_MAX);
        let mut strings = vec![0u32; 3 + count * NAME_BYTES / 4];
        strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        ethtool(&socket, interface, &mut strings).map_err(what())?;
        let bytes: Vec<u8> = strings[3..].iter().flat_map(|w| w.to_ne_bytes()).collect();
        let names = bytes.chunks_exact(NAME_BYTES).map(text);
        let bits = names.enumerate().map(|(bit, name)| (name, bit)).collect();
        Ok(Features {
            socket,
            interface: interface.to_owned(),
            bits,
        })
    }

    /// Words per bit mask.
    fn blocks(&self) -> usize {
        self.bits.len().div_ceil(32)
    }

    /// Command, blocks, and per block: available, requested, active, never changed.
    fn values(&self) -> io::Result<Vec<u32>> {
        let blocks = self.blocks();
        let mut values = vec![0u32; 2 + 4 * blocks];
        values[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        ethtool(&self.socket, &self.interface, &mut values)?;
        Ok(values)
    }

    /// Returns true if the driver has the feature: the feature can be switched on, or is on.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub(crate) fn can(&self, name: &str) -> Result<bool, NetdevError> {
        let values = self.values().map_err(self.reading())?;
        Ok(self.bits.get(name).is_some_and(|&bit| {
            let block = &values[2 + bit / 32 * 4..];
            (block[0] | block[2]) & 1 << (bit % 32) != 0
        }))
    }

    /// Returns true if the feature is on.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub(crate) fn is_active(&self, name: &str) -> io::Result<bool> {
        let values = self.values()?;
        Ok(self
            .bits
            .get(name)
            .is_some_and(|&bit| values[4 + bit / 32 * 4] & 1 << (bit % 32) != 0))
    }

    fn reading(&self) -> impl FnOnce(io::Error) -> NetdevError + use<> {
        NetdevError::system(format!("reading the features of {}", self.interface))
    }

    /// The names among `names` that are asked for or active now.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub(crate) fn enabled(&self, names: &[&str]) -> Result<Vec<String>, NetdevError> {
        let values = self.values().map_err(self.reading())?;
        let is_on = |name: &&&str| {
            self.bits.get(**name).is_some_and(|&bit| {
                let block = &values[2 + bit / 32 * 4..];
                (block[1] | block[2]) & !block[3] & 1 << (bit % 32) != 0
            })
        };
        Ok(names
            .iter()
            .filter(is_on)
            .map(|name| (*name).to_owned())
            .collect())
    }

    /// Switches features on or off; names that the kernel does not have are ignored.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set<S: AsRef<str>>(&self, names: &[S], on: bool) -> Result<(), NetdevError> {
        let blocks = self.blocks();
        // Command, blocks, and per block: valid, requested.
        let mut values = vec![0u32; 2 + 2 * blocks];
        values[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
        for bit in names.iter().filter_map(|name| self.bits.get(name.as_ref())) {
            values[2 + bit / 32 * 2] |= 1 << (bit % 32);
            values[3 + bit / 32 * 2] |= u32::from(on) << (bit % 32);
        }
        ethtool(&self.socket, &self.interface, &mut values).map_err(NetdevError::system(format!(
            "changing the features of {}",
            self.interface
        )))
    }

    /// The names among `names` of features that are off and can be on.
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub(crate) fn inactive(&self, names: &[&str]) -> Result<Vec<String>, NetdevError> {
        let mut inactive = Vec::new();
        for name in names {
            if self.can(name)? && !self.is_active(name).map_err(self.reading())? {
                inactive.push((*name).to_owned());
            }
        }
        Ok(inactive)
    }
}

/// Returns true if the interface of the calling thread's namespace is hardware: hardware has a place on a bus.
pub fn is_hardware(interface: &str) -> bool {
    let mut info = vec![0u32; DRVINFO_BYTES / 4];
    info[0] = ETHTOOL_GDRVINFO;
    let asked = ioctl_socket()
        .map_err(io::Error::other)
        .and_then(|socket| ethtool(&socket, interface, &mut info));
    asked.is_ok() && info[DRVINFO_BUS / 4] != 0
}

/// Any socket does: the request is not about the socket.
pub(crate) fn ioctl_socket() -> Result<OwnedFd, NetdevError> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(NetdevError::system("opening a socket for requests"))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// SIOCETHTOOL: `data` begins with the command and is as long as the command's structure.
pub(crate) fn ethtool(socket: &OwnedFd, interface: &str, data: &mut [u32]) -> io::Result<()> {
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: data.as_mut_ptr().cast(),
        },
    };
    // SAFETY: the request is a live ifreq whose data points to a live buffer; each command above
    // is given a buffer of the size that its structure and the counts in it call for.
    let status =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if status < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
