//! Pausing of tokio's time for tests.

use super::TestError;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

/// Checks that the caller of the testing kit is in a tokio runtime with one thread. Only such a runtime can pause time, and its other tasks
/// change nothing while the kit inspects the store.
///
/// # Errors
/// [`TestError::WrongRuntime`].
pub(super) fn check_runtime() -> Result<(), TestError> {
    let found = match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::CurrentThread) => return Ok(()),
        Ok(_) => "this runtime has several",
        Err(_) => "there is no tokio runtime",
    };
    Err(TestError::WrongRuntime { found })
}

/// Pauses tokio's time, unless it is paused already.
///
/// # Errors
/// [`TestError::WrongRuntime`].
pub(super) fn pause() -> Result<(), TestError> {
    check_runtime()?;
    if !is_paused() {
        tokio::time::pause();
    }
    Ok(())
}

/// Returns `true` if tokio's time does not move with the machine's time. tokio does not report this state, and panics if time is
/// paused twice.
pub(super) fn is_paused() -> bool {
    let before = Instant::now();
    let start = std::time::Instant::now();
    while std::time::Instant::now() <= start {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_is_paused_once() {
        assert!(!is_paused());

        pause().unwrap();
        pause().unwrap();

        assert!(is_paused());
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_a_test_has_paused_stays_paused() {
        assert!(is_paused());

        pause().unwrap();

        assert!(is_paused());
    }
}
