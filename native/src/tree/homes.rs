//! In which leaf each player's entry is.

use super::NONE;
use crate::memory::{filled, make_room, prefetch};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Homes become an array when one in so many of the game's players is on the board, and a map again when the array would
/// have to grow for fewer than one in so many. Far apart, so that a board does not go to and fro.
const DENSE_SHARE: usize = 4;
const DENSE_SHARE_LEAST: usize = 16;

/// Nothing while there is one leaf, a small hash map while the board has few of the game's players, an array by player
/// number when it has a good share of them.
pub enum Homes {
    OneLeaf,
    Sparse(HashMap<u32, u32, BuildHasherDefault<NumberHasher>>),
    Dense(Vec<u32>),
}

/// Spreads player numbers, which count up from zero.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("player numbers are u32")
    }
    fn write_u32(&mut self, number: u32) {
        let product = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

impl Homes {
    /// Empty homes for so many entries in a game of so many players.
    pub fn new(entries: usize, players: usize) -> Self {
        if entries * DENSE_SHARE >= players {
            Self::Dense(filled(NONE, players))
        } else {
            Self::Sparse(HashMap::with_capacity_and_hasher(entries, Default::default()))
        }
    }

    /// Whether they are to be kept anew, now that there are so many entries.
    pub fn are_outgrown(&self, entries: usize, players: usize) -> bool {
        match self {
            Self::OneLeaf => true,
            Self::Sparse(_) => entries * DENSE_SHARE >= players,
            Self::Dense(_) => false,
        }
    }

    /// A player's leaf; the first, while there is one.
    #[inline(always)]
    pub fn get(&self, player: u32) -> Option<u32> {
        match self {
            Self::OneLeaf => Some(0),
            Self::Sparse(map) => map.get(&player).copied(),
            Self::Dense(homes) => homes.get(player as usize).copied().filter(|&leaf| leaf != NONE),
        }
    }

    pub fn set(&mut self, player: u32, leaf: u32, entries: usize) {
        match self {
            Self::OneLeaf => {}
            Self::Sparse(map) => {
                map.insert(player, leaf);
            }
            Self::Dense(homes) => {
                let players = player as usize + 1;
                if players > homes.len() {
                    if entries * DENSE_SHARE_LEAST < players {
                        // The game has outgrown the board.
                        let known = (0u32..).zip(homes.iter().copied()).filter(|&(_, leaf)| leaf != NONE);
                        *self = Self::Sparse(known.chain([(player, leaf)]).collect());
                        return;
                    }
                    make_room(homes, players - homes.len());
                    homes.resize(players, NONE);
                }
                homes[player as usize] = leaf;
            }
        }
    }

    pub fn remove(&mut self, player: u32) {
        match self {
            Self::OneLeaf => {}
            Self::Sparse(map) => {
                map.remove(&player);
            }
            Self::Dense(homes) => homes[player as usize] = NONE,
        }
    }

    /// Ask for a player's leaf, as far as an array tells.
    pub fn prefetch(&self, player: u32) {
        if let Self::Dense(homes) = self
            && let Some(home) = homes.get(player as usize)
        {
            prefetch(home);
        }
    }

    /// How many players have a home; None while nothing is written down.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::OneLeaf => None,
            Self::Sparse(map) => Some(map.len()),
            Self::Dense(homes) => Some(homes.iter().filter(|&&leaf| leaf != NONE).count()),
        }
    }

    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::OneLeaf => 0,
            Self::Sparse(map) => map.capacity() * 9,
            Self::Dense(homes) => homes.capacity() * 4,
        }
    }
}
