//! From a path and the points one command has to the differences to take.
//!
//! A plan is made once for each combination of points and kept, so that a
//! command costs a few subtractions.

use crate::command::{Command, Kind, SLOTS, slot};
use crate::paths::{PATHS, Path, Step};
use crate::rules::{
    COMPONENTS, Direction, HIDDEN_BY_TLS, Id, Place, Rank, Record as RecordWhen, Stage,
};
use crate::time::Time;
use ntp_record::{Point, Role, Transport};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// One difference, added to a component's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Where it begins.
    pub from: u8,
    /// Where it ends.
    pub to: u8,
    /// Place of the component in [`Plan::measured`].
    pub measured: u8,
}

/// A component that a plan measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Which.
    pub id: Id,
    /// Its stage.
    pub stage: Stage,
    /// For a part: place of its parent in [`Plan::measured`], which comes later.
    pub parent: Option<u8>,
    /// Sum of its parts.
    pub of_parts: bool,
    /// Computed over two clocks: may be negative.
    pub computed: bool,
}

/// A component that a command passes without its being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Absorbed {
    /// Which.
    pub id: Id,
    /// Component in which its time shows; `None` when it lies outside of what was seen.
    pub shows_in: Option<Id>,
    /// Why.
    pub why: Why,
}

/// Why a component was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// The point in this slot is absent.
    Point(u8),
    /// The point in this slot is absent, as it must be on a TLS connection.
    Tls(u8),
    /// A passthrough command does not pass the block layer as others do.
    Passthrough,
    /// Of a command that was retried only the last attempt has points.
    Retried,
}

impl Why {
    /// The point that is absent.
    pub fn point(self) -> Option<Point> {
        match self {
            Why::Point(slot) | Why::Tls(slot) => {
                let side = if slot < 16 { Role::Host } else { Role::Target };
                ntp_record::point::of(side, Transport::Tcp)
                    .get(usize::from(slot & 15))
                    .copied()
            }
            Why::Passthrough | Why::Retried => None,
        }
    }
}

/// A step over the wire: from one machine's clock to the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Where it begins.
    pub from: u8,
    /// Where it ends.
    pub to: u8,
    /// To the target or back.
    pub direction: Direction,
    /// Component of this direction alone.
    pub way: Option<Id>,
}

impl Crossing {
    /// Time of the way, ns, from the difference of the two clocks' readings
    /// and the estimated offset (target's clock minus host's).
    #[inline]
    pub(crate) fn time<T: Time>(&self, difference: T, offset: T) -> T {
        match self.direction {
            Direction::Out => difference.minus(offset),
            Direction::Back => difference.plus(offset),
        }
    }
}

/// Informative: a difference inside a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Which.
    pub id: Id,
    /// Where it begins.
    pub from: u8,
    /// Where it ends.
    pub to: u8,
    /// Not recorded when 0.
    pub not_zero: bool,
}

/// What to do with commands that have certain points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Slot of the first point: the command begins.
    pub begin: u8,
    /// Slot of the last point: the command ends.
    pub end: u8,
    /// Whether the target's side is in it.
    pub with_target: bool,
    /// Differences to take.
    pub terms: Vec<Term>,
    /// Components they add up to; parts before their parents.
    pub measured: Vec<Measured>,
    /// Components not measured.
    pub absorbed: Vec<Absorbed>,
    /// Steps over the wire.
    pub crossings: Vec<Crossing>,
    /// Informative differences.
    pub inside: Vec<Inside>,
    /// Every slot that the above refer to.
    pub slots: Vec<u8>,
}

/// Plans by what they depend on.
#[derive(Debug, Default)]
pub struct Plans {
    by_kind: FxHashMap<Kind, u32>,
    all: Vec<Result<Plan, &'static str>>,
}

/// Combinations of points kept at most; more than this is no recording but noise.
const KEPT: usize = 4096;

impl Plans {
    /// Number of the plan for a command, see [`Plans::get`].
    pub fn find(&mut self, command: &Command<'_>) -> u32 {
        let kind = command.kind();
        match self.by_kind.get(&kind) {
            Some(number) => *number,
            None => {
                let number = self.all.len() as u32;
                self.all.push(plan(kind));
                self.by_kind.insert(kind, number);
                number
            }
        }
    }

    /// A plan by its number, or what the command lacks.
    pub fn get(&self, number: u32) -> &Result<Plan, &'static str> {
        &self.all[number as usize]
    }

    /// Whether so many plans are kept that they should be thrown away.
    pub fn full(&self) -> bool {
        self.all.len() >= KEPT
    }

    /// Forgets all plans: their numbers are given anew.
    pub fn clear(&mut self) {
        *self = Plans::default();
    }
}

