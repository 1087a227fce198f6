//! The native kernel of Laurels.
//!
//! `tree` is the ordered set with counts, `index` what its entries mean, `pending` which of them the store has not written,
//! `players` the interned ids, `memory` what they lie in, `vector` how they are searched. `python` is the boundary, `ids`
//! the submission ids; both need the interpreter, so that the rest can be tested without one.

pub mod index;
mod memory;
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
