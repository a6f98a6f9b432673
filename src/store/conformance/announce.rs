use crate::model::Event;
use crate::source::conformance::Change;
use crate::store::{BreadcrumbStore, StoreError, Write};

/// Commits changes to a store, and returns the events that the event source of the store must deliver, one for each change.
///
/// Call it in a [`SourceUnderTest`](crate::source::conformance::SourceUnderTest) of the suite for event sources, if the events
/// come from a store.
///
/// # Errors
/// The errors of [`BreadcrumbStore::commit`].
pub async fn announce(
    store: &impl BreadcrumbStore,
    changes: Vec<Change>,
) -> Result<Vec<Event>, StoreError> {
    let mut to_events: Vec<fn(&crate::model::Breadcrumb) -> Event> =
        Vec::with_capacity(changes.len());
    let mut writes = Vec::with_capacity(changes.len());
    for change in changes {
        let (write, event): (_, fn(&_) -> _) = match change {
            Change::Create(new) => (Write::Create(new), Event::created),
            Change::Update { id, version, patch } => {
                (Write::Update { id, version, patch }, Event::updated)
            }
            Change::Delete { id } => (Write::Delete { id, by: None }, Event::deleted),
        };
        writes.push(write);
        to_events.push(event);
    }
    let committed = store.commit(writes.into()).await?;
    let written = committed.written.iter().zip(to_events);
    Ok(written.map(|(written, event)| event(written)).collect())
}
