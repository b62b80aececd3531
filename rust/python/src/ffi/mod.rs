//! Conversions between Python and the core, for both managers, in the order of their layers: each
//! module uses only those below it.

mod block_lists;
mod block_views;
mod config;
mod copies;
mod groups;
mod named_rules;
mod outcomes;
mod retention;
mod shared_methods;

mod pickling;

mod block_ids;
mod hash_chain;
mod hashes;
mod numbers;
mod tokens;

mod int_cache;
mod owner;

mod guarded_cell;
mod panics;

mod errors;

pub(crate) use block_ids::{computed_id_lists, each_block, id_array, id_lists};
pub(crate) use block_lists::{BlockLists, arrays, lists_or_none, runs};
pub(crate) use block_views::BlockView;
pub(crate) use config::{PyConfig, PyPolicy};
pub(crate) use copies::PyBlockCopy;
pub(crate) use errors::{
    Exceptions, IntoPyResult, block_error, config_error, foreign_blocks, hash_error, or_raised,
    request_error, to_py,
};
pub(crate) use groups::{GroupDeclaration, PyGroupSpec, group_kinds};
pub(crate) use guarded_cell::{CheckedState, GuardedCell};
pub(crate) use hash_chain::{ComputedChain, HashChain};
pub(crate) use hashes::{
    Hashes, algorithm_named, block_hash, hash_bytes, hash_of, key_of_known_len, known_hash,
    known_key, packed_key, unpacked, unpacked_key,
};
pub(crate) use named_rules::{NamedRules, older_rules};
pub(crate) use numbers::{block_size_in_tokens, count, optional_size, place, size};
pub(crate) use outcomes::{
    NamedOutcomes, Observed, OutcomeLog, PyOutcomeReport, allocate, realm, update_outcome_time,
};
pub(crate) use owner::{Owner, WithCore};
pub(crate) use panics::{contained, keep_reports, panic_midway};
pub(crate) use pickling::{NewArgs, Reduced, new_args, reduced, restored};
pub(crate) use retention::{PyRetentionReport, warn_renamed};
pub(crate) use shared_methods::{
    copied_tables, found, list_methods, manager_methods, mixed_digest, offloads_by_name,
    pool_methods, take_blocks, view_methods,
};
pub(crate) use tokens::{one_or_more_token_ids, token_ids};
