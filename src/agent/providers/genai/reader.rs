//! Reading of `genai` model answers on a separate thread.
//!
//! `genai` reads a whole event, or the body of an error, in one poll as long as bytes are available. On a multi-threaded runtime bytes
//! arrive during the poll, so the poll may never return, and no timer of the same task fires. On this thread the connection and its
//! reader run alternately, so a poll ends when the received bytes are consumed. The caller waits on its own runtime.

use super::meter::Meter;
use crate::agent::{ChatEvent, ModelError};
use futures::stream::{self, Stream, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};

/// Maximum number of events of a model answer in the channel from the reader thread to the caller.
const MAX_READY: usize = 16;

type Item = Result<ChatEvent, ModelError>;

/// A reader thread with a Tokio runtime for the connections of one model and its clones. The thread ends when the reader is dropped.
pub(super) struct Reader {
    runtime: Handle,
    /// The sender that keeps the reader thread running: the thread ends when the sender is dropped.
    _stop: oneshot::Sender<()>,
}

impl Reader {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("genai-reader".to_owned())
            .spawn(move || {
                runtime.block_on(async { stopped.await.ok() });
                runtime.shutdown_background();
            })?;
        Ok(Self {
            runtime: handle,
            _stop: stop,
        })
    }

    /// Reads a model answer on the reader thread, starting with the first poll of the returned stream. The stream fails with
    /// [`ModelError::TimedOut`] after `total`. Dropping the stream stops the reading.
    pub(super) fn read(
        self: Arc<Self>,
        answer: impl Stream<Item = Item> + Send + 'static,
        meter: Arc<Meter>,
        total: Duration,
    ) -> impl Stream<Item = Item> + Send {
        stream::once(async move { AnswerStream::spawn(self, answer, meter, total) }).flatten()
    }
}

/// A model answer that the reader thread reads.
struct AnswerStream {
    events: mpsc::Receiver<Item>,
    /// The deadline for reading the whole model answer, or `None` if the clock cannot represent the deadline.
    deadline: Option<Instant>,
    meter: Arc<Meter>,
    task: AbortHandle,
    has_failed: bool,
    /// Shared handle of the reader thread, which keeps the thread running while the model answer is read.
    _reader: Arc<Reader>,
}

impl AnswerStream {
    fn spawn(
        reader: Arc<Reader>,
        answer: impl Stream<Item = Item> + Send + 'static,
        meter: Arc<Meter>,
        total: Duration,
    ) -> impl Stream<Item = Item> + Send {
        let (ready, events) = mpsc::channel(MAX_READY);
        let task = reader.runtime.spawn(async move {
            let mut answer = pin!(answer);
            while let Some(event) = answer.next().await {
                if ready.send(event).await.is_err() {
                    return;
                }
            }
        });
        let reading = Self {
            events,
            deadline: Instant::now().checked_add(total),
            meter,
            task: task.abort_handle(),
            has_failed: false,
            _reader: reader,
        };
        stream::unfold(reading, Self::next)
    }

    async fn next(mut self) -> Option<(Item, Self)> {
        if self.has_failed {
            return None;
        }
        let event = match self.deadline {
            Some(deadline) => time::timeout_at(deadline, self.events.recv()).await,
            None => Ok(self.events.recv().await),
        };
        match event {
            Ok(event) => Some((event?, self)),
            Err(_) => {
                self.task.abort();
                self.has_failed = true;
                let to = self.meter.timeout_phase();
                Some((Err(ModelError::TimedOut { to }), self))
            }
        }
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Poll;

    const LONG: Duration = Duration::from_secs(600);

    fn meter() -> Arc<Meter> {
        Arc::new(Meter::new(1 << 20))
    }

    fn read(
        answer: impl Stream<Item = Item> + Send + 'static,
        total: Duration,
    ) -> impl Stream<Item = Item> + Send {
        Arc::new(Reader::start().unwrap()).read(answer, meter(), total)
    }

    #[tokio::test]
    async fn a_poll_that_does_not_return_delays_no_timeout_of_the_caller() {
        let released = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&released);
        let stuck = stream::once(poll_fn(move |_| {
            while !seen.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            Poll::Ready(Ok(ChatEvent::Text(String::new())))
        }));

        let mut events = pin!(read(stuck, Duration::from_millis(10)));
        let first = events.next().await;
        let second = events.next().await;
        released.store(true, Ordering::SeqCst);

        assert!(
            matches!(first, Some(Err(ModelError::TimedOut { to: "answer" }))),
            "{first:?}"
        );
        assert!(second.is_none(), "{second:?}");
    }

    #[tokio::test]
    async fn reading_ends_when_the_caller_drops_the_answer() {
        let (held, dropped) = oneshot::channel::<()>();
        let (begun, has_begun) = oneshot::channel::<()>();
        let silent = stream::once(async move {
            begun.send(()).ok();
            let _held = held;
            std::future::pending::<Item>().await
        });

        let reader = Arc::new(Reader::start().unwrap());
        let mut events = Box::pin(Arc::clone(&reader).read(silent, meter(), LONG));
        tokio::select! {
            _ = events.next() => unreachable!("the answer is silent"),
            begun = has_begun => begun.unwrap(),
        }
        drop(events);

        assert!(dropped.await.is_err(), "the task was dropped");
        drop(reader);
    }

    #[tokio::test]
    async fn events_arrive_in_their_order() {
        let text = |at: usize| Ok(ChatEvent::Text(at.to_string()));

        let events: Vec<Item> = read(stream::iter((0..100).map(text)), LONG).collect().await;

        let texts: Vec<String> = events
            .into_iter()
            .map(|event| match event {
                Ok(ChatEvent::Text(text)) => text,
                other => unreachable!("{other:?}"),
            })
            .collect();
        let expected: Vec<String> = (0..100).map(|at| at.to_string()).collect();
        assert_eq!(texts, expected);
    }
}
