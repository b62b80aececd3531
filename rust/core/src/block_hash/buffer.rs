//! A growing byte buffer for encoders.

/// The space for one number in [`Buffer::put_each`], in bytes.
pub(super) const WINDOW: usize = 16;

/// The smallest capacity, in bytes. Most blocks fit into it.
const MIN_CAPACITY: usize = 1_024;

/// A byte buffer with spare bytes at its end. They allow to write numbers of different widths
/// without a branch for each width.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// Returns the bytes written so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the number of bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Empties the buffer.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Removes `len` bytes that start at `at`.
    pub(super) fn remove(&mut self, at: usize, len: usize) {
        self.bytes.copy_within(at + len..self.len, at);
        self.len -= len;
    }

    /// Appends bytes.
    #[inline(always)]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Overwrites the bytes at `at`.
    pub(super) fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Appends each number. `write` writes a number to the start of a window and returns how many
    /// bytes it wrote.
    #[inline]
    pub(super) fn put_each(
        &mut self,
        numbers: &[i64],
        write: impl Fn(i64, &mut [u8; WINDOW]) -> usize,
    ) {
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
