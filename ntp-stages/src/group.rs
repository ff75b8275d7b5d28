//! What is known of the commands that share a key.

use crate::batch::{BATCH, Batch, Ends, NO_BOUND, Times};
use crate::command::SLOTS;
use crate::plan::{Absorbed, MEASURED, Plan, Plans};
use crate::rules::{COMPONENTS, Id, Stage};
use crate::stats::{Squares, Stat};
use crate::time::Time;
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

/// Room to work in, kept from batch to batch.
#[derive(Debug, Default)]
pub struct Scratch {
    narrow: Columns<i32>,
    wide: Columns<i64>,
}

/// One time of each command of a batch.
type Column<T> = [T; BATCH];

/// The times of a batch, in columns.
#[derive(Debug)]
struct Columns<T> {
    /// Times of the points, by slot: what is needed of the commands, read once.
    at: Box<[Column<T>; SLOTS]>,
    /// Times of the components, by place in [`Plan::measured`].
    times: Box<[Column<T>; MEASURED]>,
    stages: [Column<T>; Stage::ALL.len()],
    sum: Column<T>,
    total: Column<T>,
    /// Offsets of the clocks and their bounds.
    offsets: Column<T>,
    bounds: Column<T>,
}

/// A command fits into 32 bits when on each machine all its points lie so
/// near to its first one, ns, and the offset of the clocks to what those two
/// differ by: no sum of a plan's differences is larger than 16 times as much.
const NEAR: u64 = 1 << 26;

impl<T: Time> Default for Columns<T> {
    fn default() -> Self {
        let column = [T::default(); BATCH];
        Columns {
            at: Box::new([column; SLOTS]),
            times: Box::new([column; MEASURED]),
            stages: [column; Stage::ALL.len()],
            sum: column,
            total: column,
            offsets: column,
            bounds: column,
        }
    }
}

impl<T: Time> Columns<T> {
    /// Reads what the plan needs of the commands; with `near`, as times since
    /// somewhat before the first point on each machine. Tells whether all are
    /// near to it.
    #[inline(always)]
    fn load(&mut self, commands: &[Times], plan: &Plan, near: bool) -> bool {
        let mut bases = [[0; BATCH]; 2];
        let mut all = 0;
        for (side, bases) in bases.iter_mut().enumerate() {
            let mut slots = plan.slots.iter().map(|slot| usize::from(*slot % 32));
            let Some(first) = slots.find(|slot| slot / 16 == side).filter(|_| near) else {
                continue;
            };
            for (base, times) in bases.iter_mut().zip(commands) {
                *base = times.at[side][first % 16].wrapping_sub(NEAR / 2);
            }
        }
        for slot in plan.slots.iter().map(|slot| usize::from(*slot % 32)) {
            let (side, point) = (slot / 16, slot % 16);
            let column = self.at[slot].iter_mut().zip(&bases[side]);
            for ((at, base), times) in column.zip(commands) {
                let since = times.at[side][point].wrapping_sub(*base);
                all |= since;
                *at = T::of(since as i64);
            }
        }
        if !plan.crossings.is_empty() {
            let known = self.offsets.iter_mut().zip(&mut self.bounds);
            let bases = bases[0].iter().zip(&bases[1]);
            for (((offset, bound), (host, target)), times) in known.zip(bases).zip(commands) {
                let apart = target.wrapping_sub(*host) as i64;
                let rest = match times.bound {
                    NO_BOUND => 0,
                    _ => times.offset.wrapping_sub(apart),
                };
                all |= rest.wrapping_add(NEAR as i64 / 2) as u64;
                all |= times.bound.wrapping_sub(NO_BOUND) as u64;
                (*offset, *bound) = (T::of(rest), T::of(times.bound));
            }
        }
        all < NEAR
    }
}

#[inline(always)]
fn subtract<T: Time>(into: &mut [T], at: &[Column<T>; SLOTS], from: u8, to: u8) {
    let (from, to) = (&at[usize::from(from)], &at[usize::from(to)]);
    for ((into, from), to) in into.iter_mut().zip(from).zip(to) {
        *into = to.minus(*from);
    }
}

#[inline(always)]
fn add<T: Time>(into: &mut [T], from: impl Iterator<Item = T>) {
    into.iter_mut()
        .zip(from)
        .for_each(|(into, from)| *into = into.plus(from));
}

