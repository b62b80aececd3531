//! Encodes blocks as canonical CBOR (RFC 8949, section 4.2).

use super::buffer::{Buffer, WINDOW};
use super::key::Key;
use super::{Block, Encoder};

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const NULL: u8 = 0xf6;

/// An encoder of canonical CBOR.
#[derive(Default)]
pub(super) struct CborEncoder {
    buffer: Buffer,
}

impl Encoder for CborEncoder {
    fn block(&mut self, block: &Block<'_>) -> &[u8] {
        self.buffer.clear();
        self.header(ARRAY, 3);
        self.byte_string(block.parent);
        self.header(ARRAY, block.tokens.len() as u64);
        self.buffer.put_each(block.tokens, integer);
        if !block.lookahead.is_empty() {
            self.header(ARRAY, 1 + block.lookahead.len() as u64);
        }
        self.key(block.key);
        self.buffer.put_each(block.lookahead, integer);
        self.buffer.bytes()
    }

    fn text(&mut self, text: &str) -> &[u8] {
        self.buffer.clear();
        self.put_text(text);
        self.buffer.bytes()
    }
}

impl CborEncoder {
    fn key(&mut self, key: &Key) {
        match key {
            Key::None => self.buffer.put(&[NULL]),
            Key::Int(number) => self.buffer.put_each(&[*number], integer),
            Key::Bytes(_, bytes) => self.byte_string(bytes),
            Key::Text(_, text) => self.put_text(text),
            Key::Tuple(_, items) => {
                self.header(ARRAY, items.len() as u64);
                items.iter().for_each(|item| self.key(item));
            }
        }
    }

    fn byte_string(&mut self, bytes: &[u8]) {
        self.header(BYTES, bytes.len() as u64);
        self.buffer.put(bytes);
    }

    fn put_text(&mut self, text: &str) {
        self.header(TEXT, text.len() as u64);
        self.buffer.put(text.as_bytes());
    }

    fn header(&mut self, major: u8, argument: u64) {
        let mut window = [0; WINDOW];
        let len = header(major, argument, &mut window);
        self.buffer.put(&window[..len]);
    }
}

/// Writes a number and returns how many bytes it wrote.
#[inline]
fn integer(number: i64, window: &mut [u8; WINDOW]) -> usize {
    match u64::try_from(number) {
        Ok(number) => header(UNSIGNED, number, window),
        Err(_) => header(NEGATIVE, !number as u64, window),
    }
}

/// Writes a major type with its argument in as few bytes as possible. Returns the number of bytes.
#[inline]
fn header(major: u8, argument: u64, window: &mut [u8; WINDOW]) -> usize {
    if argument > u64::from(u32::MAX) {
        window[0] = major << 5 | 27;
        window[1..9].copy_from_slice(&argument.to_be_bytes());
        return 9;
    }
    // No branches: the CPU cannot predict the widths of consecutive tokens.
    let wider_than = |limit: u64| usize::from(argument > limit);
    let len = 1 + wider_than(23) + wider_than(0xff) + 2 * wider_than(0xffff);
    let additional = [0, 0, 24, 25, 0, 26][len];
    let word = u64::from(major << 5 | additional) << 56 | argument << (64 - 8 * len);
    window[..8].copy_from_slice(&word.to_be_bytes());
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_the_fewest_bytes() {
        for (value, expected) in [
            (0, &[0x00][..]),
            (23, &[0x17]),
            (24, &[0x18, 24]),
            (255, &[0x18, 255]),
            (256, &[0x19, 1, 0]),
            (65_535, &[0x19, 255, 255]),
            (65_536, &[0x1a, 0, 1, 0, 0]),
            ((1 << 32) - 1, &[0x1a, 255, 255, 255, 255]),
            (1 << 32, &[0x1b, 0, 0, 0, 1, 0, 0, 0, 0]),
            (i64::MAX, &[0x1b, 0x7f, 255, 255, 255, 255, 255, 255, 255]),
            (-1, &[0x20]),
            (-500, &[0x39, 1, 0xf3]),
            (i64::MIN, &[0x3b, 0x7f, 255, 255, 255, 255, 255, 255, 255]),
        ] {
            let mut window = [0; WINDOW];
            let len = integer(value, &mut window);
            assert_eq!(&window[..len], expected, "{value}");
        }
    }

    #[test]
    fn keys_are_nested_arrays() {
        let key = Key::tuple(vec![
            Key::None,
            Key::Int(-2),
            Key::text("ä"),
            Key::Bytes(super::super::Identity::Unique, (*b"xy").into()),
        ]);
        let block =
            Block { parent: b"p", tokens: &[7], key: &key, repeats_key: false, lookahead: &[300] };
        let expected = b"\x83\x41p\x81\x07\x82\x84\xf6\x21\x62\xc3\xa4\x42xy\x19\x01\x2c";
        assert_eq!(CborEncoder::default().block(&block), expected);
    }
}
