//! The errors of calls. Each error says what is allowed. Every call checks its arguments before it
//! changes anything.

use thiserror::Error as ThisError;

/// The reason why a call was refused. A refused call changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The values that describe a group, policy or manager cannot work.
    #[error("{0}")]
    Config(String),
    /// This engine does not manage KV cache groups of this kind.
    #[error("KV cache groups of kind '{kind}' are not supported; supported kinds: {supported}")]
    UnsupportedGroup {
        /// The kind that the caller wants.
        kind: String,
        /// The kinds that the engine supports.
        supported: String,
    },
    /// An argument about a request does not fit the manager's state.
    #[error("{0}")]
    Request(String),
    /// The call does not fit the blocks of the request or of the hit.
    #[error("{0}")]
    Precondition(String),
    /// The position or group does not exist in the request, the hit or the manager.
    #[error("{0}")]
    OutOfRange(String),
    /// The manager does not know the request.
    #[error(
        "request '{0}' is not known to the manager: it was never looked up or allocated, or it \
         was freed already"
    )]
    UnknownRequest(String),
    /// Another live request has the same id.
    #[error("another live request has the id '{0}'; free that request first or use another id")]
    DuplicateRequest(String),
    /// Block hashes have a wrong length or number.
    #[error("{0}")]
    BlockHash(String),
    /// The block id is outside of the pool, or the block's state forbids the call.
    #[error("{0}")]
    Block(String),
    /// The engine found that its own state is broken.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// The result of a call that can be refused.
pub type Result<T> = std::result::Result<T, Error>;
