//! The receiver as a graph of tasks: 104 per user and subframe, 832 for the literature's eight users.
//!
//! | kind | tasks per user | reads | writes |
//! |---|---|---|---|
//! | [`Kind::FrontEnd`] | 56 per cell, if samples come in time | samples of a symbol | its subcarriers |
//! | [`Kind::Channel`] | 32: slot, antenna, layer | reference symbol | channel per subcarrier; noise |
//! | [`Kind::Noise`] | 2: slot | 16 channels | noise power |
//! | [`Kind::Weights`] | 2: slot | 16 channels, noise | weights per subcarrier; gain per layer |
//! | [`Kind::Combine`] | 48: slot, symbol, layer | weights, a symbol of four antennas | 64-QAM symbols |
//! | [`Kind::Demap`] | 8: slot, layer | gains, six symbols | soft bits |
//! | [`Kind::Restore`] | 4: layer | soft bits of both slots | de-interleaved, descrambled |
//! | [`Kind::Match`] | 4: layer | soft bits | the code's three streams |
//! | [`Kind::Decode`] | 4: layer | three streams | bits, checksum's verdict |

use std::sync::Arc;

use bytemuck::{cast_slice, cast_slice_mut};
use nfluid_dataflow::engine::{Application, Call, Failure, Finished};
use nfluid_dataflow::graph::{Builder, Graph, GraphError, Task, TaskId};

use crate::Sample;
use crate::equalise::{self, LANES, Weights};
use crate::estimate;
use crate::front_end::FrontEnd;
use crate::modulation;
use crate::rate::{self, RateMatch};
use crate::reference::reference;
use crate::scramble;
use crate::size::{
    ANTENNAS, Allocation, BITS, Cell, DATA_SYMBOLS, LAYERS, REFERENCE_SYMBOL, SLOTS, SUBFRAMES,
    SYMBOLS,
};
use crate::transform::Transform;
use crate::turbo::{self, Decoded, Decoder, Interleaver};

/// Kinds of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// Channel estimation.
    Channel,
    /// Noise power.
    Noise,
    /// MMSE weights.
    Weights,
    /// Antenna combining and transform de-precoding.
    Combine,
    /// Soft demapping.
    Demap,
    /// De-interleaving and descrambling.
    Restore,
    /// Rate de-matching.
    Match,
    /// Turbo decoding, or its bypass.
    Decode,
    /// Prefix removal and transform of one symbol of one antenna.
    FrontEnd,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Self; 9] = [
        Self::Channel,
        Self::Noise,
        Self::Weights,
        Self::Combine,
        Self::Demap,
        Self::Restore,
        Self::Match,
        Self::Decode,
        Self::FrontEnd,
    ];

    /// Names of all kinds, by number.
    pub const NAMES: [&str; Self::ALL.len()] = [
        "channel",
        "noise",
        "weights",
        "combine",
        "demap",
        "restore",
        "match",
        "decode",
        "front-end",
    ];

    /// Nanoseconds that a task takes per subcarrier of its user, before any has been measured.
    fn cost(self) -> u64 {
        match self {
            Self::Noise | Self::Match => 5,
            Self::Channel | Self::Combine | Self::FrontEnd => 15,
            Self::Weights | Self::Restore => 60,
            Self::Demap => 150,
            Self::Decode => 300,
        }
    }
}

/// The cell and subframe, on which reference and scrambling sequences depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    /// The cell's number.
    pub cell: u16,
    /// The subframe's number, 0 to 9.
    pub subframe: usize,
}

impl Identity {
    pub(crate) fn scrambling(self, user: usize, layer: usize) -> u32 {
        // A user takes two identifiers, because four layers are four codewords.
        let identifier = (user as u16).wrapping_add(1).wrapping_mul(2);
        scramble::initial(identifier, layer, self.subframe, self.cell)
    }

    /// The group of reference sequences.
    pub fn group(self) -> usize {
        usize::from(self.cell % 30)
    }
}

/// How transport blocks are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoding {
    /// The systematic bits as they were received, as the literature's benchmark leaves the decoder out.
    Bypass,
    /// By the turbo decoder.
    Turbo(turbo::Settings),
}

