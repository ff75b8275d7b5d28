//! What is known of the commands that share a key.

use crate::plan::{Absorbed, Command, MEASURED, Plan, Plans};
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
    /// Takes in a command that stands for `sampling` commands.
    #[inline]
    pub fn record(
        &mut self,
        command: &Command<'_>,
        number: u32,
        plan: &Plan,
        offset: Option<Offset>,
        sampling: u32,
        checks: &mut Checks,
    ) {
        let record = command.main();
        let total = difference(command, plan.begin, plan.end);
        self.latency.record(total);
        self.squares.record(total);
        self.standing_for += u64::from(sampling);
        self.bytes += u128::from(record.bytes) * u128::from(sampling);
        self.with_target += u64::from(plan.with_target);
        self.failed += u64::from(record.status != 0);
        self.retried += u64::from(record.has(Flags::Retried) || record.retries != 0);
        self.timed_out += u64::from(record.has(Flags::TimedOut));
        self.cancelled += u64::from(record.has(Flags::Cancelled));
        if self.plans.len() <= number as usize {
            self.plans.resize(number as usize + 1, 0);
        }
        self.plans[number as usize] += 1;

        let mut times = [0i64; MEASURED];
        for term in &plan.terms {
            let time = &mut times[usize::from(term.measured)];
            *time = time.wrapping_add(difference(command, term.from, term.to));
        }
        let mut sum = 0i64;
        let mut stages = [0i64; Stage::ALL.len()];
        let mut seen = 0u8;
        for (place, measured) in plan.measured.iter().enumerate() {
            let time = times[place];
            match measured.parent {
                Some(parent) => {
                    let parent = &mut times[usize::from(parent)];
                    *parent = parent.wrapping_add(time);
                }
                None => {
                    sum = sum.wrapping_add(time);
                    let stage = measured.stage as usize;
                    stages[stage] = stages[stage].wrapping_add(time);
                    seen |= 1 << stage;
                }
            }
            if time < 0 {
                checks.wire_negative += u64::from(measured.computed);
                checks.out_of_order += u64::from(!measured.computed && !measured.of_parts);
            }
            self.component_mut(measured.id).record(time);
        }
        for (stage, time) in stages.into_iter().enumerate() {
            if seen >> stage & 1 != 0 {
                self.stages[stage].get_or_insert_default().record(time);
            }
        }
        debug_assert_eq!(sum, total, "components of {record:?} by {plan:?}");
        checks.sum_mismatches += u64::from(sum != total);
        for inside in &plan.inside {
            let time = difference(command, inside.from, inside.to);
            if time != 0 || !inside.not_zero {
                checks.out_of_order += u64::from(time < 0);
                self.component_mut(inside.id).record(time);
            }
        }
        if let Some(offset) = offset {
            self.ways(command, plan, offset, checks);
        }
    }

    /// The two directions of the wire, and whether cause came before effect.
    fn ways(&mut self, command: &Command<'_>, plan: &Plan, offset: Offset, checks: &mut Checks) {
        let Some(bound) = offset.bound else { return };
        if plan.crossings.is_empty() {
            return;
        }
        let mut in_order = true;
        let mut came_in = None;
        for crossing in &plan.crossings {
            let time = crossing.time(difference(command, crossing.from, crossing.to), offset.ns);
            in_order &= time >= -bound;
            // On each machine a command arrives before it goes on.
            in_order &=
                came_in.is_none_or(|came_in| difference(command, came_in, crossing.from) >= 0);
            came_in = Some(crossing.to);
            if let Some(way) = crossing.way {
                self.component_mut(way).record(time);
            }
        }
        self.bound = self.bound.max(bound.unsigned_abs());
        checks.in_order_of += 1;
        checks.in_order += u64::from(in_order);
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
