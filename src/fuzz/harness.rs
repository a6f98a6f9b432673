//! Runner of structured fuzz tests with limits on CPU time, memory and stack of each case.

use super::config;
use super::tape::Tape;
use crate::error::excerpt;
use proptest::prelude::any;
use proptest::test_runner::{TestCaseError, TestRunner};
use rustix::time::{ClockId, clock_gettime};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// Stack size of a fuzz test's case in bytes: the default of threads of tokio and `std`.
const STACK_BYTES: usize = 2 << 20;
/// Maximum CPU time of a fuzz test's case. A case takes milliseconds, even without optimisation, so this limit detects unbounded work.
const MAX_CPU: Duration = Duration::from_secs(5);
/// Maximum peak memory of a fuzz test's case in bytes. JSON of 1 MiB takes up to 100 bytes for each byte of the string.
const MAX_PEAK_BYTES: u64 = 256 << 20;
/// Maximum length of the input in the failure message of a fuzz test, in bytes.
const SHOWN_BYTES: usize = 4_000;

/// Checks many generated inputs of a fuzz test, each made from a [`Tape`], within limits on CPU time, memory and stack.
///
/// `check` returns `true` if the input was accepted. Both results pass the test. Prints one line for `scripts/fuzz`: the maximum
/// CPU time and memory of a case, and the numbers of accepted inputs and of inputs with each fragment that breaks parsers.
///
/// # Panics
/// Panics if `check` panics or exceeds a limit. The message contains the shrunk input.
pub(crate) fn structured<I: fmt::Debug>(make: fn(&mut Tape) -> I, check: fn(&I) -> bool) {
    thread::scope(|scope| {
        let run = || run(make, check);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let done = thread.spawn_scoped(scope, run).unwrap().join();
        match done {
            Ok(Ok(statistics)) => println!("{statistics}"),
            Ok(Err(failure)) => panic!("{failure}"),
            Err(panicked) => std::panic::resume_unwind(panicked),
        }
    });
}

fn run<I: fmt::Debug>(
    make: fn(&mut Tape) -> I,
    check: fn(&I) -> bool,
) -> Result<Statistics, String> {
    let mut config = config();
    config.failure_persistence = None;
    config.max_shrink_time = 60_000;
    let statistics = RefCell::new(Statistics::default());
    let last_input = std::env::var_os("FUZZ_LAST_INPUT").map(|path| File::create(path).unwrap());
    let choices = proptest::collection::vec(any::<u16>(), 0..Tape::MAX_CHOICES);
    let result = TestRunner::new(config).run(&choices, |choices| {
        let mut tape = Tape::new(choices);
        let input = make(&mut tape);
        if let Some(file) = &last_input {
            replace(file, &format!("{input:?}")).unwrap();
        }
        let cost = measure(|| check(&input));
        statistics.borrow_mut().add(tape, &cost);
        cost.verdict().map_err(|reason| {
            let input = format!("{input:?}");
            let shown = excerpt(&input, SHOWN_BYTES);
            TestCaseError::fail(format!("{reason}\ninput ({} bytes): {shown}", input.len()))
        })
    });
    match result {
        Ok(()) => Ok(statistics.into_inner()),
        Err(failure) => Err(failure.to_string()),
    }
}

/// Writes the current input of a fuzz test to the file that the environment variable `FUZZ_LAST_INPUT` names, in place of the
/// last one. The input is written before its case, because a stack overflow ends the process. The file stays open, because file
/// systems flush a file that is truncated and closed to the disk.
fn replace(mut file: &File, content: &str) -> io::Result<()> {
    file.rewind()?;
    file.write_all(content.as_bytes())?;
    file.set_len(content.len().try_into().unwrap_or(u64::MAX))
}

/// The resources that one case of a fuzz test used, and its panic.
struct Cost {
    cpu: Duration,
    peak_bytes: u64,
    /// `Ok(true)` if the checked code accepted the input, `Ok(false)` if the code refused the input, and `Err` with the message of a
    /// panic.
    result: Result<bool, String>,
}

fn measure(check: impl FnOnce() -> bool) -> Cost {
    let mut result = Ok(false);
    let began = cpu_time();
    let memory = allocation_counter::measure(|| {
        let caught = catch_unwind(AssertUnwindSafe(check));
        result = caught.map_err(|payload| message(&*payload));
    });
    Cost {
        cpu: cpu_time().saturating_sub(began),
        peak_bytes: memory.bytes_max,
        result,
    }
}