/// Tables that one user's kernels read in each subframe.
struct User {
    allocation: Allocation,
    transform: Transform,
    references: [Vec<Sample>; LAYERS],
    /// 1 or -1 per coded bit: the scrambling, by the subframe's number.
    signs: [[Vec<i8>; LAYERS]; SUBFRAMES],
    rate: RateMatch,
    decoder: Decoder,
    block: usize,
    /// The tasks that decode each layer.
    decodes: [TaskId; LAYERS],
}

/// Why there is no receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UplinkError {
    /// The graph of the cell is none.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No block of the turbo code fits into a user's bits.
    #[error("no transport block fits into {0} coded bits")]
    Block(usize),
}

/// A receiver for one cell: its graph and its kernels.
pub struct Uplink {
    cell: Cell,
    users: Vec<User>,
    decoding: Decoding,
    front_end: Option<FrontEnd>,
    graph: Graph,
}

/// Where a task belongs: `user 16 | slot 8 | antenna 8 | layer 8 | symbol 8`.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    user: usize,
    slot: usize,
    antenna: usize,
    layer: usize,
    symbol: usize,
}

impl Place {
    fn encode(self) -> u64 {
        let parts = [self.slot, self.antenna, self.layer, self.symbol];
        parts
            .iter()
            .fold(self.user as u64, |word, &part| word << 8 | part as u64)
    }

    fn decode(word: u64) -> Self {
        let part = |shift: u32| (word >> shift & 0xff) as usize;
        Self {
            user: (word >> 32) as usize,
            slot: part(24),
            antenna: part(16),
            layer: part(8),
            symbol: part(0),
        }
    }
}

/// The symbols of a slot that carry data.
fn data_symbols() -> impl Iterator<Item = usize> {
    (0..SYMBOLS).filter(|&symbol| symbol != REFERENCE_SYMBOL)
}

impl Uplink {
    /// Prepares a receiver for the cell of this number. With a front end, samples come in time; without, as subcarriers ([`Cell::place`]).
    ///
    /// # Errors
    /// [`UplinkError`].
    pub fn new(
        cell: Cell,
        number: u16,
        decoding: Decoding,
        front_end: Option<FrontEnd>,
    ) -> Result<Self, UplinkError> {
        let (graph, decodes) = compose(&cell, front_end.is_some())?;
        let mut users = Vec::new();
        for (index, (&allocation, decodes)) in cell.users().iter().zip(decodes).enumerate() {
            let sent = allocation.coded_bits();
            let block = turbo::block_for(sent).ok_or(UplinkError::Block(sent))?;
            let interleaver = Interleaver::new(block).ok_or(UplinkError::Block(sent))?;
            let identity = |subframe| Identity {
                cell: number,
                subframe,
            };
            let signs = |subframe, layer| {
                let initial = identity(subframe).scrambling(index, layer);
                let bits = scramble::sequence(initial, sent);
                bits.into_iter().map(|bit| 1 - 2 * bit as i8).collect()
            };
            users.push(User {
                allocation,
                transform: Transform::new(allocation.width()),
                references: std::array::from_fn(|layer| {
                    reference(allocation.width(), identity(0).group(), layer)
                }),
                signs: std::array::from_fn(|subframe| {
                    std::array::from_fn(|layer| signs(subframe, layer))
                }),
                rate: RateMatch::new(block, sent),
                decoder: Decoder::new(&interleaver),
                block,
                decodes,
            });
        }
        Ok(Self {
            graph,
            cell,
            users,
            decoding,
            front_end,
        })
    }

    /// The graph of a subframe.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The bits of a user's layer with its checksum, one per byte, and whether the checksum is right; `None` unless the
    /// subframe is done.
    pub fn block<'a>(
        &self,
        finished: &'a Finished,
        user: usize,
        layer: usize,
    ) -> Option<(&'a [u8], bool)> {
        let output = finished.output(*self.users.get(user)?.decodes.get(layer)?)?;
        let (bits, verdict) = output.split_at_checked(self.users[user].block)?;
        Some((bits, verdict.first() == Some(&1)))
    }

    /// Samples of a subframe.
    pub fn samples(&self) -> usize {
        match &self.front_end {
            None => self.cell.samples(),
            Some(front_end) => ANTENNAS * SLOTS * slot_samples(front_end),
        }
    }

    /// Bytes of the input of a subframe's kernels: see [`external`].
    fn external_bytes(&self) -> usize {
        self.samples() * size_of::<Sample>() + NUMBER_BYTES
    }
}

