//! Conversion of [`NewBreadcrumb`] to [`Breadcrumb`] without a store, for tests and for the initial content of a store.

use crate::clock::wall_micros;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Timestamp};
use std::sync::Arc;

impl From<NewBreadcrumb> for Breadcrumb {
    /// Creates version 1 of a breadcrumb with a new ID and the current time.
    fn from(new: NewBreadcrumb) -> Self {
        new.first_version(
            BreadcrumbId::unique(),
            Timestamp::from_micros(wall_micros()),
        )
    }
}

impl From<NewBreadcrumb> for Arc<Breadcrumb> {
    /// Creates version 1 of a breadcrumb with a new ID and the current time.
    fn from(new: NewBreadcrumb) -> Self {
        Self::new(new.into())
    }
}
