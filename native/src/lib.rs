//! The native kernel of Laurels.
//!
//! `tree` is the ordered set with counts, `index` what its entries mean, `pending` which of them the store has not written,
//! `changes` the order in which it writes them, `players` the interned ids, `memory` what they lie in, `vector` how they
//! are searched; `packed` has columns as bytes, `answers` what a batch did. `python` is the boundary, `ids` the submission
//! ids, `segment` the log; these need the interpreter, so that the rest can be tested without one.

pub mod answers;
pub mod changes;
pub mod index;
mod memory;
pub mod packed;
mod pending;
pub mod players;
pub mod tree;
mod vector;

#[cfg(feature = "python")]
mod columns;
#[cfg(feature = "python")]
mod ids;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod segment;