/// The input of a subframe's kernels: its samples, and its number behind them.
pub fn external(samples: &[Sample], subframe: usize) -> Arc<[u8]> {
    let mut external = Vec::with_capacity(size_of_val(samples) + NUMBER_BYTES);
    external.extend_from_slice(cast_slice(samples));
    external.extend_from_slice(&(subframe as u64).to_le_bytes());
    external.into()
}

/// Bytes of a subframe's number: as many as a sample has, so that samples stay samples.
const NUMBER_BYTES: usize = size_of::<Sample>();

/// The number of a subframe within its frame.
fn number(external: &[u8]) -> usize {
    let number = external.last_chunk::<NUMBER_BYTES>();
    let number = number.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (number % SUBFRAMES as u64) as usize
}

/// Samples of a slot in time.
fn slot_samples(front_end: &FrontEnd) -> usize {
    (0..SYMBOLS).map(|symbol| front_end.length(symbol)).sum()
}

/// Composes the graph of a cell's subframe. Returns it with the tasks that decode each user's layers.
///
/// # Errors
/// [`UplinkError`].
pub fn compose(
    cell: &Cell,
    has_front_end: bool,
) -> Result<(Graph, Vec<[TaskId; LAYERS]>), UplinkError> {
    let mut composer = Composer {
        cell,
        builder: Builder::new(),
        symbols: None,
    };
    if has_front_end {
        composer.front_end()?;
    }
    let mut decodes = Vec::new();
    for (user, &allocation) in cell.users().iter().enumerate() {
        let sent = allocation.coded_bits();
        let block = turbo::block_for(sent).ok_or(UplinkError::Block(sent))?;
        decodes.push(composer.user(user, allocation, block)?);
    }
    Ok((composer.builder.build()?, decodes))
}

/// Nanoseconds in which a cache line moves from one core to another.
const LINE_NS: u64 = 100;

/// Composes the graph.
struct Composer<'a> {
    cell: &'a Cell,
    builder: Builder,
    /// The front end's tasks, by antenna, slot and symbol.
    symbols: Option<Vec<TaskId>>,
}

