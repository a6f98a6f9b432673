//! Signals of the operating system that stop a runtime.

use futures::stream::{self, Stream};
use std::io;

/// Returns a stream with an item for each Ctrl-C and each SIGTERM that the process receives.
///
/// # Errors
/// The operating system's error if a signal handler cannot be installed.
#[cfg(unix)]
pub(super) fn signals() -> io::Result<impl Stream<Item = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(stream::poll_fn(move |cx| match interrupt.poll_recv(cx) {
        std::task::Poll::Ready(signal) => std::task::Poll::Ready(signal),
        std::task::Poll::Pending => terminate.poll_recv(cx),
    }))
}

/// Returns a stream with an item for each Ctrl-C that the process receives.
///
/// # Errors
/// The operating system's error if the handler cannot be installed.
#[cfg(windows)]
pub(super) fn signals() -> io::Result<impl Stream<Item = ()>> {
    let mut interrupt = tokio::signal::windows::ctrl_c()?;
    Ok(stream::poll_fn(move |cx| interrupt.poll_recv(cx)))
}

/// Returns an error, because the platform has no signals that could stop a runtime.
#[cfg(not(any(unix, windows)))]
pub(super) fn signals() -> io::Result<impl Stream<Item = ()>> {
    Err::<stream::Empty<()>, _>(io::ErrorKind::Unsupported.into())
}
