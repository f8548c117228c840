//! LTE uplink: the receiver of `nfluid-baseband` as a slice.

use crate::application::SliceApplication;
use crate::radio::{self, SAMPLE_BYTES};
use nfluid_baseband::front_end::FrontEnd;
use nfluid_baseband::size::{Cell, LAYERS};
use nfluid_baseband::turbo;
use nfluid_baseband::uplink::{Decoding, Kind, Uplink, external};
use nfluid_dataflow::engine::{Application, Call, Failure, Finished};
use nfluid_dataflow::graph::Graph;
use nfluid_nf::{ConfigError, config};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// How samples come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Input {
    /// By antenna, symbol and subcarrier: the radio has transformed them.
    Subcarriers,
    /// By antenna and time, with prefixes.
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Decoder {
    /// The turbo decoder.
    Turbo,
    /// None: systematic bits as they were received.
    Bypass,
}

/// The parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    /// Number of the cell.
    cell: u16,
    /// Resource blocks of the cell.
    blocks: usize,
    /// Resource blocks of each user, side by side.
    users: Vec<usize>,
    input: Input,
    /// Samples of a transform, if samples come in time.
    transform: usize,
    decoder: Decoder,
    /// Most iterations of the decoder.
    iterations: usize,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            cell: 1,
            blocks: 25,
            users: vec![3, 3, 3, 3, 3, 3, 3, 4],
            input: Input::Subcarriers,
            transform: 512,
            decoder: Decoder::Turbo,
            iterations: 5,
        }
    }
}

struct LteUplink {
    uplink: Uplink,
    users: usize,
}

/// Builds the application.
///
/// # Errors
/// A parameter out of its bounds, or a cell that cannot be.
pub fn build(value: &Value) -> Result<Arc<dyn SliceApplication>, ConfigError> {
    let parameters: Parameters = config::parse(value)?;
    if parameters.users.is_empty() {
        return Err(ConfigError::at(
            "users",
            "name the resource blocks of at least one user",
        ));
    }
    if !(1..=16).contains(&parameters.iterations) {
        return Err(ConfigError::at("iterations", "write 1 to 16"));
    }
    let cell = Cell::new(parameters.blocks, &parameters.users)
        .map_err(|error| ConfigError::at("users", error.to_string()))?;
    let front_end = match parameters.input {
        Input::Subcarriers => None,
        Input::Time => {
            let front_end = FrontEnd::new(parameters.transform, cell.subcarriers());
            Some(front_end.map_err(|error| ConfigError::at("transform", error.to_string()))?)
        }
    };
    let decoding = match parameters.decoder {
        Decoder::Bypass => Decoding::Bypass,
        Decoder::Turbo => Decoding::Turbo(turbo::Settings {
            iterations_max: parameters.iterations,
            stops_early: true,
        }),
    };
    let users = cell.users().len();
    let uplink = Uplink::new(cell, parameters.cell, decoding, front_end)
        .map_err(|error| ConfigError::at("users", error.to_string()))?;
    Ok(Arc::new(LteUplink { uplink, users }))
}

impl Application for LteUplink {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        self.uplink.run(call)
    }
}

impl SliceApplication for LteUplink {
    fn graph(&self) -> &Graph {
        self.uplink.graph()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn input_bytes(&self) -> usize {
        self.uplink.samples() * SAMPLE_BYTES
    }

    /// The phase is the subframe's number.
    fn external(&self, input: &[u8], phase: u8) -> Arc<[u8]> {
        external(&radio::samples(input), phase.into())
    }

    /// A result per user and layer, users first: user (16 bits), layer (8), 1 if the checksum is right (8), number of bits
    /// (16), and the bits, the first in the highest place.
    fn results(&self, finished: &Finished, sink: &mut dyn FnMut(&[u8])) {
        let mut result = Vec::new();
        for user in 0..self.users {
            for layer in 0..LAYERS {
                let Some((bits, is_right)) = self.uplink.block(finished, user, layer) else {
                    continue;
                };
                result.clear();
                result.extend((user as u16).to_be_bytes());
                result.extend([layer as u8, u8::from(is_right)]);
                result.extend((bits.len() as u16).to_be_bytes());
                let bytes = bits.chunks(8).map(|bits| {
                    let places = bits.iter().enumerate();
                    places.fold(0, |byte, (at, bit)| byte | (bit & 1) << (7 - at))
                });
                result.extend(bytes);
                sink(&result);
            }
        }
    }
}
