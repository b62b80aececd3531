//! Compares chains of block hashes with the hashes from a naive encoder.

use arbitrary::{Arbitrary, Unstructured};
use kvoxide_core::BlockHash;
use kvoxide_core::block_hash::{BlockHasher, Chain, ExtraKeys, HashAlgorithm, Identity, Key};

use crate::pickle::{Value, pickled};

/// A chain, and the block size with which it is cut into blocks.
#[derive(Arbitrary, Debug)]
struct Input {
    algorithm: u8,
    parent: [u8; 32],
    tokens: Vec<Token>,
    /// The number of times that the tokens are repeated. With enough tokens, a block exceeds a
    /// pickle frame.
    repeats: u16,
    block_size: u16,
    num_lookahead_tokens: u8,
    /// Values that several keys can refer to.
    objects: Vec<Item>,
    keys: Vec<Option<Vec<Item>>>,
    salt: Option<String>,
    lora: Option<(String, String)>,
    steps: Vec<u8>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Token {
    Small(u8),
    Medium(u16),
    Large(i32),
    /// A number next to an edge, from which an encoding needs more bytes.
    Edge {
        which: u8,
        more: u8,
        is_negative: bool,
    },
    Any(i64),
}

#[derive(Arbitrary, Clone, Debug)]
enum Item {
    None,
    Int(i64),
    Bytes(Vec<u8>),
    Text(String),
    /// A text about as long as a frame. The number is the difference.
    LongText(i8),
    /// Bytes about as long as a frame. The number is the difference.
    LongBytes(i8),
    /// All small objects and a number of texts, each of them twice.
    All(u16),
    /// One of the earlier objects.
    Object(u8),
    /// A tuple of earlier objects.
    Tuple(Vec<u8>),
}

const MAX_TOKENS: usize = 14_000;
const MAX_BLOCKS: usize = 24;
const FRAME: usize = 1 << 16;
const EDGES: [i64; 8] = [24, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 39];
/// The most objects. They are more than a memo can refer to with one byte.
const MAX_OBJECTS: usize = 400;

/// Hashes the chain that `data` describes with the engine and with the reference. Compares the
/// hashes.
pub fn run(data: &[u8]) {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(data)) else { return };
    let (_, algorithm) = HashAlgorithm::ALL[usize::from(input.algorithm) % 4];
    let block_size = usize::from(input.block_size).max(1);
    let tokens = input.tokens(MAX_TOKENS.min(MAX_BLOCKS * block_size));
    check_chain(&input, algorithm, &tokens, block_size);
    check_hasher(&input, algorithm, &tokens, block_size);
}

fn check_chain(input: &Input, algorithm: HashAlgorithm, tokens: &[i64], block_size: usize) {
    let keys = input.keys();
    let chain = Chain {
        parent: &input.parent[..algorithm.hash_len()],
        tokens,
        block_size,
        num_lookahead_tokens: usize::from(input.num_lookahead_tokens),
        keys: &keys,
    };
    assert_eq!(bytes(chain.hash(algorithm), algorithm), expected(&chain, algorithm));
}

/// Checks a hasher that extends the chain in steps. Only the first key has the salt.
fn check_hasher(input: &Input, algorithm: HashAlgorithm, tokens: &[i64], block_size: usize) {
    let extra = ExtraKeys { lora: input.lora.clone(), cache_salt: input.salt.clone() };
    let hasher = BlockHasher::new(algorithm, block_size, "seed");
    let mut hashes: Vec<BlockHash> = Vec::new();
    for &step in &input.steps {
        let end = tokens.len() * usize::from(step) / 256;
        hasher.extend(&mut hashes, &tokens[..end], &extra);
    }
    hasher.extend(&mut hashes, tokens, &extra);

    let seed = digest(algorithm, &encoded(algorithm, &Value::Text(None, "seed".into())));
    let keys = [true, false].map(|is_first| key_of(&extra, is_first));
    let chain = Chain { parent: &seed, tokens, block_size, num_lookahead_tokens: 0, keys: &keys };
    assert_eq!(bytes(hashes, algorithm), expected(&chain, algorithm));
}

