//! Events from a run to its reader: a bounded buffer, and a stream that drives the run.

use super::event::{WorkloadEvent, WorkloadEventKind};
use super::sink::Sink;
use crate::clock;
use crate::model::Timestamp;
use crate::workflow::StepPath;
use futures::Stream;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::Notify;
use tokio::task::coop;

/// Maximum number of events in the buffer of a workload run. In a full buffer, text events are joined and other details
/// are dropped.
pub(super) const MAX_BUFFERED_EVENTS: usize = 1_024;

/// Maximum size in bytes of the text of several events of a workload run that are joined into one, because the buffer
/// is full.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Stream of the events of one workload run.
///
/// Reading the stream drives the run: the run makes no progress while the stream is not read. Dropping the stream stops
/// the run. A run that always has a next event still yields to other tasks, so that its reader can be cancelled.
///
/// Read it with `next` of `futures::StreamExt`, which is cancel safe. The last event satisfies
/// [`is_end`](WorkloadEventKind::is_end). [`RunCx::stream`](super::RunCx::stream) creates a stream.
pub struct EventStream<'w> {
    emitter: RunEmitter,
    /// The work of the workload run, or `None` once it has ended.
    work: Option<BoxFuture<'w, WorkloadEventKind>>,
    /// If `true`, the event stream lets other tasks of the async runtime run before its next poll of the run's work.
    yields: bool,
}

impl<'w> EventStream<'w> {
    /// Creates the event stream of a run's `work`, which emits events through `emitter` and returns the last event.
    pub(super) fn new(
        emitter: RunEmitter,
        work: impl Future<Output = WorkloadEventKind> + Send + 'w,
    ) -> Self {
        emitter.emit(&StepPath::new(""), WorkloadEventKind::Started);
        Self {
            emitter,
            work: Some(Box::pin(work)),
            yields: false,
        }
    }
}

impl Stream for EventStream<'_> {
    type Item = WorkloadEvent;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<WorkloadEvent>> {
        ready!(coop::poll_proceed(context)).made_progress();
        let Self {
            emitter,
            work,
            yields,
        } = &mut *self;
        loop {
            if let Some(event) = emitter.take() {
                return Poll::Ready(Some(event));
            }
            // A reader that polls for event after event would poll the work again before other tasks run.
            if std::mem::take(yields) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(running_work) = work else {
                return Poll::Ready(None);
            };
            // Tasks that the work has spawned also emit events.
            emitter.waker.register(context.waker());
            match running_work.as_mut().poll(context) {
                Poll::Ready(end) => {
                    *work = None;
                    emitter.end(end);
                }
                Poll::Pending => {
                    let event = emitter.take();
                    *yields = event.is_some();
                    return match event {
                        Some(event) => Poll::Ready(Some(event)),
                        None => Poll::Pending,
                    };
                }
            }
        }
    }
}

impl fmt::Debug for EventStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("is_over", &self.work.is_none())
            .finish_non_exhaustive()
    }
}

/// Emitter of the events of a workload run. A clone is another handle on the same buffer.
#[derive(Clone)]
pub(super) struct RunEmitter {
    run: Arc<str>,
    parent: Option<Arc<str>>,
    /// Listeners for the events of inner runs, which start within this run. The event stream of this run does not
    /// contain these events.
    pub(super) listeners: Sink,
    buffer: Arc<Mutex<Buffer>>,
    waker: Arc<AtomicWaker>,
    event_taken: Arc<Notify>,
}

#[derive(Default)]
struct Buffer {
    queue: VecDeque<WorkloadEvent>,
    last_sequence: u64,
    missed: u64,
    is_over: bool,
}

impl RunEmitter {
    pub(super) fn new(run: Arc<str>, parent: Option<Arc<str>>) -> Self {
        Self {
            run,
            parent,
            listeners: Sink::default(),
            buffer: Arc::default(),
            waker: Arc::default(),
            event_taken: Arc::default(),
        }
    }

    /// Emits an event of the run without waiting. If the buffer is full, an event with details is joined to the last
    /// event or dropped.
    pub(super) fn emit(&self, path: &StepPath, kind: WorkloadEventKind) {
        let mut buffer = self.buffer();
        if buffer.is_over {
            return;
        }
        if buffer.queue.len() >= MAX_BUFFERED_EVENTS && kind.is_detail() {
            buffer.join_or_drop(path, &kind);
        } else {
            self.push(&mut buffer, path, kind);
        }
        drop(buffer);
        self.waker.wake();
    }

    /// Waits until the event buffer has space, and then emits an event of the run.
    pub(super) async fn emit_with_backpressure(&self, path: &StepPath, kind: WorkloadEventKind) {
        loop {
            let event_taken = self.event_taken.notified();
            if self.buffer().queue.len() < MAX_BUFFERED_EVENTS {
                break;
            }
            event_taken.await;
        }
        self.emit(path, kind);
    }

