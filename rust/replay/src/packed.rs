//! Encodes traces and reports as bytes, for processes with the same version of kvoxide.
//!
//! The bytes are a mark, a hash of the rest, the kind and the version as text, and the value. The
//! value is in [postcard](https://postcard.jamesmunns.com/wire-format.html), which does not
//! describe its fields. So bytes of another version are refused.

use postcard::{take_from_bytes, to_extend};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

const MARK: &[u8] = b"kvoxide\x01";
const HASH_LEN: usize = 8;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An error of [`unpack`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// [`pack`] did not return these bytes.
    #[error("the bytes of a {kind} are damaged: {reason}")]
    Damaged {
        /// The expected kind.
        kind: &'static str,
        /// The reason why they are damaged.
        reason: String,
    },
    /// The bytes have another kind or version.
    #[error("the bytes are a {found} of kvoxide {version}; expected a {kind} of kvoxide {VERSION}")]
    Foreign {
        /// The expected kind.
        kind: &'static str,
        /// The kind of the bytes.
        found: String,
        /// The version of the bytes.
        version: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    kind: String,
    version: String,
}

/// Encodes a value as bytes of a kind.
pub fn pack<T: Serialize>(kind: &'static str, value: &T) -> Result<Vec<u8>, postcard::Error> {
    let head = Head { kind: kind.into(), version: VERSION.into() };
    let mut bytes = [MARK, &[0; HASH_LEN]].concat();
    bytes = to_extend(&head, bytes)?;
    bytes = to_extend(value, bytes)?;
    let (start, content) = bytes.split_at_mut(MARK.len() + HASH_LEN);
    start[MARK.len()..].copy_from_slice(&xxh3_64(content).to_le_bytes());
    Ok(bytes)
}

/// Decodes the value from bytes of a kind.
pub fn unpack<T: DeserializeOwned>(kind: &'static str, bytes: &[u8]) -> Result<T, Refused> {
    let damaged = |reason: String| Refused::Damaged { kind, reason };
    let content = intact(bytes).map_err(|reason| damaged(reason.into()))?;
    let unread = |error: postcard::Error| damaged(error.to_string());
    let (head, rest) = take_from_bytes::<Head>(content).map_err(unread)?;
    if (&*head.kind, &*head.version) != (kind, VERSION) {
        return Err(Refused::Foreign { kind, found: head.kind, version: head.version });
    }
    match take_from_bytes(rest).map_err(unread)? {
        (value, []) => Ok(value),
        (_, rest) => Err(damaged(format!("{} bytes too many", rest.len()))),
    }
}

/// Returns the bytes after the mark and the hash, if the hash matches them.
fn intact(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let Some(marked) = bytes.strip_prefix(MARK) else {
        return Err("they do not begin with the mark of kvoxide");
    };
    let Some((hash, content)) = marked.split_first_chunk::<HASH_LEN>() else {
        return Err("they end too early");
    };
    match xxh3_64(content) == u64::from_le_bytes(*hash) {
        true => Ok(content),
        false => Err("checksum mismatch"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIND: &str = "list";

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(value: Vec<(i64, Option<u32>, String)>) {
            let bytes = pack(KIND, &value).expect("a list");
            prop_assert_eq!(unpack(KIND, &bytes), Ok(value));
        }

        #[test]
        fn any_change_is_noticed(value: Vec<u64>, at: prop::sample::Index, flipped in 1..=u8::MAX) {
            let mut bytes = pack(KIND, &value).expect("a list");
            let at = at.index(bytes.len());
            prop_assert!(unpack::<Vec<u64>>(KIND, &bytes[..at]).is_err());
            bytes[at] ^= flipped;
            let unpacked = unpack::<Vec<u64>>(KIND, &bytes);
            let is_noticed = matches!(unpacked, Err(Refused::Damaged { .. }));
            prop_assert!(is_noticed);
        }

        #[test]
        fn no_bytes_panic(content: Vec<u8>) {
            let sealed = [MARK, &xxh3_64(&content).to_le_bytes()[..], &content].concat();
            let unpacked = unpack::<Vec<String>>(KIND, &sealed);
            prop_assert!(unpacked.is_err());
        }
    }

    #[test]
    fn bytes_of_another_kind_or_version_are_named() {
        let bytes = pack("report", &1_u64).expect("a number");
        let refused = unpack::<u64>(KIND, &bytes).expect_err("another kind").to_string();
        assert!(refused.starts_with("the bytes are a report of kvoxide "), "{refused}");
        let bytes = pack(KIND, &1_u64).expect("a number");
        let refused = unpack::<u8>(KIND, &[&bytes[..], &[0]].concat()).expect_err("longer");
        assert!(refused.to_string().contains("checksum mismatch"), "{refused}");
    }
}
