//! Captures log output in tests.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::FmtSpan;

/// Captured log lines, shared by all clones.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures the lines and span events that this thread logs at `level` or above, until the guard drops.
    pub(crate) fn capture(level: Level, spans: FmtSpan) -> (Self, DefaultGuard) {
        // While only one dispatcher exists, `tracing` may ask another test's thread whether a callsite is enabled, and
        // then disable the callsite for all threads.
        static SECOND: LazyLock<tracing::Dispatch> =
            LazyLock::new(|| tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default()));
        LazyLock::force(&SECOND);
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.subscriber(level, spans));
        (log, guard)
    }

    /// Captures all lines of all threads. Only one test per process can call this function.
    pub(crate) fn capture_process() -> Self {
        Self::capture_process_at(Level::TRACE)
    }

    /// Captures the lines of all threads at `level` or above. Only one test per process can call this function.
    pub(crate) fn capture_process_at(level: Level) -> Self {
        let log = Self::default();
        let subscriber = log.subscriber(level, FmtSpan::NONE);
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    }

    fn subscriber(&self, level: Level, spans: FmtSpan) -> impl tracing::Subscriber + use<> {
        let writer = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_span_events(spans)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish()
    }

    /// Checks that `build` logs one warning, with the host and without the secret, if its URL sends a secret unencrypted to another
    /// machine, and logs nothing for other URLs or without a secret.
    pub(crate) fn expect_warning_of_exposure(secret: &str, build: impl Fn(&str, bool)) {
        let (log, _guard) = Self::capture(Level::WARN, FmtSpan::NONE);
        let logged = |url: &str, has_secret| {
            build(url, has_secret);
            log.take()
        };

        let exposed = logged("http://server.example.com/v1", true);

        assert_eq!(exposed.matches("WARN").count(), 1, "{exposed}");
        assert!(exposed.contains("server.example.com"), "{exposed}");
        assert!(exposed.contains("use an https URL"), "{exposed}");
        assert!(!exposed.contains(secret), "{exposed}");
        assert_eq!(logged("https://server.example.com/v1", true), "");
        assert_eq!(logged("http://127.0.0.1:1/v1", true), "");
        assert_eq!(logged("http://server.example.com/v1", false), "");
    }

    /// Returns all captured lines since the start or the last call of [`take`](Self::take).
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the same lines as [`text`](Self::text) and clears them.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