/// Which columns hold something of this batch already.
#[derive(Default)]
struct Begun(u64);

impl Begun {
    fn has(&self, column: usize) -> bool {
        self.0 >> column & 1 != 0
    }

    /// Adds times to those of a column.
    #[inline(always)]
    fn add<T: Time>(&mut self, column: usize, into: &mut [T], from: impl Iterator<Item = T>) {
        if self.has(column) {
            add(into, from);
        } else {
            into.iter_mut()
                .zip(from)
                .for_each(|(into, from)| *into = from);
            self.0 |= 1 << column;
        }
    }
}

/// Moves the values that are wanted to the front; gives back how many.
#[inline(always)]
fn pick<T: Time>(values: &mut [T], wanted: impl Fn(usize, T) -> bool) -> usize {
    let mut n = 0;
    for place in 0..values.len() {
        let value = values[place];
        values[n] = value;
        n += usize::from(wanted(place, value));
    }
    n
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
    /// in use stay close, and times of many commands are taken at once.
    pub(crate) fn record(
        &mut self,
        batch: &Batch,
        plan: &Plan,
        sampling: u32,
        scratch: &mut Scratch,
        checks: &mut Checks,
    ) {
        let n = batch.times().len() as u64;
        let number = batch.place().plan as usize;
        if n == 0 {
            return;
        }
        self.ended(batch.ends(), u64::from(sampling), n);
        self.with_target += u64::from(plan.with_target) * n;
        if self.plans.len() <= number {
            self.plans.resize(number + 1, 0);
        }
        self.plans[number] += n;
        #[cfg(target_arch = "x86_64")]
        if wide() {
            // SAFETY: the CPU has what the function is compiled for.
            #[expect(unsafe_code, reason = "compiled for newer CPUs than the rest")]
            unsafe {
                self.batch_wide(batch.times(), plan, scratch, checks);
            };
            return;
        }
        self.batch(batch.times(), plan, scratch, checks);
    }

    /// [`Group::batch`] with instructions that take four times at once.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    fn batch_wide(
        &mut self,
        commands: &[Times],
        plan: &Plan,
        scratch: &mut Scratch,
        checks: &mut Checks,
    ) {
        self.batch(commands, plan, scratch, checks);
    }

    #[inline(always)]
    fn batch(
        &mut self,
        commands: &[Times],
        plan: &Plan,
        scratch: &mut Scratch,
        checks: &mut Checks,
    ) {
        let Scratch { narrow, wide } = scratch;
        if narrow.load(commands, plan, true) {
            self.columns(commands.len(), plan, narrow, checks);
        } else {
            wide.load(commands, plan, false);
            self.columns(commands.len(), plan, wide, checks);
        }
    }

    #[inline(always)]
    fn columns<T: Time>(
        &mut self,
        n: usize,
        plan: &Plan,
        columns: &mut Columns<T>,
        checks: &mut Checks,
    ) {
        self.times(n, plan, columns, checks);
        self.inside(n, plan, columns, checks);
        self.ways(n, plan, columns, checks);
    }

    /// How `n` commands ended, and what they stand for.
    fn ended(&mut self, ends: Ends, sampling: u64, n: u64) {
        let Ends {
            bytes,
            failed,
            retried,
            timed_out,
            cancelled,
        } = ends;
        self.standing_for += sampling * n;
        self.bytes += u128::from(bytes) * u128::from(sampling);
        self.failed += failed;
        self.retried += retried;
        self.timed_out += timed_out;
        self.cancelled += cancelled;
    }

    /// Components, stages, and whether they add up to the end-to-end time.
    #[inline(always)]
    fn times<T: Time>(
        &mut self,
        n: usize,
        plan: &Plan,
        columns: &mut Columns<T>,
        checks: &mut Checks,
    ) {
        let Columns {
            at,
            times,
            stages,
            sum,
            total,
            ..
        } = columns;
        let (total, sum) = (&mut total[..n], &mut sum[..n]);
        subtract(total, at, plan.begin, plan.end);
        self.latency.record_all(total);
        self.squares.record_all(total);
        let (mut measured, mut seen) = (Begun::default(), Begun::default());
        for term in &plan.terms {
            let (from, to) = (&at[usize::from(term.from)], &at[usize::from(term.to)]);
            let times = &mut times[usize::from(term.measured)][..n];
            let time = from.iter().zip(to).map(|(from, to)| to.minus(*from));
            measured.add(term.measured.into(), times, time);
        }
        for (place, of) in plan.measured.iter().enumerate() {
            let own = times[place];
            let own = &own[..n];
            let negative = self.component_mut(of.id).record_all(own);
            if of.computed {
                checks.wire_negative += negative;
            } else if !of.of_parts {
                checks.out_of_order += negative;
            }
            match of.parent.map(usize::from) {
                Some(parent) => measured.add(parent, &mut times[parent][..n], own.iter().copied()),
                None => seen.add(
                    of.stage as usize,
                    &mut stages[of.stage as usize][..n],
                    own.iter().copied(),
                ),
            }
        }
        sum.fill(T::default());
        for (stage, times) in stages.iter().enumerate() {
            if seen.has(stage) {
                let times = &times[..n];
                add(sum, times.iter().copied());
                self.stages[stage].get_or_insert_default().record_all(times);
            }
        }
        let pairs = sum.iter().zip(&*total);
        let mismatches = pairs.filter(|(sum, total)| sum != total).count();
        debug_assert_eq!(mismatches, 0, "components by {plan:?}");
        checks.sum_mismatches += mismatches as u64;
    }

    /// Informative differences.
    #[inline(always)]
    fn inside<T: Time>(
        &mut self,
        n: usize,
        plan: &Plan,
        columns: &mut Columns<T>,
        checks: &mut Checks,
    ) {
        let zero = T::default();
        for inside in &plan.inside {
            let times = &mut columns.total[..n];
            subtract(times, &columns.at, inside.from, inside.to);
            let n = match inside.not_zero {
                true if !times.iter().fold(false, |any, time| any | (*time != zero)) => 0,
                true => pick(times, |_, time| time != zero),
                false => n,
            };
            if n > 0 {
                checks.out_of_order += self.component_mut(inside.id).record_all(&times[..n]);
            }
        }
    }

    /// The two directions of the wire, and whether cause came before effect.
    #[inline(always)]
    fn ways<T: Time>(
        &mut self,
        n: usize,
        plan: &Plan,
        columns: &mut Columns<T>,
        checks: &mut Checks,
    ) {
        if plan.crossings.is_empty() {
            return;
        }
        let Columns {
            at,
            total,
            offsets,
            bounds,
            ..
        } = columns;
        let (offsets, bounds) = (&offsets[..n], &bounds[..n]);
        let zero = T::default();
        let bounded = |bound: &T| *bound >= zero;
        let all = bounds.iter().filter(|bound| bounded(bound)).count();
        // So far.
        let mut in_order = [true; BATCH];
        let in_order = &mut in_order[..n];
        let mut came_in: Option<u8> = None;
        for crossing in &plan.crossings {
            let times = &mut total[..n];
            // On each machine a command arrives before it goes on.
            if let Some(came_in) = came_in {
                subtract(times, at, came_in, crossing.from);
                for (in_order, time) in in_order.iter_mut().zip(&*times) {
                    *in_order &= *time >= zero;
                }
            }
            subtract(times, at, crossing.from, crossing.to);
            let known = offsets.iter().zip(bounds);
            for ((time, in_order), (ns, bound)) in times.iter_mut().zip(&mut *in_order).zip(known) {
                *time = crossing.time(*time, *ns);
                *in_order &= *time >= zero.minus(*bound);
            }
            came_in = Some(crossing.to);
            if let Some(way) = crossing.way.filter(|_| all > 0) {
                if all < n {
                    pick(times, |place, _| bounded(&bounds[place]));
                }
                self.component_mut(way).record_all(&times[..all]);
            }
        }
        let most = bounds.iter().fold(zero, |most, bound| most.max(*bound));
        self.bound = self.bound.max(most.into().unsigned_abs());
        checks.in_order_of += all as u64;
        let in_order = in_order.iter().zip(bounds);
        let in_order = in_order.filter(|(in_order, bound)| **in_order && bounded(bound));
        checks.in_order += in_order.count() as u64;
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

/// Whether the CPU has what [`Group::batch_wide`] needs: those since 2013 do.
#[cfg(target_arch = "x86_64")]
fn wide() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt")
}