/// Makes the plan of a kind of command, or says what it lacks.
fn plan(kind: Kind) -> Result<Plan, &'static str> {
    let has = |point: Point| kind.present >> slot(point) & 1 != 0;
    let mut lacks = "a path";
    let path = PATHS
        .iter()
        .filter(|path| path.views.contains(&kind.view) && (kind.r2t || !path.r2t))
        .find(|path| {
            match path
                .needs
                .iter()
                .find(|need| !need.one_of.iter().any(|point| has(*point)))
            {
                Some(need) => {
                    lacks = need.what;
                    false
                }
                None => true,
            }
        })
        .ok_or(lacks)?;
    let mut builder = Builder::new(kind, path);
    builder.walk();
    builder.finish()
}

struct Builder<'a> {
    kind: Kind,
    path: &'a Path,
    steps: Vec<Step>,
    plan: Plan,
}

impl<'a> Builder<'a> {
    fn new(kind: Kind, path: &'a Path) -> Self {
        let resolve = |step: &Step| match step.unless {
            Some((when, other)) if kind.when & when as u8 != 0 => Step {
                component: other,
                ..*step
            },
            _ => *step,
        };
        let steps = path
            .steps
            .iter()
            .flat_map(|piece| piece.iter().map(resolve))
            .collect();
        let plan = Plan {
            begin: 0,
            end: 0,
            with_target: path.joined(),
            terms: Vec::new(),
            measured: Vec::new(),
            absorbed: Vec::new(),
            crossings: Vec::new(),
            inside: Vec::new(),
            slots: Vec::new(),
        };
        Builder {
            kind,
            path,
            steps,
            plan,
        }
    }

    fn has(&self, point: Point) -> bool {
        self.kind.present >> slot(point) & 1 != 0
    }

    /// Goes along the path; each gap between two points that are there becomes a term.
    fn walk(&mut self) {
        let mut last = self.has(self.path.from).then_some(self.path.from);
        let mut first_step = 0;
        for i in 0..self.steps.len() {
            let to = self.steps[i].to;
            if !self.has(to) {
                continue;
            }
            match last {
                Some(from) => self.gap(first_step, i, from, to),
                // Before the first point that is there.
                None => (first_step..=i).for_each(|i| self.absorb(i, None)),
            }
            if last.is_none() {
                self.plan.begin = slot(to);
            }
            last = Some(to);
            first_step = i + 1;
        }
        (first_step..self.steps.len()).for_each(|i| self.absorb(i, None));
        if self.has(self.path.from) {
            self.plan.begin = slot(self.path.from);
        }
        if let Some(last) = last {
            self.plan.end = slot(last);
        }
        self.retried();
    }

    /// The way to the driver of a retried command is within its earlier attempts.
    fn retried(&mut self) {
        let attempts = Id::EarlierAttempts;
        if !self.steps.iter().any(|step| step.component == attempts) {
            return;
        }
        let elsewhere = self.plan.absorbed.iter().find(|a| a.id == attempts);
        let shows_in = elsewhere.map_or(Some(attempts), |a| a.shows_in);
        self.plan.absorbed.push(Absorbed {
            id: Id::HostBlockSubmission,
            shows_in,
            why: if self.kind.passthrough {
                Why::Passthrough
            } else {
                Why::Retried
            },
        });
    }

    /// Steps `first..=last` lie between two points with none between them.
    fn gap(&mut self, first: usize, last: usize, from: Point, to: Point) {
        let winner = self.winner(first, last, from.side != to.side);
        let measured = self.measure(winner);
        self.plan.terms.push(Term {
            from: slot(from),
            to: slot(to),
            measured,
        });
        if from.side != to.side {
            self.plan.measured[usize::from(measured)].computed = true;
            let direction = if from.side == Role::Host {
                Direction::Out
            } else {
                Direction::Back
            };
            let is_way = |c: &&crate::rules::Component| c.place == Place::Way(winner, direction);
            let way = COMPONENTS.iter().find(is_way).map(|c| c.id);
            self.plan.crossings.push(Crossing {
                from: slot(from),
                to: slot(to),
                direction,
                way,
            });
        }
        for i in first..=last {
            if self.steps[i].component != winner {
                self.absorb(i, Some(winner));
            }
        }
    }

