//! Errors of calls. Each says what is allowed. Every call checks before it changes anything.

use thiserror::Error as ThisError;

/// Why a call was refused. A refused call changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// A group, policy or manager was described with values that cannot work.
    #[error("{0}")]
    Config(String),
    /// A KV cache group of a kind that this engine does not manage.
    #[error("KV cache groups of kind '{kind}' are not supported; supported kinds: {supported}")]
    UnsupportedGroup {
        /// The kind that was asked for.
        kind: String,
        /// The kinds that can be asked for.
        supported: String,
    },
    /// An argument about a request does not fit the manager's state.
    #[error("{0}")]
    Request(String),
    /// The call does not go with the blocks of the request or of the hit.
    #[error("{0}")]
    Precondition(String),
    /// A position or a group past what the request, the hit or the manager has.
    #[error("{0}")]
    OutOfRange(String),
    /// The manager does not know the request.
    #[error(
        "request '{0}' is not known to the manager: it was never looked up or allocated, or it \
         was freed already"
    )]
    UnknownRequest(String),
    /// Another live request has this id.
    #[error("another live request has the id '{0}'; free that one first or choose another id")]
    DuplicateRequest(String),
    /// Block hashes of the wrong length or number.
    #[error("{0}")]
    BlockHash(String),
    /// A block id outside the pool, or a block in a state that forbids the call.
    #[error("{0}")]
    Block(String),
    /// The engine found that its own state is broken.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// Result of a call that may be refused.
pub type Result<T> = std::result::Result<T, Error>;
