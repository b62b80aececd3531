//! Calls as the fuzzer gives them.

use arbitrary::Arbitrary;

/// A number of tokens or blocks.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Amount {
    /// What a scheduler would give.
    Fitting,
    /// A small number, whether it fits or not.
    Small(u8),
    /// Any number.
    Any(u64),
}

impl Amount {
    /// The number, where `fitting` is what a scheduler would give.
    pub fn tokens(self, fitting: usize) -> usize {
        match self {
            Self::Fitting => fitting,
            Self::Small(number) => usize::from(number),
            Self::Any(number) => number as usize,
        }
    }
}

/// Which request a call is about; reduced to those that there are.
pub type Which = u8;

/// One call.
#[derive(Arbitrary, Clone, Debug)]
pub enum Call {
    /// The scheduler's step: looks a waiting request up and admits it, or serves a running one.
    Step { which: Which, tokens: u8, lookahead: u8, delay: bool },
    /// A new prompt under an id that may be in use: one of four families, of which it shares a part.
    Replace { which: Which, family: u8, len: u16, shared: u16, num_prompt_tokens: Amount },
    /// More tokens of output.
    Append { which: Which, tokens: u8 },
    /// What the scheduler counts.
    Count { which: Which, computed: Amount, in_flight: Amount, boundary: Amount },
    /// A look-up, by the memo and without it.
    LookUp { which: Which, max_length: Amount },
    /// Any allocation, with a hit or without.
    Allocate(Allocation),
    /// The hit of a request, cut.
    Truncate { which: Which, tokens: Amount },
    /// How many blocks an allocation would take.
    Demand { which: Which, tokens: Amount, computed: Amount, cap: bool, with_hit: bool },
    /// What of a request is cached from now on.
    CacheBlocks { which: Which, computed: Amount },
    /// The end of a request.
    Free { which: Which },
    /// The end of a request whose blocks are kept for now.
    Pop { which: Which },
    /// Gives kept blocks back: the last so many.
    Release { blocks: u8, to_back: bool },
    /// Gives any block back.
    ReleaseAny { blocks: Vec<u16> },
    /// Blocks outside any request.
    Take { blocks: Amount },
    /// One more reference.
    Touch { blocks: Vec<u16> },
    /// Gives back what left a window.
    Skip { which: Which, computed: Amount },
    /// Out of the prefix cache.
    Evict { blocks: Vec<u16> },
    /// Everything out of the prefix cache.
    Reset,
    /// Lists blocks for zeroing again, and takes the list.
    Zero { which: Which, start: Amount },
    /// What can be read.
    Read { which: Which },
    /// A scheduling step starts.
    StartStep,
    /// The copies that are due, whose blocks are kept until they are released.
    TakeCopies,
    /// What a connector may read, and what of a request that ends.
    TakeOffloads { which: Which },
    /// What a request asks for from now on: a priority, and for how many tenths of a second; 0 for
    /// ever.
    Claim { which: Which, priority: u8, tenths: u8 },
    /// Time goes by.
    Wait { milliseconds: u16 },
}

/// The arguments of an allocation.
#[derive(Arbitrary, Clone, Debug)]
pub struct Allocation {
    pub which: Which,
    pub with_hit: bool,
    pub new: Amount,
    pub hit: Amount,
    pub lookahead: Amount,
    pub external: Amount,
    pub reserved: Amount,
    pub switches: [bool; 4],
    pub skip_zeroing: Option<u8>,
}
