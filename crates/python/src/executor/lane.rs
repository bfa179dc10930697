//! How Python names the lanes.

use forebay_executor::request::Lane;

/// The word for a lane.
pub fn lane_of(lane: Lane) -> &'static str {
    match lane {
        Lane::Short => "short",
        Lane::Long => "long",
        Lane::Async => "async",
    }
}
