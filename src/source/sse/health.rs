/// State and counters of an event stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SseHealth {
    /// If `true`, the source has a connection and has read the events from before it.
    pub is_connected: bool,
    /// Number of connections that were opened.
    pub connections: u64,
    /// Number of events that the source sent to its subscribers.
    pub told: u64,
    /// Number of these events that a living stream had omitted.
    pub missed: u64,
    /// Number of frames that are not an event, or whose event has too large tags to be delivered.
    pub unreadable: u64,
    /// If `true`, the stream is alive and repeatedly omits events. They arrive late, and the server needs a restart.
    pub is_deaf: bool,
}
