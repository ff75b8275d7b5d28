//! What is known of the commands that share a key.

use crate::command::Command;
use crate::plan::{Absorbed, MEASURED, Plan, Plans};
use crate::rules::{COMPONENTS, Id, Stage};
use crate::stats::{Squares, Stat};
use ntp_record::Flags;
use std::collections::BTreeMap;

/// Estimated difference of the clocks at a command, ns: target minus host, and its bound.
#[derive(Clone, Copy, Debug)]
pub struct Offset {
    /// Target's clock minus host's.
    pub ns: i64,
    /// Half width of the interval that holds it; `None`: no bound.
    pub bound: Option<i64>,
}

impl Offset {
    /// From the fields of a joined record.
    pub fn new(ns: i64, bound: u64) -> Self {
        Offset {
            ns,
            bound: i64::try_from(bound).ok(),
        }
    }
}

/// A command to take in.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The command.
    pub command: Command<'a>,
    /// Of a joined one.
    pub offset: Option<Offset>,
}

/// Commands worked on at once: their timestamps fit into the nearest cache.
pub const BATCH: usize = 64;

/// One time of each command of a batch.
type Column = [i64; BATCH];

/// Room to work in, kept from batch to batch.
#[derive(Debug)]
pub struct Scratch {
    times: Box<[Column; MEASURED]>,
    stages: [Column; Stage::ALL.len()],
    sum: Column,
    total: Column,
}

impl Default for Scratch {
    fn default() -> Self {
        let column = [0; BATCH];
        Scratch {
            times: Box::new([column; MEASURED]),
            stages: [column; Stage::ALL.len()],
            sum: column,
            total: column,
        }
    }
}

fn add(into: &mut [i64], from: &Column) {
    into.iter_mut()
        .zip(from)
        .for_each(|(into, from)| *into = into.wrapping_add(*from));
}

/// Counters over all groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checks {
    /// Commands whose components did not add up.
    pub sum_mismatches: u64,
    /// Negative times of the computed wire.
    pub wire_negative: u64,
    /// Negative times elsewhere.
    pub out_of_order: u64,
    /// Commands in causal order over both machines.
    pub in_order: u64,
    /// Commands that could be checked for it.
    pub in_order_of: u64,
}

/// Statistics of a group.
#[derive(Debug, Default)]
pub struct Group {
    /// End-to-end time.
    pub latency: Stat,
    /// For its standard deviation.
    pub squares: Squares,
    /// Number of commands the sampled ones stand for; 0 when the sampling is not known.
    pub standing_for: u64,
    /// Bytes they stand for.
    pub bytes: u128,
    /// Commands with the target's side.
    pub with_target: u64,
    /// Ended with an error.
    pub failed: u64,
    /// Tried again.
    pub retried: u64,
    /// Timed out.
    pub timed_out: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Largest bound of an estimated offset, ns.
    pub bound: u64,
    components: Vec<Option<Box<Stat>>>,
    stages: [Option<Box<Stat>>; Stage::ALL.len()],
    /// Commands by number of plan: see [`Group::settle`].
    plans: Vec<u64>,
    absorbed: BTreeMap<Absorbed, u64>,
}

