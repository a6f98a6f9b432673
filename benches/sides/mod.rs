//! What is measured against one another in `stores`, and the files it is measured on.

pub(crate) mod answering;
pub(crate) mod driver;
pub(crate) mod fill;
pub(crate) mod store;

/// What is said in every breadcrumb.
const TEXT: &str = "what somebody said, at the length at which people say things to one another";
