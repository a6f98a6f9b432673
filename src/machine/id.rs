use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Declares an id that is a text of the caller's choice.
macro_rules! text_id {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id with this text.
            #[must_use]
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Its text.
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
    /// Names one run of an agent, so that inputs of an earlier run are told apart. A clone is a pointer.
    ///
    /// It is chosen by whoever makes the [`Machine`](super::Machine) and has to be new for each run.
    RunId
}

text_id! {
    /// Names one tool call within a run. A clone is a pointer.
    ///
    /// It is the id that the model or the CLI agent gave the call. Where there is none the driver makes one, a UUID for
    /// example; a number counted from the start of a process names another call after a restart.
    CallId
}
