//! Memory that is reserved before it is needed.

/// Returns an empty list that needs not move to grow, where there is memory for it.
pub(super) fn reserved_list<T>(capacity: usize) -> Vec<T> {
    let mut list = Vec::new();
    // Untouched memory costs nothing. If the reservation is refused, the list grows as usual.
    _ = list.try_reserve_exact(capacity);
    list
}
