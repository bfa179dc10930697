//! All the unsafe code of the pool: the shared page, the fork, what a child does before exec.
#![allow(unsafe_code)]

mod collapse;
mod descriptors;
mod exec;
mod fork;
mod group;
mod page;
mod reap;

pub use collapse::collapse_heap;
pub use descriptors::{close_inherited, descriptors_max, raise_open_files};
pub use exec::{Program, spawn};
pub use fork::{Forked, Hooks, fork_sibling};
pub use group::kill_group;
pub use page::{Cell, Page};
pub use reap::reap;
