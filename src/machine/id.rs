use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Declares an ID type around a string that the caller chooses.
macro_rules! text_id {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Creates an ID from a string.
            #[must_use]
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the ID as a string.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// The ID of one agent run, by which the run's state machine detects and ignores inputs that belong to another run. Cloning
    /// is cheap.
    ///
    /// The creator of the [`Machine`](super::Machine) chooses the ID, which must be unique for each run.
    ///
    /// Use a string that is the same after a restart, such as the idempotency key of a run.
    RunId
}

text_id! {
    /// The ID of one tool call, unique within a run. Cloning is cheap.
    ///
    /// The model or the CLI agent assigns the ID. If it assigns none, the driver must generate a unique ID, for example a UUID. A
    /// counter that starts with the process is not enough, because it would repeat IDs after a restart.
    ///
    /// An ID with a control character is refused as `invalid_call_id`.
    CallId
}
