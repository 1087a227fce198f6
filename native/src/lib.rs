//! The native kernel of Laurels.
//!
//! `tree` is the ordered set with counts, `index` what its entries mean, `players` the interned ids; `packed` has columns
//! as bytes, `answers` what a batch did, `changes` the order in which it is written behind. `python` is the boundary, `ids` the submission ids, `segment` the log; these need
//! the interpreter, so that the rest can be tested without one.

pub mod answers;
pub mod changes;
pub mod index;
pub mod packed;
pub mod players;
mod prefetch;
pub mod tree;

#[cfg(feature = "python")]
mod columns;
#[cfg(feature = "python")]
mod ids;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod segment;
