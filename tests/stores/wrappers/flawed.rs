//! The conformance suite for sources detects flaws: for each of its promises, a flawed source violates that promise.

use crate::memory::source::Events;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, future};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use std::{fs, path::Path};
use universal_executor::model::Timestamp;
use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
use universal_executor::source::{Deliveries, Receipt, SourceError, StartAt};
use universal_executor::{
    BoxError, Delivery, Event, EventKind, EventSource, MemoryStore, async_trait,
};

type Delivered = Result<Delivery, SourceError>;
/// A flaw of a source or of its declared abilities.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// The source works, but declares other abilities.
    Claims(fn(Abilities) -> Abilities),
    /// Subscriptions start at another position.
    Begins(fn(StartAt) -> StartAt),
    /// Deliveries are changed.
    Says(fn(Delivered) -> Delivered),
    /// Some deliveries are lost.
    Loses(fn(usize, &Delivered) -> bool),
    /// The second of two available deliveries comes first.
    Swaps,
    /// The stream ends after an error.
    Ends,
    /// The stream repeats the same error without end.
    Repeats,
    /// The stream wakes no subscriber.
    Sleeps,
    /// Only the first subscription receives events.
    IsForOne,
    /// Acknowledgements and nacks have the wrong effect.
    Acks(AckFault),
    /// The first commit after this number of commits never returns.
    Blocks(usize),
    /// All tenants share one store.
    MixesTenants,
    /// A restart loses all data.
    Forgets,
}

/// The wrong effect of acknowledgements and nacks.
#[derive(Clone, Copy, Debug)]
enum AckFault {
    /// An acknowledged event is delivered again.
    AckIsNack,
    /// A nacked event is not delivered again.
    NackIsAck,
    /// A nacked event is delivered again immediately, without its delay.
    NackIsNow,
    /// The call never returns.
    Hangs,
}

struct Flawed {
    flaw: Flaw,
    subscriptions: Arc<AtomicUsize>,
    commits: AtomicUsize,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            subscriptions: Arc::default(),
            commits: AtomicUsize::new(0),
        }
    }
}

impl SourceUnderTest for Flawed {
    type Backend = MemoryStore;

    fn abilities(&self) -> Abilities {
        match self.flaw {
            Flaw::Claims(claim) => claim(Events.abilities()),
            _ => Events.abilities(),
        }
    }

    async fn fresh(&self) -> MemoryStore {
        // With paused time, the suite does not really wait for events that never arrive.
        tokio::time::pause();
        Events.fresh().await
    }

    async fn fresh_with_limit(&self, events: usize) -> Option<MemoryStore> {
        tokio::time::pause();
        Events.fresh_with_limit(events).await
    }

    async fn in_tenant(&self, place: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
        match self.flaw {
            Flaw::MixesTenants => Some(place.clone()),
            _ => Events.in_tenant(place, tenant).await,
        }
    }

    async fn restart(&self, place: MemoryStore) -> Option<MemoryStore> {
        match self.flaw {
            Flaw::Forgets => Some(MemoryStore::default()),
            _ => Some(place),
        }
    }

    fn source(&self, place: &MemoryStore, _: &str) -> Box<dyn EventSource> {
        Box::new(FlawedSource {
            inner: Box::new(place.events()),
            flaw: self.flaw,
            subscriptions: Arc::clone(&self.subscriptions),
        })
    }

    async fn commit(
        &self,
        place: &MemoryStore,
        changes: Vec<Change>,
    ) -> Result<Vec<Event>, BoxError> {
        let commits = self.commits.fetch_add(1, Ordering::SeqCst);
        if matches!(self.flaw, Flaw::Blocks(after) if commits >= after) {
            future::pending::<()>().await;
        }
        Events.commit(place, changes).await
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::advance(duration).await;
    }
}

struct FlawedSource {
    inner: Box<dyn EventSource>,
    flaw: Flaw,
    subscriptions: Arc<AtomicUsize>,
}