fn key_of(extra: &ExtraKeys, is_first: bool) -> Key {
    let mut parts = Vec::new();
    if let Some((name, path)) = &extra.lora {
        parts.push(Key::tuple(vec![Key::text("lora"), Key::text(name), Key::text(path)]));
    }
    match &extra.cache_salt {
        Some(salt) if is_first && !salt.is_empty() => {
            parts.push(Key::tuple(vec![Key::text("cache_salt"), Key::text(salt)]));
        }
        _ => {}
    }
    if parts.is_empty() { Key::None } else { Key::tuple(parts) }
}

fn bytes(hashes: Vec<BlockHash>, algorithm: HashAlgorithm) -> Vec<Vec<u8>> {
    hashes.iter().map(|hash| hash.to_bytes()[..algorithm.hash_len()].to_vec()).collect()
}

/// Returns the hashes of a chain, computed with the naive encoders.
fn expected(chain: &Chain<'_>, algorithm: HashAlgorithm) -> Vec<Vec<u8>> {
    let mut parent = chain.parent.to_vec();
    let mut hashes = Vec::new();
    for start in (0..).step_by(chain.block_size) {
        let end = start + chain.block_size;
        let Some(lookahead) = chain.tokens.get(end..end + chain.num_lookahead_tokens) else {
            break;
        };
        let key = chain.keys.get(hashes.len()).or(chain.keys.last()).unwrap_or(&Key::None);
        let mut last = value_of(key);
        if !lookahead.is_empty() {
            let numbers = lookahead.iter().map(|&token| Value::Int(token));
            last = Value::Tuple(None, [last].into_iter().chain(numbers).collect());
        }
        let tokens = chain.tokens[start..end].iter().map(|&token| Value::Int(token)).collect();
        let block = [Value::Bytes(None, parent), Value::Tuple(None, tokens), last];
        parent = digest(algorithm, &encoded(algorithm, &Value::Tuple(None, block.into())));
        hashes.push(parent.clone());
    }
    hashes
}

fn value_of(key: &Key) -> Value {
    let object = |identity: &Identity| match identity {
        Identity::Unique => None,
        Identity::Object(number) => Some(*number),
    };
    match key {
        Key::None => Value::None,
        Key::Int(number) => Value::Int(*number),
        Key::Bytes(identity, bytes) => Value::Bytes(object(identity), bytes.to_vec()),
        Key::Text(identity, text) => Value::Text(object(identity), text.to_string()),
        Key::Tuple(identity, items) => {
            Value::Tuple(object(identity), items.iter().map(value_of).collect())
        }
    }
}

fn encoded(algorithm: HashAlgorithm, value: &Value) -> Vec<u8> {
    match algorithm {
        HashAlgorithm::Sha256 | HashAlgorithm::Xxhash => pickled(value),
        HashAlgorithm::Sha256Cbor | HashAlgorithm::XxhashCbor => cbor(value),
    }
}

fn digest(algorithm: HashAlgorithm, bytes: &[u8]) -> Vec<u8> {
    match algorithm {
        HashAlgorithm::Sha256 | HashAlgorithm::Sha256Cbor => hmac_sha256::Hash::hash(bytes).into(),
        HashAlgorithm::Xxhash | HashAlgorithm::XxhashCbor => {
            twox_hash::XxHash3_128::oneshot(bytes).to_be_bytes().into()
        }
    }
}

