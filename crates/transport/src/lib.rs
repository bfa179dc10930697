//! Frames, calls, connections and listeners.
