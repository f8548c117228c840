//! Values with a unit, as written in documents: `30%`, `64MiB`, `100ms`, `02:00:00:00:00:01`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The error of a value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// The fault of the value.
    pub message: String,
    /// A correct form of the value.
    pub remedy: String,
}

impl ValueError {
    /// Creates an error.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        ValueError {
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.remedy)
    }
}

impl std::error::Error for ValueError {}

/// Serializes a value as the text that its `Display` gives.
macro_rules! serialize_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}
pub(crate) use serialize_as_text;

/// A part of one core, in hundredths of a percent: 1 ..= 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// A whole core.
    pub const FULL: Share = Share(10_000);

    /// Returns a share of `hundredths` of a percent, if that is more than 0 and at most a core.
    pub fn from_hundredths(hundredths: u32) -> Option<Self> {
        (1..=Share::FULL.0)
            .contains(&hundredths)
            .then_some(Share(hundredths))
    }

    /// Returns the share in hundredths of a percent.
    pub const fn hundredths(self) -> u32 {
        self.0
    }

    /// Returns the share in percent.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent())
    }
}

impl FromStr for Share {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write a share of one core from 0.01% to 100%, for example 30%";
        percentage(text, Share::FULL.0, remedy).map(Share)
    }
}

/// Parses a percentage from 0.01% to `most` hundredths of a percent.
pub(crate) fn percentage(text: &str, most: u32, remedy: &str) -> Result<u32, ValueError> {
    let bad = || ValueError::new(format!("'{text}' is not a percentage"), remedy);
    let number = text.trim().strip_suffix('%').ok_or_else(bad)?;
    let percent: f64 = number.trim_end().parse().map_err(|_| bad())?;
    let hundredths = (percent * 100.0).round();
    if !(1.0..=f64::from(most)).contains(&hundredths) {
        return Err(ValueError::new(
            format!("{text} is outside of 0.01% to {}%", most / 100),
            remedy,
        ));
    }
    Ok(hundredths as u32)
}

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Units of memory, the largest first.
const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl Bytes {
    /// Returns `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Bytes(n << 20)
    }
}

impl fmt::Display for Bytes {
    /// Writes the amount in the largest binary unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = &BYTE_UNITS[..4];
        match binary
            .iter()
            .find(|(_, size)| self.0 != 0 && self.0.is_multiple_of(*size))
        {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl FromStr for Bytes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write a whole number and a unit (B, KiB, MiB, GiB), for example 64MiB";
        let bad = || ValueError::new(format!("'{text}' is not an amount of memory"), remedy);
        let trimmed = text.trim();
        let (number, scale) = BYTE_UNITS
            .iter()
            .find_map(|(unit, size)| trimmed.strip_suffix(unit).map(|rest| (rest, *size)))
            .unwrap_or((trimmed, 1));
        let number: u64 = number.trim_end().parse().map_err(|_| bad())?;
        number.checked_mul(scale).map(Bytes).ok_or_else(bad)
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// Units of time, the largest first; `ms` before `s` and `m`, as it ends in one of them.
const TIME_UNITS: [(&str, u64); 4] = [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl Millis {
    /// Returns `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Millis(n.saturating_mul(1_000))
    }

    /// Returns the time as a [`Duration`].
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// Returns the sum, or the maximum if the sum overflows.
    #[must_use]
    pub const fn plus(self, other: Millis) -> Self {
        Millis(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Millis {
    /// Writes the time in seconds if they divide it, else in milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0 && self.0.is_multiple_of(1_000) {
            write!(f, "{}s", self.0 / 1_000)
        } else {
            write!(f, "{}ms", self.0)
        }
    }
}

impl FromStr for Millis {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write a whole number and a unit (ms, s, m, h), for example 300s";
        time(text, &TIME_UNITS, remedy).map(Millis)
    }
}

/// A short length of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// Units of short times, the largest first; `s` behind those that end in it.
const SHORT_TIME_UNITS: [(&str, u64); 3] = [("ms", 1_000), ("us", 1), ("s", 1_000_000)];

impl Micros {
    /// Returns the time as a [`Duration`].
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl fmt::Display for Micros {
    /// Writes the time in milliseconds if they divide it, else in microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0 && self.0.is_multiple_of(1_000) {
            write!(f, "{}ms", self.0 / 1_000)
        } else {
            write!(f, "{}us", self.0)
        }
    }
}

impl FromStr for Micros {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write a whole number and a unit (us, ms, s), for example 500us";
        time(text, &SHORT_TIME_UNITS, remedy).map(Micros)
    }
}

