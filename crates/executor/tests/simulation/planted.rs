//! Faults that the simulation has to find.

/// A fault that is put between the machine and the world: the simulation has to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    Nothing,
    /// A death is not told to the machine, one in ten.
    DeathLost,
    /// A run is sent to a second worker, one in fifty.
    SentTwice,
    /// An end is told when it is given to the store.
    ToldEarly,
    /// The journal is not written.
    NoJournal,
    /// A worker's place is used again before its death is known.
    PlaceReused,
}
