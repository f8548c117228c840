//! The counters. No byte and no handshake is without its counter.

use rustls::Error;
use serde_json::{Map, Value};

/// The reason of a failed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The handshake took too long.
    Timeout,
    /// The client has left.
    Left,
    /// The client does not speak TLS.
    NotTls,
    /// Client and terminator have no version, cipher or protocol in common.
    NothingInCommon,
    /// The client refuses the certificate.
    Refused,
    /// Anything else.
    Other,
}

const FAILURES: [(Failure, &str); 6] = [
    (Failure::Timeout, "timeout"),
    (Failure::Left, "left"),
    (Failure::NotTls, "not_tls"),
    (Failure::NothingInCommon, "nothing_in_common"),
    (Failure::Refused, "refused"),
    (Failure::Other, "other"),
];

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        match error {
            Error::InvalidMessage(_)
            | Error::PeerSentOversizedRecord
            | Error::InappropriateMessage { .. } => Failure::NotTls,
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Failure::NothingInCommon,
            Error::AlertReceived(_) => Failure::Refused,
            _ => Failure::Other,
        }
    }
}

/// The reason why there is no connection to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBackend {
    /// The backend refuses.
    Refused,
    /// The backend does not answer.
    Timeout,
    /// The backend has no route, or no descriptor is left.
    Unreachable,
}

const NO_BACKEND: [(NoBackend, &str); 3] = [
    (NoBackend::Refused, "refused"),
    (NoBackend::Timeout, "timeout"),
    (NoBackend::Unreachable, "unreachable"),
];

/// All counters.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections beyond the limit, closed at once.
    pub over_limit: u64,
    /// Times that the kernel had no descriptor or memory for a connection.
    pub no_room: u64,
    /// Successful handshakes.
    pub handshakes: u64,
    /// Number of these that were resumed from a ticket.
    pub resumed: u64,
    failures: [u64; FAILURES.len()],
    no_backend: [u64; NO_BACKEND.len()],
    /// Connections that broke after their handshake.
    pub broken: u64,
    /// Connections that were closed because they were idle.
    pub idle: u64,
    /// Requests that were answered here.
    pub answered: u64,
    /// Decrypted bytes that clients have sent.
    pub received_bytes: u64,
    /// Bytes for clients, before they were encrypted.
    pub sent_bytes: u64,
}

impl Counts {
    /// Counts a failed handshake.
    pub fn failed(&mut self, why: Failure) {
        self.failures[why as usize] += 1;
    }

    /// Returns the failed handshakes with this reason.
    #[cfg(test)]
    pub fn failures(&self, why: Failure) -> u64 {
        self.failures[why as usize]
    }

    /// Counts a client without a backend.
    pub fn had_no_backend(&mut self, why: NoBackend) {
        self.no_backend[why as usize] += 1;
    }

    /// Returns all counters by name.
    pub fn report(&self) -> Map<String, Value> {
        let plain = [
            ("connections_total", self.connections),
            (
                "connections_refused_total{reason=\"limit\"}",
                self.over_limit,
            ),
            (
                "connections_refused_total{reason=\"no_room\"}",
                self.no_room,
            ),
            ("handshakes_total", self.handshakes),
            ("handshakes_resumed_total", self.resumed),
            ("connections_broken_total", self.broken),
            ("connections_idle_total", self.idle),
            ("requests_answered_total", self.answered),
            ("received_bytes_total", self.received_bytes),
            ("sent_bytes_total", self.sent_bytes),
        ];
        let mut map: Map<String, Value> = plain
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count.into()))
            .collect();
        for ((_, reason), count) in FAILURES.iter().zip(self.failures) {
            let name = format!("handshake_failures_total{{reason=\"{reason}\"}}");
            map.insert(name, count.into());
        }
        for ((_, reason), count) in NO_BACKEND.iter().zip(self.no_backend) {
            let name = format!("backend_failures_total{{reason=\"{reason}\"}}");
            map.insert(name, count.into());
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_of_its_own() {
        let mut counts = Counts::default();
        for (reason, _) in FAILURES {
            counts.failed(reason);
        }
        for (reason, _) in NO_BACKEND {
            counts.had_no_backend(reason);
        }
        let report = counts.report();
        let ones = report.iter().filter(|(_, count)| **count == 1);
        assert!(ones.clone().all(|(name, _)| name.contains("reason=")));
        assert_eq!(ones.count(), FAILURES.len() + NO_BACKEND.len());
    }
}
