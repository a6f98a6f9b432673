//! Substitute for the module `definitions` in builds without the feature `agents`, in which no breadcrumb defines an executor.

use super::registry::Registry;
use crate::model::{BreadcrumbId, Event};
use crate::store::StoreError;

/// Placeholder for the component that runs the executors of stored definitions. This type has no values, so no runtime has the component.
pub(super) enum DefinitionLoader {}

impl DefinitionLoader {
    #[cfg(feature = "testing")]
    pub(super) fn store_id(&self) -> crate::store::StoreId {
        match *self {}
    }

    pub(super) fn may_concern(&self, _: &Event) -> bool {
        match *self {}
    }

    pub(super) async fn load(&self, _: &Registry) -> Result<(), StoreError> {
        match *self {}
    }

    pub(super) async fn refresh(&self, _: &Registry, _: BreadcrumbId) -> Result<(), StoreError> {
        match *self {}
    }
}
