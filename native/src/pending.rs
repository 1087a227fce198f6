//! Which entries changed since the store last wrote them.

use crate::memory::{filled, prefetch};

/// By player a number that says how the entry changed. Open addressing over slots of 16 bytes with linear probing, so that
/// an insertion is one cache miss, which can be asked for beforehand.
#[derive(Default)]
pub struct Pending {
    /// A power of two of them; at most three quarters are in use.
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    change: i64,
    player: u32,
}

const NOBODY: u32 = u32::MAX;
const EMPTY: Slot = Slot { change: 0, player: NOBODY };
const SLOTS_MIN: usize = 8;

impl Pending {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, i64)> {
        self.slots.iter().filter(|slot| slot.player != NOBODY).map(|slot| (slot.player, slot.change))
    }

    pub fn get(&self, player: u32) -> Option<i64> {
        let slot = self.slots.get(self.find(player)?)?;
        (slot.player == player).then_some(slot.change)
    }

    /// Have at hand what inserting or removing reads.
    #[inline]
    pub fn prefetch(&self, player: u32) {
        if let Some(slot) = self.slots.get(self.home(player)) {
            prefetch(slot);
        }
    }

    pub fn insert(&mut self, player: u32, change: i64) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let at = self.find(player).expect("there is room");
        self.len += usize::from(self.slots[at].player == NOBODY);
        self.slots[at] = Slot { change, player };
    }

    pub fn remove(&mut self, player: u32) {
        let Some(mut gap) = self.find(player).filter(|&at| self.slots[at].player == player) else { return };
        self.len -= 1;
        if self.len == 0 {
            *self = Self::default();
            return;
        }
        // Those that follow without a gap move up, unless that would take them before their home.
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.player == NOBODY {
                break;
            }
            let from_home = at.wrapping_sub(self.home(slot.player)) & mask;
            if from_home >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = EMPTY;
    }

    /// Spreads player numbers, which count up from zero.
    #[inline]
    fn home(&self, player: u32) -> usize {
        let product = u64::from(player).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(product) * self.slots.len() as u128) >> 64) as usize
    }

    /// The slot of a player, or the empty one where it would go.
    #[inline]
    fn find(&self, player: u32) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = self.home(player);
        while self.slots[at].player != player && self.slots[at].player != NOBODY {
            at = (at + 1) & mask;
        }
        Some(at)
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let known = std::mem::replace(&mut self.slots, filled(EMPTY, slots));
        for slot in known.into_iter().filter(|slot| slot.player != NOBODY) {
            let at = self.find(slot.player).expect("there is room");
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn changes_are_those_of_a_plain_map() {
        let mut pending = Pending::default();
        let mut model = HashMap::new();
        let mut random = 1u64;
        let steps = if cfg!(miri) { 1_000 } else { 200_000i64 };
        for step in 0..steps {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let player = (random >> 33) as u32 % if step / (steps / 10) % 2 == 0 { 5_000 } else { 50 };
            if random >> 63 == 0 {
                pending.insert(player, step);
                model.insert(player, step);
            } else {
                pending.remove(player);
                model.remove(&player);
            }
            assert_eq!((pending.get(player), pending.len()), (model.get(&player).copied(), model.len()));
        }
        assert_eq!(pending.iter().collect::<HashMap<_, _>>(), model);
        model.keys().for_each(|&player| pending.remove(player));
        assert_eq!((pending.len(), pending.memory_bytes()), (0, 0));
    }
}
