//! Subjects of the conformance suite for sources that wrap another subject.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
use universal_executor::store::{Fault, Faulty, Instrumented, Moment, Operation};
use universal_executor::{BoxError, Event, EventSource};

/// A subject whose sources have a wrapper.
pub(crate) struct Around<S> {
    inside: S,
    wrap: fn(Box<dyn EventSource>) -> Box<dyn EventSource>,
}

impl<S> Around<S> {
    /// Wraps sources so that each call is reported.
    pub(crate) fn watched(inside: S) -> Self {
        Self {
            inside,
            wrap: |source| Box::new(Instrumented::new("watched", source)),
        }
    }

    /// Wraps sources with an empty fault plan.
    pub(crate) fn faultless(inside: S) -> Self {
        Self {
            inside,
            wrap: |source| Box::new(Faulty::new(source, |_, _| Fault::None)),
        }
    }

    /// Wraps sources so that one in three calls of an operation fails at each moment.
    pub(crate) fn stumbling(inside: S) -> Self {
        Self {
            inside,
            wrap: |source| Box::new(Faulty::new(source, one_in_three())),
        }
    }
}

fn one_in_three() -> impl Fn(Operation, Moment) -> Fault {
    let calls: Mutex<HashMap<(Operation, Moment), u64>> = Mutex::default();
    move |operation, moment| {
        let mut calls = calls.lock().unwrap();
        let calls = calls.entry((operation, moment)).or_default();
        *calls += 1;
        if calls.is_multiple_of(3) {
            Fault::Fail
        } else {
            Fault::None
        }
    }
}

impl<S: SourceUnderTest> SourceUnderTest for Around<S> {
    type Backend = S::Backend;

    fn abilities(&self) -> Abilities {
        self.inside.abilities()
    }

    async fn fresh(&self) -> S::Backend {
        self.inside.fresh().await
    }

    async fn fresh_with_limit(&self, events: usize) -> Option<S::Backend> {
        self.inside.fresh_with_limit(events).await
    }

    async fn in_tenant(&self, place: &S::Backend, tenant: &str) -> Option<S::Backend> {
        self.inside.in_tenant(place, tenant).await
    }

    async fn restart(&self, place: S::Backend) -> Option<S::Backend> {
        self.inside.restart(place).await
    }

    fn source(&self, place: &S::Backend, consumer: &str) -> Box<dyn EventSource> {
        (self.wrap)(self.inside.source(place, consumer))
    }

    async fn commit(
        &self,
        place: &S::Backend,
        changes: Vec<Change>,
    ) -> Result<Vec<Event>, BoxError> {
        self.inside.commit(place, changes).await
    }

    async fn advance_clock(&self, duration: Duration) {
        self.inside.advance_clock(duration).await;
    }
}
