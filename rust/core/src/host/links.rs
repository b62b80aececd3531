//! Doubly linked orders over small numbers, such as the ids of chunks.

/// No place.
pub(super) const NONE: u32 = u32::MAX;

/// The neighbours of each place. Several orders can share them if a place is in at most one.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Vec<[u32; 2]>);

/// An order of places, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Order {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Order {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl Links {
    /// Takes the list that they are kept in, which is empty.
    pub(super) fn new(room: Vec<[u32; 2]>) -> Self {
        Self(room)
    }

    /// Returns the next place after a place that is in an order.
    pub(super) fn next(&self, place: u32) -> u32 {
        self.0[place as usize][1]
    }

    /// Returns the place before a place that is in an order.
    pub(super) fn before(&self, place: u32) -> u32 {
        self.0[place as usize][0]
    }

    /// Makes room for a place.
    fn reach(&mut self, place: u32) {
        if place as usize >= self.0.len() {
            self.0.resize(place as usize + 1, [NONE; 2]);
        }
    }
}

impl Order {
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts a place that is in no order at the end.
    pub(super) fn push(&mut self, links: &mut Links, place: u32) {
        links.reach(place);
        links.0[place as usize] = [self.last, NONE];
        match self.last {
            NONE => self.first = place,
            last => links.0[last as usize][1] = place,
        }
        self.last = place;
        self.len += 1;
    }

    /// Takes out a place of this order.
    pub(super) fn remove(&mut self, links: &mut Links, place: u32) {
        let [before, behind] = links.0[place as usize];
        match before {
            NONE => self.first = behind,
            before => links.0[before as usize][1] = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => links.0[behind as usize][0] = before,
        }
        self.len -= 1;
    }

    /// Moves a place of this order to the end.
    pub(super) fn move_to_end(&mut self, links: &mut Links, place: u32) {
        if self.last != place {
            self.remove(links, place);
            self.push(links, place);
        }
    }

    /// Returns the places, oldest first.
    pub(super) fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + 'a {
        let some = |place| (place != NONE).then_some(place);
        std::iter::successors(some(self.first), move |&place| some(links.next(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_keeps_what_was_pushed_removed_and_moved() {
        let (mut links, mut order, mut other) =
            (Links::default(), Order::default(), Order::default());
        [3, 0, 2].into_iter().for_each(|place| order.push(&mut links, place));
        other.push(&mut links, 1);
        order.move_to_end(&mut links, 3);
        assert_eq!(order.iter(&links).collect::<Vec<_>>(), [0, 2, 3]);
        order.remove(&mut links, 2);
        order.move_to_end(&mut links, 3);
        assert_eq!((order.iter(&links).collect::<Vec<_>>(), order.len()), (vec![0, 3], 2));
        assert_eq!(other.iter(&links).collect::<Vec<_>>(), [1]);
        order.remove(&mut links, 0);
        order.remove(&mut links, 3);
        assert_eq!((order.first(), order.len()), (NONE, 0));
    }
}
