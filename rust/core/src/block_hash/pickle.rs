//! Encodes blocks as pickles of protocol 5.
//!
//! The bytes are the same as from CPython's `pickle.dumps`:
//!
//! - Numbers have the narrowest opcode.
//! - Every string, byte string and tuple is in the memo.
//! - An object that occurs again is a reference into the memo.
//! - The pickle is cut into frames.

use super::buffer::{Buffer, WINDOW};
use super::key::{Identity, Key};
use super::{Block, Encoder};

const PROTOCOL: [u8; 2] = [0x80, 5];
const FRAME: u8 = 0x95;
const STOP: &[u8] = b".";
const NONE: &[u8] = b"N";
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const BININT: u8 = b'J';
const LONG1: u8 = 0x8a;
const MARK: &[u8] = b"(";
const EMPTY_TUPLE: &[u8] = b")";
const TUPLE1: u8 = 0x85;
const TUPLE: &[u8] = b"t";
const MEMOIZE: &[u8] = b"\x94";
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';
const BYTES: Opcodes = Opcodes { short: b'C', long: b'B', very_long: 0x8e };
const TEXT: Opcodes = Opcodes { short: 0x8c, long: b'X', very_long: 0x8d };

/// A frame that has at least this many bytes ends before the next value.
const FRAME_TARGET: usize = 64 * 1024;
/// A frame with fewer bytes is written without a header.
const FRAME_MIN: usize = 4;
const FRAME_HEADER: usize = 9;
/// Bytes of the widest number.
const MAX_INTEGER: usize = 10;

/// The opcodes of a kind of string. The length takes 1, 4 or 8 bytes.
struct Opcodes {
    short: u8,
    long: u8,
    very_long: u8,
}

/// Encodes pickles.
#[derive(Default)]
pub(super) struct PickleEncoder {
    buffer: Buffer,
    /// The position of the open frame's header.
    frame: usize,
    /// The objects in the memo, by index.
    memo: Vec<Identity>,
    /// The bytes of the last block's key; empty if a frame ended inside of them.
    last_key: Vec<u8>,
}

impl Encoder for PickleEncoder {
    fn block(&mut self, block: &Block<'_>) -> &[u8] {
        self.start();
        self.string(&BYTES, Identity::Unique, block.parent);
        self.next_value();
        self.tuple(Identity::Unique, block.tokens.len(), |pickle| pickle.integers(block.tokens));
        if block.lookahead.is_empty() {
            self.key_of_block(block);
        } else {
            self.next_value();
            self.tuple(Identity::Unique, 1 + block.lookahead.len(), |pickle| {
                pickle.key_of_block(block);
                pickle.integers(block.lookahead);
            });
        }
        self.close_tuple(Identity::Unique, 3);
        self.finish()
    }

    fn text(&mut self, text: &str) -> &[u8] {
        self.start();
        self.string(&TEXT, Identity::Unique, text.as_bytes());
        self.finish()
    }
}

impl PickleEncoder {
    #[inline]
    fn start(&mut self) {
        self.memo.clear();
        self.buffer.clear();
        self.buffer.put(&PROTOCOL);
        self.open_frame();
    }

    #[inline]
    fn finish(&mut self) -> &[u8] {
        self.buffer.put(STOP);
        self.close_frame();
        self.buffer.bytes()
    }

    #[inline]
    fn open_frame(&mut self) {
        self.frame = self.buffer.len();
        self.buffer.put(&[0; FRAME_HEADER]);
    }

    #[inline]
    fn close_frame(&mut self) {
        let start = self.frame + FRAME_HEADER;
        let len = self.buffer.len() - start;
        if len >= FRAME_MIN {
            self.buffer.overwrite(self.frame, &[FRAME]);
            self.buffer.overwrite(self.frame + 1, &(len as u64).to_le_bytes());
        } else {
            self.buffer.remove(self.frame, FRAME_HEADER);
        }
    }

    /// Returns how many bytes still fit into the open frame.
    #[inline]
    fn left_in_frame(&self) -> usize {
        (self.frame + FRAME_HEADER + FRAME_TARGET).saturating_sub(self.buffer.len())
    }

    /// Starts a new frame if the open one is full. Must be called before each value.
    #[inline]
    fn next_value(&mut self) {
        if self.left_in_frame() == 0 {
            self.close_frame();
            self.open_frame();
        }
    }

    /// Writes the key of a block. Before a key, the memo always has the same objects. So an equal
    /// key has the same bytes.
    fn key_of_block(&mut self, block: &Block<'_>) {
        if *block.key == Key::None {
            return self.key(block.key);
        }
        if block.repeats_key && (1..=self.left_in_frame()).contains(&self.last_key.len()) {
            self.buffer.put(&self.last_key);
            return;
        }
        self.next_value();
        let (start, frame) = (self.buffer.len(), self.frame);
        self.key(block.key);
        self.last_key.clear();
        if self.frame == frame {
            self.last_key.extend_from_slice(&self.buffer.bytes()[start..]);
        }
    }