impl Composer<'_> {
    fn task(
        &mut self,
        kind: Kind,
        place: Place,
        width: usize,
        bytes: usize,
    ) -> Result<TaskId, GraphError> {
        self.builder.task(Task {
            kind: kind as u16,
            output_bytes: bytes as u32,
            cost: kind.cost() * width as u64,
            argument: place.encode(),
        })
    }

    /// Edges cost what it takes another core to read the output, if it is the first to do so.
    fn edges(&mut self, from: &[TaskId], to: TaskId) -> Result<(), GraphError> {
        from.iter().try_for_each(|&from| {
            let bytes = self.builder.output_bytes(from);
            self.builder
                .edge(from, to, u64::from(bytes.div_ceil(64)) * LINE_NS)
        })
    }

    fn front_end(&mut self) -> Result<(), GraphError> {
        let width = self.cell.subcarriers();
        let mut symbols = Vec::new();
        for antenna in 0..ANTENNAS {
            for slot in 0..SLOTS {
                for symbol in 0..SYMBOLS {
                    let place = Place {
                        antenna,
                        slot,
                        symbol,
                        ..Place::default()
                    };
                    let bytes = width * size_of::<Sample>();
                    symbols.push(self.task(Kind::FrontEnd, place, width, bytes)?);
                }
            }
        }
        self.symbols = Some(symbols);
        Ok(())
    }

    /// The front end's task of a symbol, if there is a front end.
    fn symbol(&self, antenna: usize, slot: usize, symbol: usize) -> Option<TaskId> {
        let symbols = self.symbols.as_ref()?;
        symbols
            .get((antenna * SLOTS + slot) * SYMBOLS + symbol)
            .copied()
    }

    /// Adds the tasks of a user, and returns those that decode.
    fn user(
        &mut self,
        user: usize,
        allocation: Allocation,
        block: usize,
    ) -> Result<[TaskId; LAYERS], GraphError> {
        const SAMPLE: usize = size_of::<Sample>();
        const SOFT: usize = size_of::<f32>();
        let width = allocation.width();
        let mut demaps = [[0; SLOTS]; LAYERS];
        for slot in 0..SLOTS {
            let place = Place {
                user,
                slot,
                ..Place::default()
            };
            let mut channels = Vec::new();
            for antenna in 0..ANTENNAS {
                for layer in 0..LAYERS {
                    let place = Place {
                        antenna,
                        layer,
                        ..place
                    };
                    let task = self.task(Kind::Channel, place, width, (width + 1) * SAMPLE)?;
                    let symbol = self.symbol(antenna, slot, REFERENCE_SYMBOL);
                    self.edges(symbol.as_slice(), task)?;
                    channels.push(task);
                }
            }
            let noise = self.task(Kind::Noise, place, width, SOFT)?;
            self.edges(&channels, noise)?;
            let bytes = LAYERS * SOFT + width.div_ceil(LANES) * size_of::<Weights>();
            let weights = self.task(Kind::Weights, place, width, bytes)?;
            self.edges(&channels, weights)?;
            self.edges(&[noise], weights)?;
            for (layer, demaps) in demaps.iter_mut().enumerate() {
                let place = Place { layer, ..place };
                let mut combines = vec![weights];
                for symbol in data_symbols() {
                    let place = Place { symbol, ..place };
                    let task = self.task(Kind::Combine, place, width, width * SAMPLE)?;
                    self.edges(&[weights], task)?;
                    for antenna in 0..ANTENNAS {
                        let symbol = self.symbol(antenna, slot, symbol);
                        self.edges(symbol.as_slice(), task)?;
                    }
                    combines.push(task);
                }
                let bytes = DATA_SYMBOLS * width * BITS * SOFT;
                demaps[slot] = self.task(Kind::Demap, place, width, bytes)?;
                self.edges(&combines, demaps[slot])?;
            }
        }
        let mut decodes = [0; LAYERS];
        for (layer, decode) in decodes.iter_mut().enumerate() {
            let place = Place {
                user,
                layer,
                ..Place::default()
            };
            let bytes = allocation.coded_bits() * SOFT;
            let restore = self.task(Kind::Restore, place, width, bytes)?;
            self.edges(&demaps[layer], restore)?;
            let bytes = 3 * (block + turbo::STREAM_TAIL) * SOFT;
            let matched = self.task(Kind::Match, place, width, bytes)?;
            self.edges(&[restore], matched)?;
            // Bits, the checksum's verdict, iterations.
            *decode = self.task(Kind::Decode, place, width, block + 2)?;
            self.edges(&[matched], *decode)?;
        }
        Ok(decodes)
    }
}

impl Application for Uplink {
    fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        let place = Place::decode(call.argument);
        let kind = Kind::ALL.get(usize::from(call.kind)).copied();
        let kind = kind.ok_or_else(|| Failure(format!("no kernel of kind {}", call.kind)))?;
        if call.external.len() != self.external_bytes() {
            let (has, needs) = (call.external.len(), self.external_bytes());
            return Err(Failure(format!(
                "a subframe has {needs} bytes of samples and number, this one {has}"
            )));
        }
        if kind == Kind::FrontEnd {
            return self.transform_symbol(place, call);
        }
        let user = self.users.get(place.user);
        let user = user.ok_or_else(|| Failure(format!("no user {}", place.user)))?;
        match kind {
            Kind::Channel => self.estimate(user, place, call),
            Kind::Noise => noise(call),
            Kind::Weights => weights(user, call),
            Kind::Combine => self.combine(user, place, call),
            Kind::Demap => demap(user, place, call),
            Kind::Restore => restore(user, place, number(call.external), call),
            Kind::Match => user
                .rate
                .restore(cast_slice(call.inputs.get(0)), cast_slice_mut(call.output)),
            Kind::Decode => self.decode(user, call),
            Kind::FrontEnd => {}
        }
        Ok(())
    }
}

impl Uplink {
    fn transform_symbol(&self, place: Place, call: Call<'_>) -> Result<(), Failure> {
        let Some(front_end) = &self.front_end else {
            return Err(Failure("the receiver has no front end".to_owned()));
        };
        let before = (0..place.symbol)
            .map(|symbol| front_end.length(symbol))
            .sum::<usize>();
        let slot = (place.antenna * SLOTS + place.slot) * slot_samples(front_end);
        let samples: &[Sample] = cast_slice(call.external);
        let samples = &samples[slot + before..][..front_end.length(place.symbol)];
        front_end.receive(samples, cast_slice_mut(call.output));
        Ok(())
    }