/// Returns the CPU time of this thread, which does not depend on other load of the machine.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

impl Cost {
    fn verdict(&self) -> Result<(), String> {
        self.result.clone()?;
        if self.cpu > MAX_CPU {
            return Err(format!(
                "the case took {:?} where {MAX_CPU:?} are allowed",
                self.cpu
            ));
        }
        if self.peak_bytes > MAX_PEAK_BYTES {
            return Err(format!(
                "the case allocated {} bytes where {MAX_PEAK_BYTES} are allowed",
                self.peak_bytes
            ));
        }
        Ok(())
    }
}

/// Statistics of a fuzz test: the maximum resource use of a case, the number of accepted inputs, and how many inputs contained
/// each fragment that breaks parsers.
#[derive(Default)]
struct Statistics {
    cpu: Duration,
    peak_bytes: u64,
    accepted: u64,
    parts: BTreeMap<&'static str, u64>,
}

impl Statistics {
    fn add(&mut self, tape: Tape, cost: &Cost) {
        self.cpu = self.cpu.max(cost.cpu);
        self.peak_bytes = self.peak_bytes.max(cost.peak_bytes);
        self.accepted += u64::from(cost.result == Ok(true));
        for part in tape.into_noted() {
            *self.parts.entry(part).or_default() += 1;
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = serde_json::json!({
            "cpu_ms": self.cpu.as_millis() as u64,
            "peak_kib": self.peak_bytes >> 10,
            "accepted": self.accepted,
            "parts": self.parts,
        });
        write!(f, "fuzz-seen {parts}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{Shape, bytes, known};
    use std::collections::BTreeSet;

    #[test]
    fn a_case_that_exceeds_a_limit_fails_and_names_the_limit() {
        let spin = measure(|| cpu_time() > Duration::ZERO);
        assert_eq!(spin.verdict(), Ok(()));

        let slow = Cost {
            cpu: MAX_CPU + Duration::from_millis(1),
            ..spin
        };
        assert!(slow.verdict().unwrap_err().contains("5.001s"));
        let large = measure(|| hold(MAX_PEAK_BYTES as usize + 1));
        assert!(large.verdict().unwrap_err().contains("268435457 bytes"));
        let failed = measure(|| panic!("no"));
        assert_eq!(failed.verdict(), Err("no".to_owned()));
    }

    /// Allocates and frees memory.
    fn hold(bytes: usize) -> bool {
        std::hint::black_box(vec![0_u8; bytes]).len() == bytes
    }

    #[test]
    fn memory_that_a_case_frees_counts_at_its_peak_only() {
        let cost = measure(|| (0..1_000).all(|_| hold(1 << 20)));

        assert!(
            (1 << 20..2 << 20).contains(&cost.peak_bytes),
            "{}",
            cost.peak_bytes
        );
    }

    #[test]
    fn a_failure_shows_the_smallest_input_that_fails() {
        let failed = run(
            |tape| tape.below(1_000),
            |number| {
                assert!(*number < 500, "large");
                true
            },
        );

        let failure = failed.err().unwrap();
        assert!(failure.contains("large"), "{failure}");
        assert!(failure.contains("input (3 bytes): 500"), "{failure}");
    }

    #[test]
    fn the_generator_of_json_produces_every_known_part() {
        let mut seen = BTreeSet::new();
        let mut state = 1_u32;
        for _ in 0..25_000 {
            let choices = std::iter::repeat_with(|| random(&mut state));
            // The first choice sets the share of bad parts, here to the highest value.
            let choices = std::iter::once(3).chain(choices);
            let mut tape = Tape::new(choices.take(Tape::MAX_CHOICES).collect());
            let text = Shape::List(&Shape::Any).text(&mut tape);
            bytes(&mut tape, &text);
            seen.extend(tape.into_noted());
        }

        let never: Vec<_> = known::names().filter(|name| !seen.contains(name)).collect();
        assert_eq!(never, Vec::<&str>::new());
    }

    /// Returns the next number of a linear congruential generator.
    fn random(state: &mut u32) -> u16 {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*state >> 16) as u16
    }
}