    fn key(&mut self, key: &Key) {
        self.next_value();
        match key {
            Key::None => self.buffer.put(NONE),
            Key::Int(number) => self.buffer.put_each(&[*number], integer),
            Key::Bytes(identity, bytes) => self.string(&BYTES, *identity, bytes),
            Key::Text(identity, text) => self.string(&TEXT, *identity, text.as_bytes()),
            Key::Tuple(_, items) if items.is_empty() => self.buffer.put(EMPTY_TUPLE),
            Key::Tuple(identity, items) => self.tuple(*identity, items.len(), |pickle| {
                items.iter().for_each(|item| pickle.key(item));
            }),
        }
    }

    #[inline]
    fn integers(&mut self, mut numbers: &[i64]) {
        while !numbers.is_empty() {
            self.next_value();
            // Few enough numbers that only the number after them can close the frame.
            let run = self.left_in_frame().div_ceil(MAX_INTEGER).min(numbers.len());
            let (now, later) = numbers.split_at(run);
            self.buffer.put_each(now, integer);
            numbers = later;
        }
    }

    #[inline]
    fn string(&mut self, opcodes: &Opcodes, identity: Identity, bytes: &[u8]) {
        if self.write_if_in_memo(identity) {
            return;
        }
        let stands_alone = bytes.len() >= FRAME_TARGET;
        if stands_alone {
            self.close_frame();
        }
        let len = (bytes.len() as u64).to_le_bytes();
        match bytes.len() {
            0..0x100 => self.buffer.put(&[opcodes.short, len[0]]),
            0x100..0x1_0000_0000 => {
                self.buffer.put(&[opcodes.long, len[0], len[1], len[2], len[3]]);
            }
            _ => {
                self.buffer.put(&[opcodes.very_long]);
                self.buffer.put(&len);
            }
        }
        self.buffer.put(bytes);
        if stands_alone {
            self.open_frame();
        }
        self.memoize(identity);
    }

    #[inline]
    fn tuple(&mut self, identity: Identity, len: usize, items: impl FnOnce(&mut Self)) {
        if self.write_if_in_memo(identity) {
            return;
        }
        if len > 3 {
            self.buffer.put(MARK);
        }
        items(self);
        self.close_tuple(identity, len);
    }

    #[inline]
    fn close_tuple(&mut self, identity: Identity, len: usize) {
        match len {
            1..=3 => self.buffer.put(&[TUPLE1 + (len as u8 - 1)]),
            _ => self.buffer.put(TUPLE),
        }
        self.memoize(identity);
    }

    #[inline]
    fn memoize(&mut self, identity: Identity) {
        self.buffer.put(MEMOIZE);
        self.memo.push(identity);
    }

