//! Report of a campaign, printed as JSON.

use crate::check::Verdict;
use crate::history::{End, History};
use crate::settings::Settings;
use crate::snapshot::{Snapshot, name_of};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counts and verdict of a campaign.
#[derive(Debug, Serialize)]
pub struct Report {
    seed: u64,
    on: &'static str,
    deaf: bool,
    seconds: u64,
    bug: Option<String>,
    triggers: usize,
    unclear: usize,
    runs: BTreeMap<String, usize>,
    answers: usize,
    executions: usize,
    executions_per_trigger: f64,
    processes: usize,
    kills: usize,
    kills_while_executing: usize,
    kills_at_points: BTreeMap<String, u32>,
    stops: u32,
    overtaken_while_stopped: u32,
    told_to_end: usize,
    slowest_end_ms: u64,
    died_by_themselves: usize,
    locks: u32,
    harms: BTreeMap<&'static str, u64>,
    canaries: u64,
    taken_from_the_living: usize,
    inbox: u64,
    dead_letters: usize,
    /// Result of the check.
    pub verdict: Verdict,
}

impl Report {
    /// Computes the counts of a campaign.
    pub fn new(
        settings: &Settings,
        history: &History,
        snapshot: &Snapshot,
        took: Duration,
        verdict: Verdict,
    ) -> Self {
        let mut runs = BTreeMap::new();
        for row in snapshot.rows.values().flatten() {
            *runs.entry(name_of(row.state).to_owned()).or_default() += 1;
        }
        let ends = || history.ends.values();
        let executing = |end: &&End| matches!(end, End::Killed { executing, .. } if *executing > 0);
        let told = ends().filter_map(|end| match end {
            End::Terminated { took, .. } => Some(*took),
            End::Killed { .. } | End::AtPoint | End::ByItself => None,
        });
        let executions = history.executions();
        let runs_made: usize = snapshot.rows.values().map(Vec::len).sum();
        Self {
            seed: settings.seed,
            on: settings.on.name(),
            deaf: settings.deaf,
            seconds: took.as_secs(),
            bug: settings.bug.clone(),
            triggers: history.accepted.len(),
            unclear: history.unclear.values().sum(),
            runs,
            answers: snapshot.answers.values().map(Vec::len).sum(),
            executions,
            executions_per_trigger: (executions as f64 / runs_made.max(1) as f64 * 1_000.0).round()
                / 1_000.0,
            processes: history.spawned.len(),
            kills: ends()
                .filter(|end| matches!(end, End::Killed { .. }))
                .count(),
            kills_while_executing: ends().filter(executing).count(),
            kills_at_points: history.points.clone(),
            stops: history.stops,
            overtaken_while_stopped: history.overtaken,
            told_to_end: told.clone().count(),
            slowest_end_ms: told.max().unwrap_or(0),
            died_by_themselves: ends().filter(|end| **end == End::ByItself).count(),
            locks: history.locks,
            harms: history
                .harms
                .iter()
                .map(|(harm, times)| (harm.name(), *times))
                .collect(),
            canaries: history.canaries,
            taken_from_the_living: history.stolen.len(),
            inbox: history.inbox,
            dead_letters: snapshot.letters.len(),
            verdict,
        }
    }
}