#[async_trait]
impl EventSource for FlawedSource {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let from = match self.flaw {
            Flaw::Begins(begin) => begin(from),
            _ => from,
        };
        let deliveries = self.inner.subscribe(from).await?;
        let before = self.subscriptions.fetch_add(1, Ordering::SeqCst);
        Ok(deliveries.wrap(|mut inner| match self.flaw {
            Flaw::Says(change) => inner.map(change).boxed(),
            Flaw::Loses(is_lost) => {
                let kept = inner.enumerate().filter_map(move |(n, delivered)| {
                    future::ready((!is_lost(n, &delivered)).then_some(delivered))
                });
                kept.boxed()
            }
            Flaw::Swaps => swapped(inner),
            Flaw::Ends => {
                let ends = inner.scan(false, |ended, delivered| {
                    let over = std::mem::replace(ended, delivered.is_err());
                    future::ready((!over).then_some(delivered))
                });
                ends.boxed()
            }
            Flaw::Repeats => inner.flat_map(repeated).boxed(),
            Flaw::Sleeps => stream::poll_fn(move |_| {
                let mut nobody = Context::from_waker(Waker::noop());
                inner.poll_next_unpin(&mut nobody)
            })
            .boxed(),
            Flaw::IsForOne if before > 0 => stream::pending().boxed(),
            Flaw::Acks(fault) => inner
                .map(move |delivered| delivered.map(|delivery| with_ack_fault(delivery, fault)))
                .boxed(),
            _ => inner.boxed(),
        }))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

fn repeated(delivered: Delivered) -> BoxStream<'static, Delivered> {
    match delivered {
        Err(SourceError::Lagged { missed, after }) => {
            stream::repeat_with(move || Err(SourceError::Lagged { missed, after })).boxed()
        }
        other => stream::iter([other]).boxed(),
    }
}

fn swapped(inner: Deliveries) -> BoxStream<'static, Delivered> {
    let swapped = stream::unfold((inner, None), |(mut inner, kept)| async move {
        if let Some(kept) = kept {
            return Some((kept, (inner, None)));
        }
        let first = inner.next().await?;
        match inner.next().now_or_never().flatten() {
            Some(second) => Some((second, (inner, Some(first)))),
            None => Some((first, (inner, None))),
        }
    });
    swapped.boxed()
}

fn with_ack_fault(delivery: Delivery, fault: AckFault) -> Delivery {
    let receipt = FaultyReceipt {
        delivery: delivery.clone(),
        fault,
    };
    delivery.with_receipt(Arc::new(receipt))
}

struct FaultyReceipt {
    delivery: Delivery,
    fault: AckFault,
}

#[async_trait]
impl Receipt for FaultyReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        match self.fault {
            AckFault::AckIsNack => self.delivery.nack(Duration::ZERO).await,
            AckFault::Hangs => future::pending().await,
            AckFault::NackIsAck | AckFault::NackIsNow => self.delivery.ack().await,
        }
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        match self.fault {
            AckFault::NackIsAck => self.delivery.ack().await,
            AckFault::NackIsNow => self.delivery.nack(Duration::ZERO).await,
            AckFault::Hangs => future::pending().await,
            AckFault::AckIsNack => self.delivery.nack(delay).await,
        }
    }
}

const FROM_THE_BEGINNING: Flaw = Flaw::Begins(|_| StartAt::Beginning);
const FROM_NOW: Flaw = Flaw::Begins(|_| StartAt::Now);
const ONE_TOO_LATE: Flaw = Flaw::Begins(|from| match from {
    StartAt::After(position) => StartAt::After(position.saturating_add(1)),
    other => other,
});
const WAITS_FOR_THE_FUTURE: Flaw = Flaw::Says(|delivered| match delivered {
    Ok(delivery) if delivery.position > Some(4) => Err(SourceError::NoRedelivery {
        reason: "its position is not reached",
    }),
    other => other,
});
const ONE_IN_FIVE: Flaw = Flaw::Loses(|n, _| n % 5 == 4);
const DELETIONS: Flaw = Flaw::Loses(|_, delivered| {
    let kind = delivered.as_ref().map(|delivery| delivery.event.kind);
    matches!(kind, Ok(EventKind::Deleted))
});
const SILENCE: Flaw = Flaw::Loses(|_, delivered| delivered.is_err());
const NO_GROWTH: Flaw = Flaw::Says(|delivered| delivered.map(|delivery| delivery.at(7)));
const MISCOUNTS: Flaw = Flaw::Says(|delivered| match delivered {
    Err(SourceError::Lagged { missed, after }) => Err(SourceError::Lagged {
        missed: missed - 1,
        after,
    }),
    other => other,
});
const TOO_LATE: Flaw = Flaw::Says(|delivered| match delivered {
    Err(SourceError::Lagged { missed, .. }) => Err(SourceError::Lagged {
        missed,
        after: Some(Timestamp::from_micros(i64::MAX)),
    }),
    other => other,
});
const ALWAYS_LAGS: Flaw = Flaw::Says(|delivered| match delivered {
    Ok(delivery) if delivery.position.is_some_and(|at| at % 80 == 73) => Err(SourceError::Lagged {
        missed: 1,
        after: None,
    }),
    other => other,
});
const OTHER_CONTEXT: Flaw = Flaw::Says(|delivered| {
    delivered.map(|mut delivery| {
        delivery.event.context = Some(json!({"n": -1}).into());
        delivery
    })
});
const LARGE_CONTEXT: Flaw = Flaw::Says(|delivered| {
    delivered.map(|mut delivery| {
        if delivery.event.schema_name.as_deref() == Some("large.v1") {
            delivery.event.context = Some(json!({"text": "x".repeat(300_000)}).into());
        }
        delivery
    })
});
const REMEMBERS: Flaw = Flaw::Claims(|abilities| abilities.saves_consumers(true));