    /// A user's subcarriers of a symbol: from outside, or from the front end's task, which is the input `index`.
    fn received<'a>(
        &self,
        user: &User,
        place: Place,
        call: &Call<'a>,
        index: usize,
    ) -> &'a [Sample] {
        let (begin, width) = (user.allocation.begin(), user.allocation.width());
        let (samples, first): (&[u8], usize) = if self.front_end.is_some() {
            (call.inputs.get(index), begin)
        } else {
            (
                call.external,
                self.cell
                    .place(place.antenna, place.slot, place.symbol, begin),
            )
        };
        &cast_slice(samples)[first..first + width]
    }

    fn estimate(&self, user: &User, place: Place, call: Call<'_>) {
        let place = Place {
            symbol: REFERENCE_SYMBOL,
            ..place
        };
        let received = self.received(user, place, &call, 0);
        let output: &mut [Sample] = cast_slice_mut(call.output);
        let Some((noise, channel)) = output.split_last_mut() else {
            return;
        };
        let reference = &user.references[place.layer];
        noise.re = estimate::channel(received, reference, &user.transform, channel);
    }

    fn combine(&self, user: &User, place: Place, call: Call<'_>) {
        let (gains, weights) = gains_and_weights(call.inputs.get(0));
        let received: [&[Sample]; ANTENNAS] = std::array::from_fn(|antenna| {
            let place = Place { antenna, ..place };
            self.received(user, place, &call, 1 + antenna)
        });
        let output = cast_slice_mut(call.output);
        equalise::combine(weights, &received, place.layer, gains[place.layer], output);
        user.transform.inverse(output);
    }

    fn decode(&self, user: &User, call: Call<'_>) {
        let soft: &[f32] = cast_slice(call.inputs.get(0));
        let (bits, verdict) = call.output.split_at_mut(user.block);
        let decoded = match self.decoding {
            Decoding::Turbo(settings) => user.decoder.decode(soft, settings, bits),
            Decoding::Bypass => {
                for (bit, soft) in bits.iter_mut().zip(soft) {
                    *bit = u8::from(*soft < 0.0);
                }
                Decoded {
                    iterations: 0,
                    is_right: crate::crc::is_right(bits),
                }
            }
        };
        verdict.copy_from_slice(&[
            u8::from(decoded.is_right),
            decoded.iterations.min(255) as u8,
        ]);
    }
}

fn noise(call: Call<'_>) {
    let powers = call.inputs.iter().filter_map(|input| {
        let channel: &[Sample] = cast_slice(input);
        channel.last().map(|noise| noise.re)
    });
    let mean = powers.sum::<f32>() / call.inputs.len().max(1) as f32;
    cast_slice_mut(call.output).fill(mean);
}

fn weights(user: &User, call: Call<'_>) {
    let width = user.allocation.width();
    let channels: [&[Sample]; ANTENNAS * LAYERS] =
        std::array::from_fn(|index| &cast_slice(call.inputs.get(index))[..width]);
    let noise: &[f32] = cast_slice(call.inputs.get(ANTENNAS * LAYERS));
    let (gains, weights) = call.output.split_at_mut(LAYERS * size_of::<f32>());
    let computed = equalise::weights(&channels, noise[0], cast_slice_mut(weights));
    cast_slice_mut(gains).copy_from_slice(&computed);
}

/// The output of a task [`Kind::Weights`].
fn gains_and_weights(output: &[u8]) -> (&[f32], &[Weights]) {
    let (gains, weights) = output.split_at(LAYERS * size_of::<f32>());
    (cast_slice(gains), cast_slice(weights))
}

fn demap(user: &User, place: Place, call: Call<'_>) {
    let (gains, _) = gains_and_weights(call.inputs.get(0));
    let noise = equalise::noise_after(gains[place.layer]);
    let soft: &mut [f32] = cast_slice_mut(call.output);
    let symbols = soft.chunks_mut(user.allocation.width() * BITS);
    for (index, soft) in symbols.enumerate() {
        modulation::demap(cast_slice(call.inputs.get(1 + index)), noise, soft);
    }
}

fn restore(user: &User, place: Place, subframe: usize, call: Call<'_>) {
    let received = [0, 1].map(|slot| cast_slice(call.inputs.get(slot)));
    rate::restore(
        received,
        &user.signs[subframe][place.layer],
        cast_slice_mut(call.output),
    );
}