    /// Writes a reference to the object if it is in the memo. Returns whether it is.
    #[inline]
    fn write_if_in_memo(&mut self, identity: Identity) -> bool {
        if identity == Identity::Unique {
            return false;
        }
        let Some(index) = self.memo.iter().position(|&known| known == identity) else {
            return false;
        };
        let bytes = (index as u32).to_le_bytes();
        match index {
            0..0x100 => self.buffer.put(&[BINGET, bytes[0]]),
            _ => self.buffer.put(&[LONG_BINGET, bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
        true
    }
}

/// Writes a number and returns how many bytes it wrote.
#[inline]
fn integer(number: i64, window: &mut [u8; WINDOW]) -> usize {
    if !(0..1 << 31).contains(&number) {
        return unusual_integer(number, window);
    }
    // No branches: the CPU cannot predict the widths of consecutive tokens.
    let width = usize::from(number > 0xff) + usize::from(number > 0xffff);
    let opcode = [BININT1, BININT2, BININT][width];
    let word = u64::from(opcode) | (number as u64) << 8;
    window[..8].copy_from_slice(&word.to_le_bytes());
    [2, 3, 5][width]
}

#[cold]
fn unusual_integer(number: i64, window: &mut [u8; WINDOW]) -> usize {
    let bytes = number.to_le_bytes();
    if i32::try_from(number).is_ok() {
        window[0] = BININT;
        window[1..5].copy_from_slice(&bytes[..4]);
        return 5;
    }
    let sign_bits = if number < 0 { number.leading_ones() } else { number.leading_zeros() };
    let len = (64 - sign_bits) / 8 + 1;
    window[0] = LONG1;
    window[1] = len as u8;
    window[2..10].copy_from_slice(&bytes);
    2 + len as usize
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    // All expected values come from pickle.dumps(..., protocol=5) of CPython 3.11.

    fn pickled(tokens: &[i64], key: &Key, lookahead: &[i64]) -> Vec<u8> {
        PickleEncoder::default()
            .block(&Block { parent: b"p", tokens, key, repeats_key: false, lookahead })
            .to_vec()
    }

    fn object(number: usize, text: &str) -> Key {
        Key::Text(Identity::Object(number), text.into())
    }

    fn sha256(bytes: &[u8]) -> String {
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn integers_of_every_width() {
        let tokens = [
            0,
            255,
            256,
            65_535,
            65_536,
            (1 << 31) - 1,
            1 << 31,
            1 << 32,
            i64::MAX,
            -1,
            -(1 << 31),
            -(1 << 31) - 1,
            -(1 << 39),
            i64::MIN,
        ];
        let expected = b"\x80\x05\x95Y\x00\x00\x00\x00\x00\x00\x00C\x01p\x94(K\x00K\xffM\x00\x01M\
            \xff\xffJ\x00\x00\x01\x00J\xff\xff\xff\x7f\x8a\x05\x00\x00\x00\x80\x00\x8a\x05\x00\x00\
            \x00\x00\x01\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fJ\xff\xff\xff\xffJ\x00\x00\x00\x80\
            \x8a\x05\xff\xff\xff\x7f\xff\x8a\x05\x00\x00\x00\x00\x80\x8a\x08\x00\x00\x00\x00\x00\
            \x00\x00\x80t\x94N\x87\x94.";
        assert_eq!(pickled(&tokens, &Key::None, &[]), expected);
    }

    #[test]
    fn objects_that_come_again_are_references() {
        let key =
            |name, offset| Key::tuple(vec![object(1, "mm"), object(2, name), Key::Int(offset)]);
        let key = Key::tuple(vec![
            key("name", -3),
            key("name", 8),
            Key::tuple(vec![
                Key::text("x"),
                Key::Bytes(Identity::Unique, (*b"").into()),
                Key::Tuple(Identity::Object(3), vec![]),
            ]),
            Key::tuple(vec![Key::Bytes(Identity::Object(4), (*b"yz").into())]),
        ]);
        let expected =
            b"\x80\x05\x95:\x00\x00\x00\x00\x00\x00\x00C\x01p\x94K\x07\x85\x94(\x8c\x02mm\
            \x94\x8c\x04name\x94J\xfd\xff\xff\xff\x87\x94h\x02h\x03K\x08\x87\x94\x8c\x01x\x94C\x00\
            \x94)\x87\x94C\x02yz\x94\x85\x94t\x94\x87\x94.";
        assert_eq!(pickled(&[7], &key, &[]), expected);
    }

    #[test]
    fn a_memo_beyond_one_byte() {
        let mut items: Vec<Key> = (0..300).map(|i| object(i, &format!("a{i}"))).collect();
        items.extend([items[0].clone(), items[299].clone()]);
        let bytes = pickled(&[7], &Key::tuple(items), &[]);
        let expected = "7c1b146a95b27560aa2a2aeb0ece70473e037fa618433ac2495db5559db74533";
        assert_eq!((bytes.len(), sha256(&bytes).as_str()), (2_022, expected));
    }

    #[test]
    fn lookahead_tokens_follow_the_key() {
        assert_eq!(
            pickled(&[7], &Key::None, &[300]),
            b"\x80\x05\x95\x11\x00\x00\x00\x00\x00\x00\x00C\x01p\x94K\x07\x85\x94NM,\x01\x86\x94\
              \x87\x94."
        );
        assert_eq!(
            pickled(&[7, 8, 9, 10], &Key::None, &[1, 2, 3]),
            b"\x80\x05\x95\x1c\x00\x00\x00\x00\x00\x00\x00C\x01p\x94(K\x07K\x08K\tK\nt\x94(NK\x01K\
              \x02K\x03t\x94\x87\x94."
        );
    }

    #[test]
    fn long_blocks_are_cut_into_frames() {
        let tokens: Vec<i64> = (70_000..110_000).collect();
        let parent = [b'p'; 32];
        let block = Block {
            parent: &parent,
            tokens: &tokens,
            key: &Key::None,
            repeats_key: false,
            lookahead: &[],
        };
        let mut encoder = PickleEncoder::default();
        let bytes = encoder.block(&block);
        let expected = "98b4dba556046d89aad2ed37ca466a6d2e2e3a4a3ee0b76fee6cade144a96769";
        assert_eq!((bytes.len(), sha256(bytes).as_str()), (200_080, expected));
    }

    #[test]
    fn long_strings_stand_outside_of_frames() {
        let long = object(1, &"x".repeat(70_000));
        let pair = Key::Tuple(Identity::Object(2), vec![Key::text("s"), long.clone()]);
        let key = Key::tuple(vec![pair.clone(), pair, long, Key::text(&"y".repeat(65_536))]);
        let bytes = pickled(&[7], &key, &[]);
        let expected = "8e43fbcb11d6ac75491c78f80bb26ed5bea01dc2763f450053bb92af4bba1405";
        assert_eq!((bytes.len(), sha256(&bytes).as_str()), (135_601, expected));
    }

    #[test]
    fn texts_that_start_chains() {
        let mut encoder = PickleEncoder::default();
        assert_eq!(encoder.text(""), b"\x80\x05\x95\x04\0\0\0\0\0\0\0\x8c\0\x94.");
        assert_eq!(encoder.text("seed"), b"\x80\x05\x95\x08\0\0\0\0\0\0\0\x8c\x04seed\x94.");
    }
}