fn cbor(value: &Value) -> Vec<u8> {
    match value {
        Value::None => vec![0xf6],
        Value::Int(number @ 0..) => cbor_header(0, *number as u64),
        Value::Int(number) => cbor_header(1, (-1 - number) as u64),
        Value::Bytes(_, bytes) => [cbor_header(2, bytes.len() as u64), bytes.clone()].concat(),
        Value::Text(_, text) => {
            [cbor_header(3, text.len() as u64), text.as_bytes().into()].concat()
        }
        Value::Tuple(_, items) => {
            let items = items.iter().flat_map(cbor);
            cbor_header(4, value_len(value)).into_iter().chain(items).collect()
        }
    }
}

fn value_len(value: &Value) -> u64 {
    match value {
        Value::Tuple(_, items) => items.len() as u64,
        _ => 0,
    }
}

fn cbor_header(major: u8, argument: u64) -> Vec<u8> {
    let (additional, width) = match argument {
        0..=23 => (argument as u8, 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    [&[major << 5 | additional][..], &argument.to_be_bytes()[8 - width..]].concat()
}

impl Input {
    fn tokens(&self, most: usize) -> Vec<i64> {
        let once = self.tokens.iter().map(|token| match *token {
            Token::Small(token) => i64::from(token),
            Token::Medium(token) => i64::from(token),
            Token::Large(token) => i64::from(token),
            Token::Edge { which, more, is_negative } => {
                let edge = EDGES[usize::from(which) % EDGES.len()] + i64::from(more % 3) - 1;
                if is_negative { -edge } else { edge }
            }
            Token::Any(token) => token,
        });
        let once: Vec<i64> = once.collect();
        let len = once.len() * (1 + usize::from(self.repeats));
        once.into_iter().cycle().take(len.min(most)).collect()
    }

    fn keys(&self) -> Vec<Key> {
        let mut objects: Vec<Key> = Vec::new();
        for (number, item) in self.objects.iter().take(MAX_OBJECTS).enumerate() {
            let made = made(item, Identity::Object(number), &objects);
            objects.push(made);
        }
        let key = |items: &Option<Vec<Item>>| match items {
            None => Key::None,
            Some(items) => {
                let made = items.iter().map(|item| made(item, Identity::Unique, &objects));
                Key::tuple(made.collect())
            }
        };
        self.keys.iter().take(20).map(key).collect()
    }
}

fn made(item: &Item, identity: Identity, objects: &[Key]) -> Key {
    let object = |number: u8| objects.get(usize::from(number)).cloned().unwrap_or_default();
    let long = |more: i8| FRAME.saturating_add_signed(isize::from(more));
    match item {
        Item::None => Key::None,
        Item::Int(number) => Key::Int(*number),
        Item::Bytes(bytes) => Key::Bytes(identity, bytes[..].into()),
        Item::Text(text) => Key::Text(identity, text[..].into()),
        Item::LongText(more) => Key::Text(identity, "x".repeat(long(*more)).into()),
        Item::LongBytes(more) => Key::Bytes(identity, vec![b'y'; long(*more)].into()),
        Item::All(more) => {
            let text =
                |i: usize| Key::Text(Identity::Object(MAX_OBJECTS + i), format!("{i}").into());
            let more = (0..usize::from(*more) % MAX_OBJECTS).map(text);
            let small =
                objects.iter().filter(|object| depth(object) == 0 && len(object) < FRAME / 2);
            let once: Vec<Key> = small.cloned().chain(more).collect();
            Key::Tuple(identity, [once.clone(), once].concat())
        }
        Item::Object(number) => object(*number),
        // At most five items, because tuples of tuples grow exponentially.
        Item::Tuple(numbers) => {
            let items = numbers.iter().take(5).map(|&number| object(number));
            Key::Tuple(identity, items.filter(|item| depth(item) < 3).collect())
        }
    }
}

fn len(key: &Key) -> usize {
    match key {
        Key::Bytes(_, bytes) => bytes.len(),
        Key::Text(_, text) => text.len(),
        Key::None | Key::Int(_) | Key::Tuple(..) => 0,
    }
}

fn depth(key: &Key) -> usize {
    match key {
        Key::Tuple(_, items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
