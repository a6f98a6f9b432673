//! Events from a server that sends them (`text/event-stream`).

mod builder;
mod catch_up;
mod connect;
mod feed;
mod follow;
mod missed;
mod recent;
mod settings;
mod source;
mod token;

pub use builder::{SseError, SseSourceBuilder};
pub use missed::Missed;
pub use source::{SseHealth, SseSource};
pub(crate) use token::Agent;
pub use token::{BearerToken, TokenError};