    fn end(&self, kind: WorkloadEventKind) {
        let mut buffer = self.buffer();
        self.push(&mut buffer, &StepPath::new(""), kind);
        buffer.is_over = true;
    }

    fn take(&self) -> Option<WorkloadEvent> {
        let event = self.buffer().queue.pop_front()?;
        self.event_taken.notify_waiters();
        Some(event)
    }

    fn push(&self, buffer: &mut Buffer, path: &StepPath, kind: WorkloadEventKind) {
        let missed = std::mem::take(&mut buffer.missed);
        if missed > 0 {
            let missed_event = WorkloadEventKind::Missed { events: missed };
            self.push_numbered(buffer, &StepPath::new(""), missed_event);
        }
        self.push_numbered(buffer, path, kind);
    }

    fn push_numbered(&self, buffer: &mut Buffer, path: &StepPath, kind: WorkloadEventKind) {
        buffer.last_sequence += 1;
        buffer.queue.push_back(WorkloadEvent {
            run: Arc::clone(&self.run),
            parent: self.parent.clone(),
            path: path.clone(),
            sequence: buffer.last_sequence,
            at: Timestamp::from_micros(clock::wall_micros()),
            kind,
        });
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    /// Joins an event with answer text to the last event in the full buffer of a workload run, or counts the event as
    /// dropped. Only text events of the same step are joined, up to [`MAX_TEXT_BYTES`] bytes.
    fn join_or_drop(&mut self, path: &StepPath, kind: &WorkloadEventKind) {
        if let (WorkloadEventKind::Text(more), Some(last)) = (kind, self.queue.back_mut())
            && let WorkloadEventKind::Text(text) = &mut last.kind
            && last.path == *path
            && text.len() + more.len() <= MAX_TEXT_BYTES
        {
            text.push_str(more);
            return;
        }
        self.missed += 1;
    }
}

impl fmt::Debug for RunEmitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunEmitter")
            .field("run", &self.run)
            .field("parent", &self.parent)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Json;
    use futures::StreamExt as _;

    fn kinds(
        emitter: &RunEmitter,
        work: impl Future<Output = WorkloadEventKind> + Send,
    ) -> Vec<WorkloadEvent> {
        let stream = EventStream::new(emitter.clone(), work);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let all = tokio::task::unconstrained(stream.collect());
        runtime.unwrap().block_on(all)
    }

    fn done() -> WorkloadEventKind {
        WorkloadEventKind::Final {
            output: Json::default(),
        }
    }

    #[test]
    fn dropped_events_are_counted_and_sequence_numbers_have_no_gap() {
        let emitter = RunEmitter::new("r".into(), None);
        let path = StepPath::new("main/0");
        let run_emitter = emitter.clone();

        let events = kinds(&emitter, async move {
            for _ in 0..3_000 {
                run_emitter.emit(&path, WorkloadEventKind::Asked);
            }
            done()
        });

        // The first event was read before the work started.
        assert_eq!(events.len(), MAX_BUFFERED_EVENTS + 3);
        assert_eq!(
            events[MAX_BUFFERED_EVENTS + 1].kind,
            WorkloadEventKind::Missed {
                events: 3_000 - MAX_BUFFERED_EVENTS as u64
            }
        );
        assert!(
            events
                .iter()
                .zip(1..)
                .all(|(event, number)| event.sequence == number)
        );
        assert_eq!(events.last().unwrap().kind, done());
    }

    #[test]
    fn a_text_is_whole_however_slow_the_reader_is() {
        let emitter = RunEmitter::new("r".into(), None);
        let path = StepPath::new("main/0");
        let run_emitter = emitter.clone();

        let events = kinds(&emitter, async move {
            for _ in 0..3_000 {
                run_emitter.emit(&path, WorkloadEventKind::Text("ab".into()));
            }
            done()
        });

        let text: String = events
            .iter()
            .filter_map(|event| match &event.kind {
                WorkloadEventKind::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(text, "ab".repeat(3_000));
    }

    #[test]
    fn a_sender_of_ordered_events_waits_for_its_reader() {
        let emitter = RunEmitter::new("r".into(), None);
        let path = StepPath::new("main/0");
        let run_emitter = emitter.clone();

        let events = kinds(&emitter, async move {
            for _ in 0..3_000 {
                run_emitter
                    .emit_with_backpressure(&path, WorkloadEventKind::Asked)
                    .await;
            }
            done()
        });

        assert_eq!(events.len(), 3_002);
    }

    #[test]
    fn nothing_follows_the_end() {
        let emitter = RunEmitter::new("r".into(), None);

        let events = kinds(&emitter, async { done() });
        emitter.emit(&StepPath::new("main"), WorkloadEventKind::Asked);

        assert_eq!(events.len(), 2);
        assert_eq!(emitter.take(), None);
    }
}
