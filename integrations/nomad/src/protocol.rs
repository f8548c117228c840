//! The messages and services of Nomad's plugin protocol, made from `proto/`.
#![allow(missing_docs, reason = "generated; the .proto files say what they are")]

use tonic::Status;

pub use plugins::base::proto as base;
pub use plugins::drivers::proto as drivers;
pub use plugins::shared::{hclspec, structs};

// The packages as the .proto files name them: the generated code finds others by their place in this tree.
mod plugins {
    pub mod base {
        pub mod proto {
            tonic::include_proto!("hashicorp.nomad.plugins.base.proto");
        }
    }
    pub mod drivers {
        pub mod proto {
            tonic::include_proto!("hashicorp.nomad.plugins.drivers.proto");
        }
    }
    pub mod shared {
        pub mod hclspec {
            tonic::include_proto!("hashicorp.nomad.plugins.shared.hclspec");
        }
        pub mod structs {
            tonic::include_proto!("hashicorp.nomad.plugins.shared.structs");
        }
    }
}

/// Services by which the agent watches and ends a plugin.
pub mod go_plugin {
    tonic::include_proto!("plugin");
}

/// gRPC's health check.
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// The error's words by which Nomad knows that a driver does not know a task.
pub const NO_TASK: &str = "task not found for given id";

/// Returns the error of a driver that does not know a task.
pub fn no_task() -> Status {
    Status::unknown(NO_TASK)
}

/// Maximum length of an error in characters: it travels in a header.
const ERROR_MAX: usize = 1000;

/// Returns an error's words, cut if they are too many.
fn bounded(mut words: String) -> String {
    if let Some((end, _)) = words.char_indices().nth(ERROR_MAX) {
        words.truncate(end);
        words.push_str(" ...");
    }
    words
}

/// Returns an error that Nomad shows.
pub fn error(words: impl Into<String>) -> Status {
    Status::unknown(bounded(words.into()))
}

/// gRPC's status with details (google/rpc/status.proto).
#[derive(Clone, PartialEq, prost::Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// Returns the error of a start. Nomad tries a recoverable start again as the job's `restart` block says, and gives up the allocation on this
/// node after any other error.
pub fn start_error(words: impl Into<String>, is_recoverable: bool) -> Status {
    let message = bounded(words.into());
    let code = tonic::Code::FailedPrecondition;
    let recoverable = structs::RecoverableError {
        recoverable: is_recoverable,
    };
    let detail = prost_types::Any {
        type_url: "type.googleapis.com/hashicorp.nomad.plugins.shared.structs.RecoverableError"
            .to_owned(),
        value: prost::Message::encode_to_vec(&recoverable),
    };
    let details = RichStatus {
        code: code as i32,
        message: message.clone(),
        details: vec![detail],
    };
    Status::with_details(
        code,
        message,
        prost::Message::encode_to_vec(&details).into(),
    )
}
