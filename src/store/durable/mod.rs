//! What stores have in common that outlive their process: events read in pages, consumers that are remembered, the row of
//! a tenant, and breadcrumbs that may be over.

pub(super) mod cursor;
pub(super) mod events;
pub(super) mod found;
pub(super) mod inbox;
pub(super) mod jumps;
pub(super) mod tenant;
