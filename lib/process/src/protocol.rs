//! Messages between the daemon and a process of its own: JSON, a line each.

use nfluid_switch::Form;
use nfluid_uplink::ReportedError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Version of all this. A process of another version is replaced, not talked to.
pub const PROTOCOL: u32 = 4;

/// The job of a process, sent once to its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job<T> {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Loop form of the running switch.
    pub form: Form,
    /// The folder in which the switch is pinned.
    pub pin: PathBuf,
    /// The path of the socket to listen on.
    pub socket: PathBuf,
    /// The log filter.
    pub log: String,
    /// The task of the process.
    pub task: T,
}

/// The answer of the process on its standard output, sent once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opened<S> {
    /// The process works.
    Up(S),
    /// The process cannot work, and ends.
    Refused(ReportedError),
}

/// The daemon's request on the socket, sent once per connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request<O> {
    /// [`News::Hello`], then all that happens, as long as the connection lasts. A second follower
    /// takes the place of the first.
    Follow,
    /// [`News::Hello`].
    Status,
    /// To do something, with the descriptors that come along; then a `Result`: the answer to the order,
    /// or why nothing has changed.
    Obey(O),
    /// A request to end, and how; [`News::Ended`] follows. On the wire there is the way of ending alone, as in every
    /// version: a process of another version is told to leave by it, too.
    #[serde(untagged)]
    End(End),
}

/// The way in which a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Undoing everything that it has done.
    Close,
    /// The process leaves everything as it is, for a successor.
    Leave,
}

/// News from the process on the socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News<S> {
    /// The identity of the process.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// [`nfluid_switch::abi::VERSION`].
        abi: u32,
        /// The version of the program.
        version: String,
        /// The status of the service.
        status: S,
    },
    /// The present status.
    Status(S),
    /// A line for the log.
    Line {
        /// `error`, `warn`, `info`, `debug` or `trace`.
        level: String,
        /// The line.
        text: String,
    },
    /// The process ends; the error of its end.
    Ended {
        /// Absent: nothing.
        error: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_netdev::ReceivePath;
    use nfluid_ring::Level;
    use nfluid_uplink::{ErrorKind, Levels, TransmitPath, UplinkPath, UplinkStatus};

    fn status() -> UplinkStatus {
        UplinkStatus {
            path: Some(UplinkPath {
                receive: ReceivePath::Native,
                receive_why: String::new(),
                transmit: TransmitPath::XdpCopy,
                transmit_why: "no hardware".to_owned(),
                index: 3,
                mtu: 1500,
                mac: Some([2, 0, 0, 0, 0, 1]),
                levels: Levels {
                    enter: Level::Checksums,
                    take: Level::Super,
                },
                levels_why: "an old kernel".to_owned(),
            }),
            sent_frames: 1,
            ..UplinkStatus::default()
        }
    }

    #[test]
    fn messages_are_read_back() {
        let all = [
            News::Hello {
                protocol: PROTOCOL,
                abi: 1,
                version: "0".to_owned(),
                status: status(),
            },
            News::Status(status()),
            News::Line {
                level: "warn".to_owned(),
                text: "a line\nof two".to_owned(),
            },
            News::Ended { error: None },
        ];
        for news in all {
            let text = serde_json::to_string(&news).unwrap();
            assert!(!text.contains('\n'), "a line each: {text}");
            assert_eq!(
                serde_json::from_str::<News<UplinkStatus>>(&text).unwrap(),
                news
            );
        }
    }

    #[test]
    fn requests_to_end_are_words_that_every_version_knows() {
        let all = [
            (Request::<u32>::Follow, "\"follow\""),
            (Request::Obey(7), "{\"obey\":7}"),
            (Request::End(End::Close), "\"close\""),
            (Request::End(End::Leave), "\"leave\""),
        ];
        for (request, text) in all {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<Request<u32>>(text).unwrap(), request);
        }
    }

    #[test]
    fn an_error_keeps_kind_and_text() {
        let error = ReportedError {
            kind: ErrorKind::Busy,
            text: "interface eth7 has an XDP program already".to_owned(),
        };
        let text = serde_json::to_string(&Opened::<UplinkStatus>::Refused(error.clone())).unwrap();
        let Opened::<UplinkStatus>::Refused(understood) = serde_json::from_str(&text).unwrap()
        else {
            panic!("it was refused: {text}");
        };
        assert_eq!(understood, error);
        assert_eq!(understood.to_string(), error.text);
    }
}
