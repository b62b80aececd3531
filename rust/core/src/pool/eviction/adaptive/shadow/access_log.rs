//! Accesses to sampled blocks that the shadow caches have not seen yet. They get many of them at once,
//! so that the waits for memory overlap.

use super::table::ShadowKey;
use super::{ShadowCaches, Use};

/// Accesses of the same kind, in order.
#[derive(Debug)]
pub(in super::super) struct AccessLog {
    access: Access,
    /// The blocks, with room for [`Self::CAPACITY`].
    keys: Box<[ShadowKey]>,
    len: usize,
}

/// An access to a sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Access {
    /// The block is used: hit, or computed.
    Used(Use),
    /// The block becomes free, in a class.
    Freed(u8),
}

impl AccessLog {
    const CAPACITY: usize = 512;

    pub(crate) fn new() -> Self {
        let keys = vec![ShadowKey::NONE; Self::CAPACITY].into_boxed_slice();
        Self { access: Access::Used(Use::Hit), keys, len: 0 }
    }

    /// Logs an access.
    #[inline(never)]
    pub(crate) fn record(&mut self, shadow: &mut ShadowCaches, access: Access, key: ShadowKey) {
        self.begin(shadow, access);
        self.push(shadow, key);
    }

    /// Sets the access of the keys that follow.
    #[inline]
    pub(crate) fn begin(&mut self, shadow: &mut ShadowCaches, access: Access) {
        if self.access != access {
            self.flush(shadow);
            self.access = access;
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, shadow: &mut ShadowCaches, key: ShadowKey) {
        if self.len == Self::CAPACITY {
            self.flush_all(shadow);
        }
        self.keys[self.len] = key;
        self.len += 1;
    }

    /// Logs an access to each block. Returns how many.
    #[inline]
    pub(crate) fn push_each(
        &mut self,
        shadow: &mut ShadowCaches,
        mut keys: impl Iterator<Item = ShadowKey>,
    ) -> usize {
        let mut num_pushed = 0;
        loop {
            let room = self.keys[self.len..].iter_mut();
            let num = room.zip(keys.by_ref()).map(|(place, key)| *place = key).count();
            num_pushed += num;
            self.len += num;
            if self.len < Self::CAPACITY {
                return num_pushed;
            }
            self.flush_all(shadow);
        }
    }

    /// Shows the shadow caches all accesses.
    #[inline]
    pub(crate) fn flush(&mut self, shadow: &mut ShadowCaches) {
        if self.len > 0 {
            self.flush_all(shadow);
        }
    }

    #[inline(never)]
    fn flush_all(&mut self, shadow: &mut ShadowCaches) {
        let keys = &self.keys[..self.len];
        match self.access {
            Access::Used(how) => shadow.used(keys, how),
            Access::Freed(class) => shadow.freed(keys, usize::from(class)),
        }
        self.len = 0;
    }
}
