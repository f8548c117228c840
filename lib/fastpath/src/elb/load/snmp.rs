//! Query of an SNMP agent for a load. Only the answer to this query from the queried address counts.

use super::config::{Cipher, Digest, LoadConfig, UserConfig};
use super::law::{Kind, Reading};
use snmp2::v3::{Auth, AuthProtocol, Security};
use snmp2::{Error, Oid, Pdu, SyncSession, Value, Version, v3};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

/// Longest number as text.
const TEXT_MAX: usize = 32;

/// An agent.
pub struct Agent {
    at: SocketAddr,
    config: LoadConfig,
    oids: Vec<Vec<u64>>,
    /// The session of SNMPv3, whose keys take time to make. It has buffers of 128 KiB.
    session: Option<Box<SyncSession>>,
}

impl Agent {
    /// Makes an agent without a query.
    pub fn new(at: SocketAddr, config: LoadConfig) -> Self {
        Agent {
            at,
            oids: config.oids(),
            config,
            session: None,
        }
    }

    /// Queries the agent once, and takes the first answer before the timeout.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub fn ask(&mut self) -> Result<Reading, String> {
        let oids: Vec<Oid<'_>> = self
            .oids
            .iter()
            .filter_map(|numbers| Oid::from(numbers).ok())
            .collect();
        let asked: Vec<&Oid<'_>> = oids.iter().collect();
        let (mut session, version) = match self.config.credentials() {
            Err(community) => (self.plain(community)?, Version::V2C),
            Ok(user) => (
                match self.session.take() {
                    Some(session) => session,
                    None => self.secured(user)?,
                },
                Version::V3,
            ),
        };
        let mut answer = session.get_many(&asked);
        // Only the clock of the agent has been corrected: the answer has no values yet.
        if matches!(answer, Err(Error::AuthUpdated)) {
            answer = session.get_many(&asked);
        }
        let reading = answer
            .map_err(|error| text_of(&error))
            .and_then(|answer| read(&answer, version, &oids));
        // A late answer could still arrive after a failure: the next query uses another socket.
        if version == Version::V3 && reading.is_ok() {
            self.session = Some(session);
        }
        reading
    }

    fn plain(&self, community: &str) -> Result<Box<SyncSession>, String> {
        let timeout = Some(self.config.timeout());
        SyncSession::new_v2c(self.at, community.as_bytes(), timeout, number())
            .map(Box::new)
            .map_err(|error| error.to_string())
    }

    fn secured(&self, user: &UserConfig) -> Result<Box<SyncSession>, String> {
        let protocol = match user.auth {
            Digest::Sha1 => AuthProtocol::Sha1,
            Digest::Sha256 => AuthProtocol::Sha256,
            Digest::Sha512 => AuthProtocol::Sha512,
        };
        let auth = user.privacy.map_or(Auth::AuthNoPriv, |cipher| {
            let cipher = match cipher {
                Cipher::Aes128 => v3::Cipher::Aes128,
                Cipher::Aes256 => v3::Cipher::Aes256,
            };
            let privacy_password = user.privacy_password().as_bytes().to_vec();
            Auth::AuthPriv {
                cipher,
                privacy_password,
            }
        });
        let security = Security::new(user.name.as_bytes(), user.password.as_bytes())
            .with_auth_protocol(protocol)
            .with_auth(auth);
        let timeout = Some(self.config.timeout());
        let session = SyncSession::new_v3(self.at, timeout, number(), security);
        let mut session = Box::new(session.map_err(|error| error.to_string())?);
        session.init().map_err(|error| text_of(&error))?;
        Ok(session)
    }
}

/// Returns an unpredictable number for a first query.
fn number() -> i32 {
    (RandomState::new().hash_one(0u8) & 0x3fff_ffff) as i32
}

fn text_of(error: &Error) -> String {
    match error {
        Error::Receive => "it does not answer in time".to_owned(),
        Error::Send => "it cannot be asked".to_owned(),
        Error::RequestIdMismatch => "it answers what was not asked".to_owned(),
        Error::CommunityMismatch => "it answers another community".to_owned(),
        error => format!("its answer is none: {error}"),
    }
}

/// Returns the load in an answer.
fn read(answer: &Pdu<'_>, version: Version, asked: &[Oid<'_>]) -> Result<Reading, String> {
    if answer.version() != Ok(version) {
        return Err("it answers in another version of SNMP".to_owned());
    }
    if answer.error_status != 0 {
        return Err(format!("it answers with error {}", answer.error_status));
    }
    let mut values = answer.varbinds.clone();
    let mut sum = 0.0;
    let mut kinds = None;
    for oid in asked {
        let (name, value) = values
            .next()
            .ok_or("it answers less than was asked".to_owned())?;
        if name != *oid {
            return Err("it answers what was not asked".to_owned());
        }
        let (kind, value) = number_of(&value)?;
        if *kinds.get_or_insert(kind) != kind {
            return Err("its values are of several types".to_owned());
        }
        sum += value;
    }
    let kind = kinds.ok_or("nothing was asked".to_owned())?;
    let value = sum / asked.len() as f64;
    Ok(Reading { kind, value })
}

fn number_of(value: &Value<'_>) -> Result<(Kind, f64), String> {
    match value {
        Value::Integer(number) => Ok((Kind::Number, *number as f64)),
        Value::Unsigned32(number) => Ok((Kind::Number, f64::from(*number))),
        Value::OctetString(bytes) if bytes.len() <= TEXT_MAX => {
            let text = std::str::from_utf8(bytes).ok();
            let number = text.and_then(|text| text.trim().parse().ok());
            let number = number.ok_or("its load is no number".to_owned())?;
            Ok((Kind::Text, number))
        }
        Value::NoSuchObject | Value::NoSuchInstance | Value::EndOfMibView => {
            Err("it does not know that object".to_owned())
        }
        _ => Err("its load is of a type that is no load".to_owned()),
    }
}