    /// Whose time a gap is. What crosses from clock to clock can only be the
    /// wire's, whose two ways cancel the difference of the clocks. Else the
    /// highest rank takes it; all parts of a component together are the
    /// component itself.
    fn winner(&self, first: usize, last: usize, crosses: bool) -> Id {
        let steps = &self.steps[first..=last];
        let mut best: Option<(Rank, Id)> = None;
        for step in steps {
            let (rank, id) = match step.component.component().place {
                Place::Part(rank, parent) if steps.len() > 1 && self.all_parts(parent, steps) => {
                    (rank, parent)
                }
                Place::Sum(rank) | Place::Part(rank, _) => (rank, step.component),
                Place::Within(..) | Place::Way(..) => continue,
            };
            let rank = if crosses && rank > Rank::Wire {
                Rank::Receive
            } else {
                rank
            };
            if best.is_none_or(|(highest, _)| rank > highest) {
                best = Some((rank, id));
            }
        }
        best.map_or(steps[0].component, |(_, id)| id)
    }

    fn all_parts(&self, parent: Id, steps: &[Step]) -> bool {
        let parts = |steps: &[Step]| {
            let of = |s: &&Step| matches!(s.component.component().place, Place::Part(_, p) if p == parent);
            steps.iter().filter(of).count()
        };
        parts(steps) == parts(&self.steps)
    }

    /// Place of a component among those measured.
    fn measure(&mut self, id: Id) -> u8 {
        if let Some(place) = self.plan.measured.iter().position(|m| m.id == id) {
            return place as u8;
        }
        let stage = id.component().stage;
        self.plan.measured.push(Measured {
            id,
            stage,
            parent: None,
            of_parts: false,
            computed: false,
        });
        (self.plan.measured.len() - 1) as u8
    }

    fn absorb(&mut self, i: usize, shows_in: Option<Id>) {
        let id = self.steps[i].component;
        if self.plan.absorbed.iter().any(|a| a.id == id) {
            return;
        }
        let before = if i == 0 {
            self.path.from
        } else {
            self.steps[i - 1].to
        };
        let absent = if self.has(self.steps[i].to) {
            before
        } else {
            self.steps[i].to
        };
        let block = matches!(id.component().place, Place::Sum(Rank::Block));
        let why = if self.kind.passthrough && block {
            Why::Passthrough
        } else if self.kind.tls && HIDDEN_BY_TLS.contains(&absent) {
            Why::Tls(slot(absent))
        } else {
            Why::Point(slot(absent))
        };
        self.plan.absorbed.push(Absorbed { id, shows_in, why });
    }

    fn finish(mut self) -> Result<Plan, &'static str> {
        // A component measured in one place and swallowed in another is measured.
        let measured: Vec<Id> = self.plan.measured.iter().map(|m| m.id).collect();
        self.plan.absorbed.retain(|a| !measured.contains(&a.id));
        for (place, id) in measured.iter().enumerate() {
            if let Place::Part(_, parent) = id.component().place {
                let parent = self.measure(parent);
                self.plan.measured[place].parent = Some(parent);
                self.plan.measured[usize::from(parent)].of_parts = true;
            }
        }
        self.insides();
        // The difference of the clocks must cancel, or the times are none.
        let out = |c: &&Crossing| c.direction == Direction::Out;
        let outs = self.plan.crossings.iter().filter(out).count();
        let balanced = self.plan.measured.iter().enumerate().all(|(place, _)| {
            let of_it = self
                .plan
                .terms
                .iter()
                .filter(|term| usize::from(term.measured) == place);
            of_it.fold(0, |sum, term| {
                sum + i32::from(term.from >> 4) - i32::from(term.to >> 4)
            }) == 0
        });
        if !balanced
            || outs * 2 != self.plan.crossings.len()
            || self.plan.begin >> 4 != self.plan.end >> 4
        {
            return Err("both ways over the wire");
        }
        self.plan.slots = self.slots();
        Ok(self.plan)
    }

    fn slots(&self) -> Vec<u8> {
        let plan = &self.plan;
        let terms = plan.terms.iter().flat_map(|term| [term.from, term.to]);
        let crossings = plan.crossings.iter().flat_map(|way| [way.from, way.to]);
        let inside = plan
            .inside
            .iter()
            .flat_map(|inside| [inside.from, inside.to]);
        let all = terms.chain(crossings).chain(inside);
        let all = all.chain([plan.begin, plan.end]);
        all.collect::<BTreeSet<u8>>().into_iter().collect()
    }

    fn insides(&mut self) {
        let on_path = |id: &Id| {
            self.plan.measured.iter().any(|m| m.id == *id)
                || self.plan.absorbed.iter().any(|a| a.id == *id)
        };
        for component in COMPONENTS {
            if let Place::Within(parents, from, to, when) = component.place
                && self.has(from)
                && self.has(to)
                && parents.iter().any(on_path)
            {
                let not_zero = when == RecordWhen::NotZero;
                let inside = Inside {
                    id: component.id,
                    from: slot(from),
                    to: slot(to),
                    not_zero,
                };
                self.plan.inside.push(inside);
            }
        }
    }
}

/// Room for a command's component times.
pub const MEASURED: usize = SLOTS + 4;

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
