//! Requests of the daemon.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A port, counted from 0, and a MAC address behind it.
pub type Address = (u8, [u8; 6]);

/// A request of the daemon. On the wire: `{"op": "export", "state_only": true}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Asks for nothing. An instance that answers is alive.
    Beat,
    /// Asks for all counters.
    Metrics,
    /// Runs a command of the NF.
    Command {
        /// The name of the command.
        name: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
    },
    /// Gives the NF a new configuration.
    Reconfigure {
        /// The whole configuration.
        config: Value,
    },
    /// Asks for the NF's state and copies of the frames that wait in its rings. The instance writes both to the file that comes
    /// with the request. Answer: [`crate::answer::Exported`].
    Export {
        /// Asks for the state alone. The daemon will ask again soon, so the instance keeps the memory for it.
        #[serde(default)]
        state_only: bool,
    },
    /// Adds the state of another instance to the NF's own. Answer: [`crate::answer::Imported`].
    Import {
        /// Bytes of the file that comes with the request.
        bytes: u64,
        /// The part of the state to take; absent: all of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Part>,
    },
    /// Stops the instance until the other end of the socket that comes with the request is closed. Flows are led to it meanwhile.
    Stand,
    /// Takes flows from the instance. An NF handles the frames in its rings up to these positions, then writes its
    /// state to the file that comes with the request (answer: [`crate::answer::Drained`]). A terminator accepts no
    /// further connections, and answers with the number of connections that are left.
    Drain {
        /// A position for each port. Empty for a terminator, which has no rings.
        #[serde(default)]
        until: Vec<u32>,
    },
    /// Notifies the instance that other instances have all flows except those in these buckets. The instance drops the
    /// others.
    PartWith {
        /// The buckets that the instance keeps, 64 to a word.
        kept: [u64; 4],
    },
    /// As [`Request::Import`], to a successor that has no ports yet or to an instance that has just been made. It forgets the
    /// state again: the memory for it is there then.
    Rehearse {
        /// Bytes of the file that comes with the request.
        bytes: u64,
    },
    /// Gives ports and state to the successor at the other end of the socket that comes with the request. Answer:
    /// [`crate::answer::HandedOver`].
    HandOver,
    /// Stops the instance, which leaves for another host. Its state goes to the daemon at the other end of the socket that comes
    /// with the request. Answer: [`crate::answer::Departed`].
    Depart {
        /// Bytes of memory for frames that come meanwhile; absent: the most that the instance has room for.
        #[serde(default)]
        room: Option<u64>,
    },
    /// Calls a departure off: the instance goes on.
    Resume,
    /// Has the instance announce addresses to the hosts at its ports: these addresses are behind it now.
    Announce {
        /// The addresses.
        addresses: Vec<Address>,
    },
}

/// The part of a state that is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Buckets of flows, 64 to a word.
    pub flows: [u64; 4],
    /// Also the counters.
    pub counts: bool,
}

impl Request {
    /// Returns true if the request is about state. Every queue of an instance has a state of its own.
    pub fn is_about_state(&self) -> bool {
        matches!(
            self,
            Request::Export { .. }
                | Request::Import { .. }
                | Request::Stand
                | Request::Drain { .. }
                | Request::PartWith { .. }
                | Request::Rehearse { .. }
                | Request::HandOver
                | Request::Depart { .. }
        )
    }

    /// The request's name on the wire, for messages.
    pub fn op(&self) -> String {
        let written = serde_json::to_value(self).unwrap_or_default();
        written["op"].as_str().unwrap_or_default().to_owned()
    }

    /// The request as a line of text.
    ///
    /// # Errors
    /// The request cannot be written as JSON.
    pub fn line(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Catches: a request that instances of an older version, which run on under a new daemon, read otherwise.
    #[test]
    fn requests_are_on_the_wire_as_they_always_were() {
        let part = Part {
            flows: [1, 0, 0, 2],
            counts: false,
        };
        let table = [
            (Request::Beat, json!({ "op": "beat" })),
            (Request::Metrics, json!({ "op": "metrics" })),
            (
                Request::Command {
                    name: "flush".to_owned(),
                    args: vec!["all".to_owned()],
                },
                json!({ "op": "command", "name": "flush", "args": ["all"] }),
            ),
            (
                Request::Reconfigure {
                    config: json!({ "a": 1 }),
                },
                json!({ "op": "reconfigure", "config": { "a": 1 } }),
            ),
            (
                Request::Export { state_only: true },
                json!({ "op": "export", "state_only": true }),
            ),
            (
                Request::Import {
                    bytes: 7,
                    part: None,
                },
                json!({ "op": "import", "bytes": 7 }),
            ),
            (
                Request::Import {
                    bytes: 7,
                    part: Some(part),
                },
                json!({ "op": "import", "bytes": 7, "part": { "flows": [1, 0, 0, 2], "counts": false } }),
            ),
            (Request::Stand, json!({ "op": "stand" })),
            (
                Request::Drain { until: vec![3, 4] },
                json!({ "op": "drain", "until": [3, 4] }),
            ),
            (
                Request::PartWith { kept: [0, 1, 2, 3] },
                json!({ "op": "part_with", "kept": [0, 1, 2, 3] }),
            ),
            (
                Request::Rehearse { bytes: 9 },
                json!({ "op": "rehearse", "bytes": 9 }),
            ),
            (Request::HandOver, json!({ "op": "hand_over" })),
            (
                Request::Depart { room: None },
                json!({ "op": "depart", "room": null }),
            ),
            (Request::Resume, json!({ "op": "resume" })),
            (
                Request::Announce {
                    addresses: vec![(1, [2, 0, 0, 0, 0, 1])],
                },
                json!({ "op": "announce", "addresses": [[1, [2, 0, 0, 0, 0, 1]]] }),
            ),
        ];
        for (request, written) in table {
            let line = request.line().expect("JSON");
            assert!(line.ends_with('\n') && !line[..line.len() - 1].contains('\n'));
            let value: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(value, written);
            assert_eq!(request.op(), written["op"]);
            let read: Request = serde_json::from_value(written).expect("a request");
            assert_eq!(read, request);
        }
    }

    #[test]
    fn fields_that_older_daemons_leave_out_have_a_default() {
        let read = |written: Value| serde_json::from_value::<Request>(written).expect("a request");
        assert_eq!(
            read(json!({ "op": "export" })),
            Request::Export { state_only: false }
        );
        assert_eq!(
            read(json!({ "op": "depart" })),
            Request::Depart { room: None }
        );
        assert_eq!(
            read(json!({ "op": "drain" })),
            Request::Drain { until: Vec::new() }
        );
    }
}