impl Group {
    /// Takes in commands of one plan, each of which stands for `sampling` commands.
    ///
    /// Component by component, not command by command: so the few statistics
    /// in use stay close, and a command costs some hundred nanoseconds less.
    pub fn record(
        &mut self,
        samples: &[Sample<'_>],
        number: u32,
        plan: &Plan,
        sampling: u32,
        scratch: &mut Scratch,
        checks: &mut Checks,
    ) {
        for samples in samples.chunks(BATCH) {
            self.endings(samples, sampling);
            self.times(samples, plan, scratch, checks);
            self.inside(samples, plan, scratch, checks);
            self.ways(samples, plan, scratch, checks);
        }
        self.with_target += u64::from(plan.with_target) * samples.len() as u64;
        if self.plans.len() <= number as usize {
            self.plans.resize(number as usize + 1, 0);
        }
        self.plans[number as usize] += samples.len() as u64;
    }

    /// How the commands ended, and what they stand for.
    fn endings(&mut self, samples: &[Sample<'_>], sampling: u32) {
        self.standing_for += u64::from(sampling) * samples.len() as u64;
        let mut bytes = 0u64;
        for sample in samples {
            let record = sample.command.main();
            bytes += u64::from(record.bytes);
            self.failed += u64::from(record.status != 0);
            self.retried += u64::from(record.has(Flags::Retried) || record.retries != 0);
            self.timed_out += u64::from(record.has(Flags::TimedOut));
            self.cancelled += u64::from(record.has(Flags::Cancelled));
        }
        self.bytes += u128::from(bytes) * u128::from(sampling);
    }

    /// Components, stages, and whether they add up to the end-to-end time.
    fn times(
        &mut self,
        samples: &[Sample<'_>],
        plan: &Plan,
        scratch: &mut Scratch,
        checks: &mut Checks,
    ) {
        let n = samples.len();
        let Scratch {
            times,
            stages,
            sum,
            total,
        } = scratch;
        for (total, sample) in total.iter_mut().zip(samples) {
            *total = difference(&sample.command, plan.begin, plan.end);
        }
        self.latency.record_all(&total[..n]);
        self.squares.record_all(&total[..n]);
        times[..plan.measured.len()]
            .iter_mut()
            .for_each(|times| times[..n].fill(0));
        for term in &plan.terms {
            for (time, sample) in times[usize::from(term.measured)].iter_mut().zip(samples) {
                *time = time.wrapping_add(difference(&sample.command, term.from, term.to));
            }
        }
        let mut seen = 0u8;
        sum[..n].fill(0);
        for (place, measured) in plan.measured.iter().enumerate() {
            let own = times[place];
            let negative = self.component_mut(measured.id).record_all(&own[..n]);
            if measured.computed {
                checks.wire_negative += negative;
            } else if !measured.of_parts {
                checks.out_of_order += negative;
            }
            match measured.parent {
                Some(parent) => add(&mut times[usize::from(parent)][..n], &own),
                None => {
                    let stage = measured.stage as usize;
                    if seen >> stage & 1 == 0 {
                        stages[stage][..n].fill(0);
                        seen |= 1 << stage;
                    }
                    add(&mut stages[stage][..n], &own);
                    add(&mut sum[..n], &own);
                }
            }
        }
        for (stage, times) in stages.iter().enumerate() {
            if seen >> stage & 1 != 0 {
                self.stages[stage]
                    .get_or_insert_default()
                    .record_all(&times[..n]);
            }
        }
        let mismatches = sum[..n]
            .iter()
            .zip(&total[..n])
            .filter(|(sum, total)| sum != total)
            .count();
        debug_assert_eq!(mismatches, 0, "components by {plan:?}");
        checks.sum_mismatches += mismatches as u64;
    }

    /// Informative differences.
    fn inside(
        &mut self,
        samples: &[Sample<'_>],
        plan: &Plan,
        scratch: &mut Scratch,
        checks: &mut Checks,
    ) {
        for inside in &plan.inside {
            let mut n = 0;
            for sample in samples {
                let time = difference(&sample.command, inside.from, inside.to);
                scratch.total[n] = time;
                n += usize::from(time != 0 || !inside.not_zero);
            }
            if n > 0 {
                checks.out_of_order += self
                    .component_mut(inside.id)
                    .record_all(&scratch.total[..n]);
            }
        }
    }

    /// The two directions of the wire, and whether cause came before effect.
    fn ways(
        &mut self,
        samples: &[Sample<'_>],
        plan: &Plan,
        scratch: &mut Scratch,
        checks: &mut Checks,
    ) {
        if plan.crossings.is_empty() {
            return;
        }
        let bounded = || {
            samples
                .iter()
                .filter_map(|s| s.offset.and_then(|o| Some((&s.command, o.ns, o.bound?))))
        };
        let mut in_order = [true; BATCH];
        let mut came_in: Option<u8> = None;
        let mut n = 0;
        for crossing in &plan.crossings {
            n = 0;
            for (command, ns, bound) in bounded() {
                let time = crossing.time(difference(command, crossing.from, crossing.to), ns);
                in_order[n] &= time >= -bound;
                // On each machine a command arrives before it goes on.
                in_order[n] &=
                    came_in.is_none_or(|came_in| difference(command, came_in, crossing.from) >= 0);
                scratch.total[n] = time;
                n += 1;
            }
            came_in = Some(crossing.to);
            if let Some(way) = crossing.way.filter(|_| n > 0) {
                self.component_mut(way).record_all(&scratch.total[..n]);
            }
        }
        self.bound = bounded().fold(self.bound, |most, (.., bound)| {
            most.max(bound.unsigned_abs())
        });
        checks.in_order_of += n as u64;
        checks.in_order += in_order[..n].iter().filter(|in_order| **in_order).count() as u64;
    }

    #[inline]
    fn component_mut(&mut self, id: Id) -> &mut Stat {
        if self.components.is_empty() {
            self.components.resize_with(COMPONENTS.len(), || None);
        }
        self.components[id as usize].get_or_insert_default()
    }

    /// Statistics of a component, when any command had it.
    pub fn component(&self, id: Id) -> Option<&Stat> {
        self.components.get(id as usize)?.as_deref()
    }

    /// Statistics of a stage, when any command had it.
    pub fn stage(&self, stage: Stage) -> Option<&Stat> {
        self.stages[stage as usize].as_deref()
    }

    /// Components not measured, and for how many commands; after [`Group::settle`].
    pub fn absorbed(&self) -> &BTreeMap<Absorbed, u64> {
        &self.absorbed
    }

    /// Counts what the plans used so far left out, so that plans can be forgotten.
    pub fn settle(&mut self, plans: &Plans) {
        for (number, times) in self.plans.iter_mut().enumerate() {
            if *times != 0
                && let Ok(plan) = plans.get(number as u32)
            {
                for absorbed in &plan.absorbed {
                    *self.absorbed.entry(*absorbed).or_default() += *times;
                }
            }
            *times = 0;
        }
    }

    /// Takes in another's commands; both must be settled.
    pub fn merge(&mut self, other: &Group) {
        let Group {
            latency,
            squares,
            standing_for,
            bytes,
            with_target,
            failed,
            retried,
            timed_out,
            cancelled,
            bound,
            components,
            stages,
            plans: _,
            absorbed,
        } = other;
        self.latency.merge(latency);
        self.squares.merge(*squares);
        self.standing_for += standing_for;
        self.bytes += bytes;
        self.with_target += with_target;
        self.failed += failed;
        self.retried += retried;
        self.timed_out += timed_out;
        self.cancelled += cancelled;
        self.bound = self.bound.max(*bound);
        for (component, stat) in COMPONENTS.iter().zip(components) {
            if let Some(stat) = stat {
                self.component_mut(component.id).merge(stat);
            }
        }
        for (into, stat) in self.stages.iter_mut().zip(stages) {
            if let Some(stat) = stat {
                into.get_or_insert_default().merge(stat);
            }
        }
        for (absorbed, times) in absorbed {
            *self.absorbed.entry(*absorbed).or_default() += times;
        }
    }
}

#[inline]
fn difference(command: &Command<'_>, from: u8, to: u8) -> i64 {
    // Damaged timestamps may be anything: wrapping keeps the sum exact and never panics.
    command.at(to).wrapping_sub(command.at(from)) as i64
}
