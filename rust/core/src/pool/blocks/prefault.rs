//! Prefaults memory. The system maps a page at its first write, which takes a millisecond for 1,000
//! pages. So it is done before the first request.

use std::thread;

use bytemuck::Zeroable;

/// Longer lists are not prefaulted, because they take gigabytes.
const MAX_LEN: usize = 1 << 24;
const PAGE: usize = 4096;
/// Below this size, in bytes, one thread finishes before other threads start.
const MIN_SHARED: usize = 8 << 20;
const MAX_THREADS: usize = 4;

/// The limit for lists that are first written in order, a few pages in each step. Longer ones are
/// not prefaulted.
const MAX_LEN_IN_ORDER: usize = 1 << 21;

/// Returns zeros that a fresh pool writes in the order of its blocks. Short lists are prefaulted.
pub(crate) fn zeros_in_order<T: Zeroable + Copy + Send + Sync>(len: usize) -> Vec<T> {
    if len > MAX_LEN_IN_ORDER { bytemuck::zeroed_vec(len) } else { zeros(len) }
}

/// Returns prefaulted zeros.
pub(crate) fn zeros<T: Zeroable + Copy + Send + Sync>(len: usize) -> Vec<T> {
    let mut zeros = bytemuck::zeroed_vec(len);
    if len <= MAX_LEN {
        touch(&mut zeros);
    }
    zeros
}

/// Writes to each page, because the system clears a page at its first write. Many pages are divided
/// among threads.
fn touch<T: Zeroable + Send + Sync>(items: &mut [T]) {
    let num_threads = match size_of_val(items) {
        ..MIN_SHARED => 1,
        _ => thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS),
    };
    let len = items.len().div_ceil(num_threads).max(1);
    thread::scope(|scope| {
        let mut parts = items.chunks_mut(len);
        let own = parts.next();
        for part in parts {
            // If no thread can be started, the system maps the pages when they are used.
            let _ = thread::Builder::new().spawn_scoped(scope, move || write_to_pages(part));
        }
        own.into_iter().for_each(|part| write_to_pages(part));
    });
}

fn write_to_pages<T: Zeroable>(items: &mut [T]) {
    let per_page = (PAGE / size_of::<T>().max(1)).max(1);
    for item in items.iter_mut().step_by(per_page) {
        *std::hint::black_box(item) = T::zeroed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_any_size_are_zeros() {
        for len in [0, 1, 5_000, MAX_LEN_IN_ORDER + 1, MIN_SHARED, MAX_LEN + 1] {
            for zeros in [zeros::<u16>(len), zeros_in_order(len)] {
                assert_eq!((zeros.len(), zeros.iter().any(|&zero| zero != 0)), (len, false));
            }
        }
    }

    #[test]
    fn each_page_is_written_to() {
        let mut items = vec![7_u64; 3 * MIN_SHARED / size_of::<u64>()];
        touch(&mut items);
        let per_page = PAGE / size_of::<u64>();
        assert!(items.chunks(per_page).all(|page| page.contains(&0)));
    }
}