macro_rules! flawed {
    ($($promise:ident: $($flaw:expr),+;)+) => {
        mod a_flaw_breaks {
            use super::*;
            use universal_executor::source::conformance::{self, run};

            $(
                #[test]
                fn $promise() {
                    for flaw in [$($flaw),+] {
                        let kept = run(conformance::$promise(&Flawed::new(flaw)));
                        assert!(kept.is_err(), "the suite does not detect {flaw:?}");
                    }
                    let nothing = Flaw::Claims(|abilities| abilities);
                    run(conformance::$promise(&Flawed::new(nothing))).unwrap();
                }
            )+
        }
    };
}

flawed! {
    every_commit_is_delivered: DELETIONS, ONE_IN_FIVE;
    commits_are_delivered_in_order: Flaw::Swaps, ONE_IN_FIVE;
    commits_at_the_same_time_are_all_delivered: ONE_IN_FIVE, Flaw::Swaps;
    a_large_context_does_not_travel: LARGE_CONTEXT;
    a_context_is_that_of_its_version: OTHER_CONTEXT;
    events_of_tenants_are_isolated: Flaw::MixesTenants;
    now_begins_with_the_next_commit: FROM_THE_BEGINNING;
    the_beginning_is_the_oldest_event: FROM_NOW;
    a_position_is_followed_by_the_next_event: ONE_TOO_LATE, FROM_NOW, FROM_THE_BEGINNING;
    a_position_from_the_future_loses_no_event: WAITS_FOR_THE_FUTURE;
    positions_increase: NO_GROWTH;
    dropped_events_are_reported: SILENCE, MISCOUNTS, Flaw::Ends, Flaw::Repeats;
    deleted_events_after_a_position_are_reported: SILENCE, MISCOUNTS, TOO_LATE, Flaw::Ends, Flaw::Repeats;
    deleted_events_before_the_beginning_are_not_reported: ALWAYS_LAGS;
    no_event_is_lost_across_reconnects: ONE_TOO_LATE, FROM_NOW;
    a_position_is_valid_after_a_restart: Flaw::Forgets, ONE_TOO_LATE;
    an_unacknowledged_event_is_redelivered: REMEMBERS;
    a_consumer_continues_after_its_acknowledged_events: REMEMBERS;
    a_nacked_event_survives_a_restart: REMEMBERS;
    consumers_are_saved_separately: REMEMBERS;
    the_backlog_of_a_consumer_is_reported: REMEMBERS;
    a_nacked_event_is_redelivered:
        Flaw::Acks(AckFault::NackIsAck),
        Flaw::Claims(|abilities| abilities.redelivers(false));
    a_nacked_event_is_redelivered_after_its_delay: Flaw::Acks(AckFault::NackIsNow);
    an_acknowledged_event_is_not_redelivered: Flaw::Acks(AckFault::AckIsNack);
    repeated_and_late_acknowledgements_have_no_effect: Flaw::Acks(AckFault::Hangs);
    two_subscribers_both_receive_all_events: Flaw::IsForOne;
    many_subscribers_receive_all_events: Flaw::IsForOne;
    an_unread_stream_delays_no_other: Flaw::Blocks(12), ONE_IN_FIVE;
    a_waiting_subscriber_is_woken: Flaw::Sleeps;
    cancel_safe: ONE_IN_FIVE;
}

#[test]
fn a_flaw_is_known_for_every_promise() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = fs::read_to_string(root.join("src/source/conformance/mod.rs"))?;
    let flaws = fs::read_to_string(root.join("tests/stores/wrappers/flawed.rs"))?;
    let lines = suite.lines().map(str::trim);
    let names = lines.skip_while(|line| !line.contains("@promises"));

    for name in names.skip(1).take_while(|line| *line != "}") {
        let has_flaw = flaws.contains(&format!("\n    {name}:"));
        assert!(has_flaw, "no flaw violates the promise {name}");
    }
    Ok(())
}
