//! Check that a campaign injected its planned faults, so that it could have found a broken promise.

use super::Check;
use crate::history::End;
use crate::oracle::Harm;
use crate::point::POINTS;

impl Check<'_> {
    /// Checks that kills hit executions, points were reached, and pauses led to takeovers.
    pub(super) fn coverage(&mut self) {
        let kills = self.history.ends.values();
        let mut all = 0;
        let kills: Vec<usize> = kills
            .filter_map(|end| match end {
                End::Killed {
                    executing,
                    locked_out,
                } => {
                    all += 1;
                    // A worker executes nothing while the store is unavailable.
                    (!locked_out || *executing > 0).then_some(*executing)
                }
                End::AtPoint | End::Terminated { .. } | End::ByItself => None,
            })
            .collect();
        let landed = kills.iter().filter(|executing| **executing > 0).count();
        if all < self.settings.kills * 9 / 10 {
            self.unshown(format!("only {all} kills"));
        }
        const FEW: usize = 10;
        if kills.len() >= FEW && landed * 10 < kills.len() * 7 {
            self.unshown(format!(
                "only {landed} of {} kills hit a worker that executed",
                kills.len()
            ));
        }
        if self.settings.each_point > 0 {
            for point in POINTS {
                let reached = self.history.points.get(point.name).copied();
                if u64::from(reached.unwrap_or(0)) < self.settings.each_point {
                    self.unshown(format!(
                        "point {} was reached {reached:?} times",
                        point.name
                    ));
                }
            }
        }
        if self.settings.stops > 0 && self.history.overtaken == 0 {
            self.unshown("no worker took over a run of a paused worker");
        }
        self.harms();
    }

    /// Checks that all planned faults of servers, connections and the clock happened.
    fn harms(&mut self) {
        let planned = self.settings.servers;
        for (harm, least) in [
            (Harm::PostgresRestarted, planned.postgres_restarts),
            (Harm::NatsRestarted, planned.nats_restarts),
            (Harm::StreamDeleted, planned.streams_deleted),
            (Harm::AnswerLost, planned.answers_lost / 2),
            (Harm::Cut, planned.cuts),
            (Harm::Slow, planned.slow),
            (Harm::ClockJumped, self.settings.jumps),
        ] {
            let done = self.history.harms.get(&harm).copied().unwrap_or_default();
            if done < least {
                self.unshown(format!("{}: {done} times instead of {least}", harm.name()));
            }
        }
    }
}
