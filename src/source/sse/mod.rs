//! Events from a server that sends them (`text/event-stream`).

mod builder;
mod catch_up;
mod connect;
mod feed;
mod follow;
mod line;
mod missed;
mod recent;
mod settings;
mod size;
mod source;
mod token;
mod waiting;

pub use builder::{SseError, SseSourceBuilder};
pub use missed::Missed;
pub(crate) use size::event_size;
pub use source::{SseHealth, SseSource};
pub(crate) use token::Agent;
pub use token::{BearerToken, TokenError};
