//! The proof that a tree is what it says.

use super::{GROUP_MAX, Ids, Key, Separators, Spot, Tree};
use std::cmp::Ordering;

impl<const W: usize> Separators<W> {
    fn agree(&self) -> bool {
        self.firsts.iter().eq(self.whole.iter().map(|(key, _)| &key[0]))
    }
}

impl<const W: usize> Tree<W> {
    /// Prove every invariant, or say which one does not hold.
    pub fn check(&self, ids: Ids) -> Result<(), String> {
        let fail = |what: &str| Err(what.to_owned());
        if self.root.len() != self.root_separators.whole.len() || self.root.len() != self.groups.len() {
            return fail("root, separators and groups differ in number");
        }
        let mut total = 0;
        let mut starts = 0;
        let mut previous: Option<(Key<W>, u32)> = None;
        let mut seen = vec![false; ids.players.len()];
        let mut leaves = 0;
        for (order, &number) in self.root.iter().enumerate() {
            let group = &self.groups[number as usize];
            if group.order as usize != order {
                return fail("a group's order is wrong");
            }
            let size = group.leaves.len();
            if size == 0 || size > GROUP_MAX {
                return fail("a group's size is out of bounds");
            }
            if [group.counts.len(), group.starts.len(), group.separators.whole.len()] != [size; 3] {
                return fail("a group's columns differ in length");
            }
            if !group.separators.agree() || !self.root_separators.agree() {
                return fail("the first words of separators are wrong");
            }
            if self.counts.prefix(order) as usize != total {
                return fail("a Fenwick sum of counts is wrong");
            }
            if self.start_words.is_some() && self.starts.prefix(order) != starts {
                return fail("a Fenwick sum of starts is wrong");
            }
            for slot in 0..size {
                let leaf_number = group.leaves[slot];
                let (leaf, block) = self.leaf(leaf_number);
                leaves += 1;
                if leaf.group != number || leaf.slot as usize != slot {
                    return fail("a leaf's group or slot is wrong");
                }
                if leaf.len() != group.counts[slot] as usize {
                    return fail("a leaf's count is wrong");
                }
                leaf.check(block)?;
                if leaf.len() == 0 && (self.root.len() > 1 || size > 1) {
                    return fail("a leaf is empty");
                }
                let first = order == 0 && slot == 0;
                let separator = group.separators.whole[slot];
                if slot == 0 && !first && self.root_separators.whole[order].0 != separator.0 {
                    return fail("a root separator differs from its group's");
                }
                for at in 0..leaf.len() {
                    let entry = (leaf.key(block, at), leaf.player(block, at));
                    if let Some(before) = previous
                        && ids.entries((&before.0, before.1), (&entry.0, entry.1)) != Ordering::Less
                    {
                        return fail("entries do not ascend");
                    }
                    if !first {
                        let bound = ids.entries((&separator.0, separator.1), (&entry.0, entry.1));
                        if bound == Ordering::Greater {
                            return fail("an entry stands below its leaf's separator");
                        }
                        if at == 0
                            && let Some(before) = previous
                            && ids.entries((&before.0, before.1), (&separator.0, separator.1)) != Ordering::Less
                        {
                            return fail("an entry stands above the next leaf's separator");
                        }
                    }
                    if std::mem::replace(&mut seen[entry.1 as usize], true) {
                        return fail("a player occurs twice");
                    }
                    if self.find(entry.1) != Some(Spot { leaf: leaf_number, at }) {
                        return fail("a player's home is wrong");
                    }
                    previous = Some(entry);
                }
                if self.start_words.is_some() {
                    let right = self.starts_of(leaf_number);
                    if group.starts[slot] != right {
                        return fail("a leaf's starts are wrong");
                    }
                    starts += u64::from(right);
                }
                total += leaf.len();
            }
        }
        if total != self.len {
            return fail("the number of entries is wrong");
        }
        if leaves + self.free_leaves.len() != self.heads.len() || self.heads.len() != self.blocks.len() {
            return fail("a leaf is lost");
        }
        if self.homes.count().is_some_and(|count| count != self.len) {
            return fail("a player without an entry has a home");
        }
        Ok(())
    }
}
