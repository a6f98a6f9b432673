//! Event source over server-sent events (`text/event-stream`).

mod backfill;
mod builder;
mod catch_up;
mod connect;
mod connection;
mod feed;
mod follow;
mod health;
mod pending_events;
mod recent;
mod settings;
mod size;
mod source;
mod token;

pub use backfill::Backfill;
pub use builder::{SseError, SseSourceBuilder};
pub use health::SseHealth;
pub(crate) use size::event_size;
pub use source::SseSource;
pub(crate) use token::Agent;
pub use token::{BearerToken, TokenError};
