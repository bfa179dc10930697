//! The role of an end, which its preface announces.

/// What an end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It starts calls; an incoming call is a protocol violation.
    Caller,
    /// It answers calls.
    Server,
    /// It sends and takes messages.
    Messenger,
}