/// Parses a number with one of `units`.
fn time(text: &str, units: &[(&str, u64)], remedy: &str) -> Result<u64, ValueError> {
    let bad = || ValueError::new(format!("'{text}' is not a length of time"), remedy);
    let (number, scale) = units
        .iter()
        .find_map(|(unit, size)| text.trim().strip_suffix(unit).map(|rest| (rest, *size)))
        .ok_or_else(bad)?;
    let number: u64 = number.trim_end().parse().map_err(|_| bad())?;
    number.checked_mul(scale).ok_or_else(bad)
}

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns the address of a port that was given none: locally administered, and the same for the same `name` on
    /// every host and after every restart (64-bit FNV-1a of the name).
    pub fn derived(name: &str) -> Self {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let [_, _, _, a, b, c, d, e] = (hash ^ (hash >> 40)).to_be_bytes();
        Mac([0x02, a, b, c, d, e])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let remedy = "write six pairs of hexadecimal digits, for example 02:00:00:00:00:01";
        let bad = || ValueError::new(format!("'{text}' is not a MAC address"), remedy);
        let mut bytes = [0u8; 6];
        let mut groups = text.trim().split(':');
        for byte in &mut bytes {
            let group = groups.next().ok_or_else(bad)?;
            if group.len() != 2 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(group, 16).map_err(|_| bad())?;
        }
        if groups.next().is_some() {
            return Err(bad());
        }
        if bytes[0] & 1 != 0 {
            return Err(ValueError::new(
                format!("'{text}' is a multicast address"),
                "a port needs a unicast address: make the first byte even, for example 02",
            ));
        }
        if bytes == [0; 6] {
            return Err(ValueError::new(
                "the all-zero address is not valid for a port",
                remedy,
            ));
        }
        Ok(Mac(bytes))
    }
}

serialize_as_text!(Share, Bytes, Millis, Micros, Mac);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares() {
        assert_eq!("30%".parse(), Ok(Share(3000)));
        assert_eq!("0.5 %".parse(), Ok(Share(50)));
        assert_eq!("100%".parse(), Ok(Share::FULL));
        for bad in [
            "0%", "101%", "-1%", "30", "x%", "NaN%", "inf%", "0.001%", "",
        ] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes() {
        assert_eq!("64MiB".parse(), Ok(Bytes::mib(64)));
        assert_eq!("1 GB".parse(), Ok(Bytes(1_000_000_000)));
        assert_eq!("4096".parse(), Ok(Bytes(4096)));
        for bad in ["64 mib", "-1", "1.5GiB", "99999999999TiB", "MiB", ""] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        assert_eq!("100ms".parse(), Ok(Millis(100)));
        assert_eq!("5m".parse(), Ok(Millis::secs(300)));
        for bad in ["5", "1.5s", "-1s", "s", "99999999999999999999s", ""] {
            assert!(bad.parse::<Millis>().is_err(), "{bad}");
        }
    }

    #[test]
    fn short_times() {
        assert_eq!("500us".parse(), Ok(Micros(500)));
        assert_eq!("2 ms".parse(), Ok(Micros(2_000)));
        assert_eq!("1s".parse(), Ok(Micros(1_000_000)));
        for bad in [
            "5",
            "1.5ms",
            "-1us",
            "us",
            "1m",
            "18446744073709551615s",
            "",
        ] {
            assert!(bad.parse::<Micros>().is_err(), "{bad}");
        }
    }

    #[test]
    fn macs() {
        assert_eq!("02:00:00:00:00:fF".parse(), Ok(Mac([2, 0, 0, 0, 0, 255])));
        for bad in [
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "2:0:0:0:0:0",
            "01:00:00:00:00:00",
            "00:00:00:00:00:00",
            "02-00-00-00-00-00",
            "+2:00:00:00:00:00",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
        assert_eq!(Mac::derived("fw1.in").0[0], 0x02);
        assert_ne!(Mac::derived("fw1.in"), Mac::derived("fw1.out"));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(share in 1u32..=10_000, n in any::<u64>(), mac in any::<[u8; 6]>()) {
            prop_assert_eq!(Share(share).to_string().parse(), Ok(Share(share)));
            prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
            prop_assert_eq!(Millis(n).to_string().parse(), Ok(Millis(n)));
            prop_assert_eq!(Micros(n).to_string().parse(), Ok(Micros(n)));
            let mac = Mac([mac[0] & 0xfe | 0x02, mac[1], mac[2], mac[3], mac[4], mac[5]]);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Share>();
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Millis>();
            let _ = text.parse::<Mac>();
        }
    }
}
