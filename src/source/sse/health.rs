/// State and counters of an event source over server-sent events.
///
/// [`SseSource::health`](super::SseSource::health) returns it. Report the fields as metrics, and
/// alert on `is_deaf`. The counters grow
/// until the source is dropped or its tokio runtime ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SseHealth {
    /// If `true`, the source is connected and has read the events that it missed before the connection.
    pub is_connected: bool,
    /// Number of connections to the event stream that the source opened.
    pub connections: u64,
    /// Number of events that the event source sent to its subscribers. An event for several subscribers counts once.
    pub told: u64,
    /// Number of events that the stream omitted while it was connected, and that the source sent late.
    pub missed: u64,
    /// Number of unusable items from the event stream: frames without a valid event, and events whose tags and schema
    /// name are too large.
    pub unreadable: u64,
    /// If `true`, the event stream is connected but repeatedly omits events. Backfill queries deliver these events
    /// late, and the server needs a restart.
    pub is_deaf: bool,
}
