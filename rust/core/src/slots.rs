//! The memory of a large hash table: zeroed, present before its first use, and in huge pages where
//! the system has them.
//!
//! A table is written at random places, so with ordinary lazily mapped memory the first requests
//! would pay for thousands of page faults each. Mapping it up front takes about 0.3 ms per MB.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// A fixed number of 64-bit slots, zero at first.
#[derive(Debug)]
pub enum Slots {
    /// Small tables, and systems without such a mapping.
    Heap(Vec<u64>),
    /// Large tables.
    Mapped(MmapMut),
}

impl Slots {
    /// Below this size, in bytes, page faults are too few to matter.
    const MIN_MAPPED: usize = 1 << 20;

    /// `len` slots.
    pub fn zeroed(len: usize) -> Self {
        let size = len * size_of::<u64>();
        let mapped = (size >= Self::MIN_MAPPED).then(|| MmapMut::map_anon(size)?.made_present());
        match mapped {
            Some(Ok(map)) => Self::Mapped(map),
            Some(Err(_)) | None => Self::Heap(vec![0; len]),
        }
    }
}

trait MadePresent: Sized {
    fn made_present(self) -> std::io::Result<Self>;
}

impl MadePresent for MmapMut {
    #[cfg(target_os = "linux")]
    fn made_present(self) -> std::io::Result<Self> {
        // Both are wishes: an old kernel that refuses them maps the pages when they are used.
        let _ = self.advise(memmap2::Advice::HugePage);
        let _ = self.advise(memmap2::Advice::PopulateWrite);
        Ok(self)
    }

    #[cfg(not(target_os = "linux"))]
    fn made_present(self) -> std::io::Result<Self> {
        Ok(self)
    }
}

impl Deref for Slots {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match self {
            Self::Heap(slots) => slots,
            Self::Mapped(map) => bytemuck::cast_slice(map),
        }
    }
}

impl DerefMut for Slots {
    fn deref_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Heap(slots) => slots,
            Self::Mapped(map) => bytemuck::cast_slice_mut(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_tables_are_zero_and_writable() {
        for len in [0, 3, 1 << 18] {
            let mut slots = Slots::zeroed(len);
            assert_eq!(matches!(slots, Slots::Mapped(_)), len == 1 << 18);
            assert_eq!(slots.len(), len);
            assert!(slots.iter().all(|&slot| slot == 0));
            if let Some(last) = slots.last_mut() {
                *last = 7;
                assert_eq!(slots.last(), Some(&7));
            }
        }
    }
}
