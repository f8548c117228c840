//! Sizes of a subframe and of a user's share (TS 36.211, section 5).

/// Subcarriers of a resource block.
pub const BLOCK: usize = 12;
/// Receive antennas.
pub const ANTENNAS: usize = 4;
/// Layers of each user.
pub const LAYERS: usize = 4;
/// Subframes of a frame.
pub const SUBFRAMES: usize = 10;
/// Slots of a subframe.
pub const SLOTS: usize = 2;
/// Symbols of a slot, with the normal cyclic prefix.
pub const SYMBOLS: usize = 7;
/// The symbol of a slot that carries the reference.
pub const REFERENCE_SYMBOL: usize = 3;
/// Symbols of a slot that carry data.
pub const DATA_SYMBOLS: usize = SYMBOLS - 1;
/// Bits of a 64-QAM symbol.
pub const BITS: usize = 6;
/// Most resource blocks of a cell: 20 MHz.
pub const BLOCKS_MAX: usize = 100;

/// The subcarriers of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    first: usize,
    blocks: usize,
}

/// Why a size, a share or a cell is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The number of blocks has another prime factor than 2, 3 and 5.
    #[error("{0} resource blocks are no legal transform size: only products of 2, 3 and 5 are")]
    Illegal(usize),
    /// Too few subcarriers for four references, or more than a cell has.
    #[error("a user has 3 to {BLOCKS_MAX} resource blocks, not {0}")]
    Range(usize),
    /// No transform of a front end.
    #[error(
        "a front end's transform has a power of two samples from 128 to 2048, and no more subcarriers; not {size} \
         with {subcarriers}"
    )]
    Transform {
        /// Samples of the transform.
        size: usize,
        /// Subcarriers.
        subcarriers: usize,
    },
    /// The users together have more blocks than the cell.
    #[error("the users have {users} resource blocks together, the cell has {cell}")]
    Cell {
        /// Blocks of all users.
        users: usize,
        /// Blocks of the cell.
        cell: usize,
    },
}

impl Allocation {
    /// `blocks` resource blocks from block `first` on.
    ///
    /// # Errors
    /// The size is not legal.
    pub fn new(first: usize, blocks: usize) -> Result<Self, SizeError> {
        if !(3..=BLOCKS_MAX).contains(&blocks) || first > BLOCKS_MAX - blocks {
            return Err(SizeError::Range(blocks));
        }
        let mut rest = blocks;
        for prime in [2, 3, 5] {
            while rest.is_multiple_of(prime) {
                rest /= prime;
            }
        }
        if rest != 1 {
            return Err(SizeError::Illegal(blocks));
        }
        Ok(Self { first, blocks })
    }

    /// First subcarrier.
    pub fn begin(self) -> usize {
        self.first * BLOCK
    }

    /// Number of subcarriers.
    pub fn width(self) -> usize {
        self.blocks * BLOCK
    }

    /// Resource blocks.
    pub fn blocks(self) -> usize {
        self.blocks
    }

    /// Coded bits of one layer in a subframe.
    pub fn coded_bits(self) -> usize {
        self.width() * DATA_SYMBOLS * SLOTS * BITS
    }
}

/// A cell: its resource blocks, and its users' shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    blocks: usize,
    users: Vec<Allocation>,
}

impl Cell {
    /// A cell of `blocks` resource blocks, whose users have these blocks each, side by side.
    ///
    /// # Errors
    /// A size is not legal, or the users do not fit.
    pub fn new(blocks: usize, users: &[usize]) -> Result<Self, SizeError> {
        let sum = users
            .iter()
            .fold(0_usize, |sum, &user| sum.saturating_add(user));
        if blocks > BLOCKS_MAX || sum > blocks {
            return Err(SizeError::Cell {
                users: sum,
                cell: blocks.min(BLOCKS_MAX),
            });
        }
        let mut first = 0;
        let users = users.iter().map(|&blocks| {
            let user = Allocation::new(first, blocks)?;
            first += blocks;
            Ok(user)
        });
        Ok(Self {
            blocks,
            users: users.collect::<Result<_, _>>()?,
        })
    }

    /// The literature's cell: 5 MHz, 25 blocks, seven users of three blocks and one of four.
    pub fn literature() -> Self {
        let mut cell = Self {
            blocks: 25,
            users: Vec::new(),
        };
        cell.users = (0..8)
            .map(|user| Allocation {
                first: 3 * user,
                blocks: if user == 7 { 4 } else { 3 },
            })
            .collect();
        cell
    }

    /// Subcarriers of the cell.
    pub fn subcarriers(&self) -> usize {
        self.blocks * BLOCK
    }

    /// The users' shares.
    pub fn users(&self) -> &[Allocation] {
        &self.users
    }

    /// Place of a subcarrier in a subframe's samples, which lie by antenna, symbol and subcarrier.
    pub fn place(&self, antenna: usize, slot: usize, symbol: usize, subcarrier: usize) -> usize {
        ((antenna * SLOTS + slot) * SYMBOLS + symbol) * self.subcarriers() + subcarrier
    }

    /// Samples of a subframe: all antennas, symbols and subcarriers.
    pub fn samples(&self) -> usize {
        ANTENNAS * SLOTS * SYMBOLS * self.subcarriers()
    }
}
