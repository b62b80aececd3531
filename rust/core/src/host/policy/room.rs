//! Memory that is reserved before it is needed.

/// Returns an empty list that needs not move to grow, where there is memory for it.
pub(super) fn room_for<T>(capacity: usize) -> Vec<T> {
    let mut list = Vec::new();
    // What nobody touches takes no memory; where even that is refused, the list grows as any.
    _ = list.try_reserve_exact(capacity);
    list
}
