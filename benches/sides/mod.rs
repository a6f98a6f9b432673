//! Sides of the bench `stores`, and its files.

pub(crate) mod answering;
pub(crate) mod driver;
pub(crate) mod fill;
pub(crate) mod store;

/// The text in every breadcrumb.
const TEXT: &str = "what somebody said, at the length at which people say things to one another";
