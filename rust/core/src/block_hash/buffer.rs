//! A growing byte buffer for encoders.

/// Bytes that [`Buffer::put_each`] lends for one number.
pub const WINDOW: usize = 16;

/// Room for most blocks.
const MIN_CAPACITY: usize = 1_024;

/// Bytes with room behind them, so that numbers of different widths are written without a branch
/// for each width.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// What was put.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// How much was put.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Forgets what was put.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes `len` bytes at `at` out.
    pub fn remove(&mut self, at: usize, len: usize) {
        self.bytes.copy_within(at + len..self.len, at);
        self.len -= len;
    }

    /// Appends bytes.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Writes over what was put at `at`.
    pub fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Appends each number as `write` writes it to the start of a window; `write` returns how many
    /// bytes the number takes.
    #[inline]
    pub fn put_each(&mut self, numbers: &[i64], write: impl Fn(i64, &mut [u8; WINDOW]) -> usize) {
        self.reserve(numbers.len() * WINDOW);
        let mut at = self.len;
        for &number in numbers {
            let Some(window) = self.bytes[at..].first_chunk_mut() else { break };
            at += write(number, window);
        }
        self.len = at;
    }

    #[inline]
    fn reserve(&mut self, more: usize) {
        if self.bytes.len() - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        self.bytes.resize((self.len + more).max(2 * self.bytes.len()).max(MIN_CAPACITY), 0);
    }
}
