//! The memory of a large hash table. It is zeroed and prefaulted, and in huge pages if the system
//! has them.
//!
//! A table is written at random places. With lazily mapped memory, each of the first requests would
//! cause thousands of page faults. Prefaulting takes about 0.3 ms per MB.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use super::line::Line;

/// A fixed number of lines.
#[derive(Debug)]
pub(super) enum Lines {
    /// The memory of small tables, and of systems without such a mapping.
    Heap(Vec<Line>),
    /// The memory of large tables.
    Mapped(MmapMut),
}

impl Lines {
    /// Below this size, in bytes, page faults are too few to matter.
    const MIN_MAPPED: usize = 1 << 20;

    /// Creates empty lines.
    pub(super) fn zeroed(len: usize) -> Self {
        let size = len * size_of::<Line>();
        match (size >= Self::MIN_MAPPED).then(|| MmapMut::map_anon(size)) {
            Some(Ok(map)) => {
                // If the system refuses the advice, it maps the pages when they are used.
                #[cfg(target_os = "linux")]
                for advice in [memmap2::Advice::HugePage, memmap2::Advice::PopulateWrite] {
                    let _ = map.advise(advice);
                }
                Self::Mapped(map)
            }
            Some(Err(_)) | None => Self::Heap(vec![Line::default(); len]),
        }
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        match self {
            Self::Heap(lines) => lines,
            Self::Mapped(map) => bytemuck::cast_slice(map),
        }
    }
}

impl DerefMut for Lines {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Line] {
        match self {
            Self::Heap(lines) => lines,
            Self::Mapped(map) => bytemuck::cast_slice_mut(map),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_tables_are_empty_and_writable() {
        for len in [0, 3, 1 << 15] {
            let mut lines = Lines::zeroed(len);
            assert_eq!(matches!(lines, Lines::Mapped(_)), len == 1 << 15);
            assert_eq!(lines.len(), len);
            assert!(lines.iter().all(|line| *line == Line::default()));
            if let Some(last) = lines.last_mut() {
                last.entries[7] = 7;
                assert_eq!(lines.last().map(|line| line.entries[7]), Some(7));
            }
        }
    }
}
