//! The bench runner: several ways to do one thing, measured against each other in one process.
//!
//! Machines drift: clocks throttle, neighbours wake up. So the sides of a comparison run in turn,
//! round after round, and each reports its fastest round, which is the one least disturbed. Even so the
//! times only mean something next to each other: read the ratios, and compare no time with one of
//! another run or another machine.
//!
//! `cargo bench` measures. With `--quick` or `--test` (`cargo bench -- --quick`), with `BENCH_QUICK=1`
//! set, or without the `--bench` that only `cargo bench` passes (`cargo test --benches`), it runs a
//! single tiny round, to prove that the bench still works; the figures of that say nothing.
//!
//! With `BENCH_FIGURES=1` set, each time is also printed as a line for programs, see [`figure`].
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

mod figures;
mod quick;

pub(crate) use figures::figure;
pub(crate) use quick::is_quick;
use std::{hint::black_box, time::Instant};

/// Runs every side `rounds` times `iterations` times, in turn, and prints for each the time one
/// iteration took in its fastest round, and how that compares with the first side. Returns these
/// times in nanoseconds, in the order of the sides.
///
/// A side hands its result to [`black_box`], or the compiler may remove the work. One that measures
/// async code blocks on a current-thread runtime, as do the sides it is compared with, so that all of
/// them pay for entering it:
///
/// ```ignore
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// support::compare("get", 20, 1_000, &mut [
///     ("memory", &mut || { black_box(runtime.block_on(memory.get(id))).ok(); }),
///     ("cached", &mut || { black_box(runtime.block_on(cached.get(id))).ok(); }),
/// ]);
/// ```
pub(crate) fn compare(
    name: &str,
    rounds: usize,
    iterations: u32,
    sides: &mut [(&str, &mut dyn FnMut())],
) -> Vec<f64> {
    let (rounds, iterations) = if is_quick() {
        (1, 1)
    } else {
        (rounds.max(1), iterations.max(1))
    };
    let mut fastest = vec![f64::INFINITY; sides.len()];
    for round in 0..=rounds {
        for ((_, side), best) in sides.iter_mut().zip(&mut fastest) {
            let time = nanoseconds_each(iterations, *side);
            let is_warm_up = round == 0;
            if !is_warm_up {
                *best = best.min(time);
            }
        }
    }

    println!("{name}");
    let first = fastest.first().copied().unwrap_or_default();
    for ((side, _), time) in sides.iter().zip(&fastest) {
        println!(
            "  {side:<32} {:>12}  {:>8.2}x",
            readable(*time),
            time / first
        );
        figure(&format!("{name}/{side}"), *time, "ns");
    }
    fastest
}

fn nanoseconds_each(iterations: u32, side: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..iterations {
        black_box(&mut *side)();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(iterations)
}

fn readable(nanoseconds: f64) -> String {
    if nanoseconds < 1_000.0 {
        format!("{nanoseconds:.1} ns")
    } else {
        format!("{:.2} us", nanoseconds / 1_000.0)
    }
}
