//! Breadcrumbs that no store has written, for tests and seeds.

use crate::clock::wall_micros;
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Timestamp};
use std::sync::Arc;

impl From<NewBreadcrumb> for Breadcrumb {
    /// Version 1 with a new id, as of now.
    fn from(new: NewBreadcrumb) -> Self {
        new.first_version(
            BreadcrumbId::unique(),
            Timestamp::from_micros(wall_micros()),
        )
    }
}

impl From<NewBreadcrumb> for Arc<Breadcrumb> {
    /// Version 1 with a new id, as of now.
    fn from(new: NewBreadcrumb) -> Self {
        Self::new(new.into())
    }
}
