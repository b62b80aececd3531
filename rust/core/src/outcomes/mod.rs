//! Explains hits and misses: it counts the tokens of each prompt by [`Outcome`].
//!
//! A prompt is classified once, when it is admitted. The counts of its outcomes sum to the number of
//! its tokens. Nothing is observed until [`crate::Manager::observe_outcomes`] is called.
//!
//! # How a prompt is classified
//!
//! A prompt has up to seven sections, which end at these lengths, in this order:
//!
//! | section ends at | outcome |
//! |---|---|
//! | the end of the hit, including tokens of a connector | `hit_answer`, `hit_gpu`, `hit_host` |
//! | the longest prefix whose full attention is cached and whose tail was ever cached | `evicted_tail` |
//! | the longest prefix whose full attention is cached | `never_cached` |
//! | the longest prefix whose full attention was ever cached | `evicted_full` |
//! | the last length at which a hit of this prompt can end | `never_cached` |
//! | the longest prefix that ever had a key | `below_block`, `not_cacheable` |
//! | the end of the prompt | `first_time` |
//!
//! [`HitRules`] says where hits can end and what they need, and [`losses`] is the definition of
//! the losses. The scheduler model of `kvoxide replay` uses both.
//!
//! # Memory and errors
//!
//! A key was cached if the index has it, or if it is remembered as evicted. The memory has room for
//! half as many keys as the pool has blocks, in 4 bytes per block of the pool. Marks of generated
//! tokens take another bit per block. So two errors are possible:
//!
//! - Evicted keys are forgotten, the oldest first. Forgotten tokens are counted as `first_time`, or
//!   as `never_cached` if only the tail was forgotten. Up to [`MAX_GAP`] forgotten blocks in a row
//!   do not hide the remembered blocks after them.
//! - A memory entry has 32 bits of the key, and the group uses some of them. A key that was never
//!   cached looks evicted with a probability of about `n / 2^32`. Here `n` is the number of
//!   remembered keys if all groups are evicted equally, and at most the number of remembered keys
//!   times the number of groups. For a pool of 100,000 blocks the probability is about 0.00001.
//!
//! Tokens after the last full hash block have no key. They are `first_time` if they were not hit, or
//! `below_block` if the start of the prompt shows that they were computed before.
//!
//! [`crate::Manager::reset_prefix_cache`] also clears the memory. The caller drops the cache, for
//! instance for new weights, so later misses are not evictions. A block that gets
//! another key because its content grew is not evicted either, and its former key is not remembered.
//!
//! The starts of prompts are remembered in up to 3 bytes per block of the pool: see
//! [`PromptStart`]. They show shared text that is shorter than a block, or that has another salt or
//! adapter. Four more errors are possible there:
//!
//! - A new prompt replaces older ones, whose text then counts as `first_time`.
//! - A length is rounded down by up to an eighth.
//! - If there is no block hash for each 16 tokens, only some tokens are read: every fourth of the
//!   first 256, every eighth up to 512, every 16th up to 1,024 and so on, 224 of the first 8,192.
//!   Two prompts that differ only in other tokens look the same. The text after a difference that is
//!   not seen counts as `below_block`, up to the end of its block, instead of `first_time`. Texts
//!   under different salts and adapters are always compared by these tokens.
//! - Text is compared with text under other salts from the first prompt on that has a salt or an
//!   adapter.
//!
//! # Cost
//!
//! A refused admission costs nothing. An admission reads only keys after the hit, and stops after
//! [`MAX_GAP`] unknown blocks. Only a model without full attention reads all keys of a prompt, as
//! its look-up does, because any of its tails can be known. Of the prompt's tokens, at most 224 are
//! read.

mod observer;

mod classify;
mod seen;

mod losses;
mod prompt_starts;

mod hit_rules;
mod tail_rule;

mod outcome;

pub use crate::pool::ReuseGaps;
pub(crate) use classify::AdmittedPrompt;
pub use hit_rules::HitRules;
pub use losses::{Losses, losses};
pub(crate) use observer::OutcomeObserver;
pub use outcome::{Outcome, PromptOutcomes};
pub(crate) use prompt_starts::start_positions;
pub use prompt_starts::{Positions, PromptStart};
pub use seen::MAX_GAP;
