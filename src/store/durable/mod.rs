//! Parts that the SQLite and PostgreSQL stores share: event pages, consumer positions, the inbox, the tenant's row and clock, and rows of
//! breadcrumbs.

pub(super) mod cursor;
pub(super) mod events;
pub(super) mod inbox;
pub(super) mod jumps;
pub(super) mod stored_breadcrumb;
pub(super) mod tenant;
