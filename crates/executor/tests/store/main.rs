//! The store with real files, real threads and processes that are killed.

mod as_root;
mod backup;
mod clock;
mod given;
mod journal;
mod killed;
mod late;
mod left;
mod model;
mod outbox;
mod pruned;
mod reads;
mod throughput;
mod versions;
mod way;
