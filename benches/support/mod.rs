//! Bench runner that compares several implementations of one task in one process.
//!
//! The speed of a machine changes: clocks throttle, and other programs start. So the sides of a comparison run in turn, round
//! after round, and each side reports its fastest round, which was disturbed least. Only the ratios are meaningful. Do not
//! compare a time with a time of another run or another machine.
//!
//! `cargo bench` measures. With `--quick` or `--test` (`cargo bench -- --quick`), with `BENCH_QUICK=1`
//! set, or without the `--bench` that only `cargo bench` passes (`cargo test --benches`), the bench runs a
//! single tiny round as a test of the bench itself. The figures of this round are meaningless.
//!
//! With `BENCH_FIGURES=1` set, each time is also printed as a line for programs, see [`figure`].
#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]

mod figures;
mod quick;

pub(crate) use figures::figure;
pub(crate) use quick::is_quick;
use std::{hint::black_box, time::Instant};

/// Runs every side `rounds` times `iterations` times, in turn. Prints the time of one iteration in the fastest round of each
/// side, and its ratio to the first side. Returns these times in nanoseconds, in the order of the sides.
///
/// A side passes its result to [`black_box`], because the compiler may otherwise remove the work. A side with async code blocks
/// on a current-thread runtime, and so do the sides that it is compared with, so that all of them include the same overhead:
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
