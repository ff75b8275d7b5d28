//! From statistics to rows.

use crate::group::Group;
use crate::littles_law::mean_in_place;
use crate::plan::{Absorbed, Why};
use crate::rules::{COMPONENTS, Component, Id, Place, Stage, title};
use crate::stats::{Stat, ratio};
use ntp_record::Role;
use ntp_record::row::{self, Distribution, Key, Kind, Machine, RateIs, Row, Span, View};
use std::collections::BTreeMap;

/// A rate and what it rests on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    /// Commands a second.
    pub per_second: Option<f64>,
    /// Bytes a second.
    pub bytes_per_second: Option<f64>,
    /// Counted or estimated.
    pub is: Option<RateIs>,
    /// Commands counted.
    pub commands: Option<u64>,
    /// Seconds over which it is taken.
    pub seconds: Option<f64>,
}

/// What the rows of one group need beside its statistics.
#[derive(Clone, Debug)]
pub struct About<'a> {
    /// Number of the group.
    pub number: u32,
    /// Interval, or the whole recording.
    pub interval: Option<Span>,
    /// Which machines saw it.
    pub view: View,
    /// Its key.
    pub key: Key,
    /// Whether it is the group of what found none.
    pub other: bool,
    /// Its rate.
    pub rate: Rate,
    /// Machines of the report.
    pub hosts: &'a [Machine],
    /// Machines of the report.
    pub targets: &'a [Machine],
    /// Reasons of the recordings for points they could not take.
    pub missing: &'a BTreeMap<(bool, String), String>,
}

/// The rows of a group: itself, its stages, its components.
pub fn rows(group: &Group, about: &About<'_>) -> Vec<Row> {
    let mut rows = vec![Row::Group(group_row(group, about))];
    rows.extend(stages(group, about).map(Row::Stage));
    rows.extend(components(group, about).into_iter().map(Row::Component));
    rows
}

fn group_row(group: &Group, about: &About<'_>) -> row::Group {
    let latency = Distribution {
        stddev_ns: group.squares.deviation(&group.latency),
        ..group.latency.distribution()
    };
    let largest = Stage::ALL
        .iter()
        .filter_map(|(stage, _)| group.stage(*stage).map(|stat| (stat.sum(), *stage)))
        .max_by_key(|(sum, stage)| (*sum, std::cmp::Reverse(*stage)))
        .map(|(_, stage)| stage);
    row::Group {
        group: about.number,
        interval: about.interval,
        key: about.key.clone(),
        view: about.view,
        other: about.other,
        commands: about.rate.commands,
        rate: about.rate.per_second,
        rate_is: about.rate.is,
        bytes_per_s: about.rate.bytes_per_second,
        seconds: about.rate.seconds,
        l: l(group, about, &group.latency),
        with_target: group.with_target,
        failed: group.failed,
        retried: group.retried,
        timed_out: group.timed_out,
        cancelled: group.cancelled,
        largest: largest.map(|stage| stage_title(stage, about)),
        largest_share: largest.and_then(|stage| share(group, group.stage(stage)?)),
        latency,
    }
}

fn stage_title(stage: Stage, about: &About<'_>) -> String {
    title(
        stage,
        about.view,
        about.hosts.first(),
        about.targets.first(),
    )
}

/// Part of the group's end-to-end time; `None` when that is 0.
fn share(group: &Group, stat: &Stat) -> Option<f64> {
    let whole = group.latency.sum();
    (whole != 0).then(|| stat.sum() as f64 / whole as f64)
}

/// Mean number of commands there: the time of those that pass it, spread over all of the group.
fn l(group: &Group, about: &About<'_>, stat: &Stat) -> Option<f64> {
    let rate = about.rate.per_second?;
    (group.latency.n() > 0).then(|| mean_in_place(rate, ratio(stat.sum(), group.latency.n())))
}

fn stages<'a>(group: &'a Group, about: &'a About<'_>) -> impl Iterator<Item = row::Stage> + 'a {
    Stage::ALL.iter().filter_map(move |(stage, name)| {
        let stat = group.stage(*stage)?;
        Some(row::Stage {
            group: about.number,
            interval: about.interval,
            stage: (*name).to_owned(),
            title: stage_title(*stage, about),
            per_command_ns: ratio(stat.sum(), group.latency.n()),
            share: share(group, stat),
            l: l(group, about, stat),
            time: stat.distribution(),
        })
    })
}

/// Components in path order, each followed by what belongs to it.
fn components(group: &Group, about: &About<'_>) -> Vec<row::Component> {
    let missing = missing(group);
    let has_row = |id: Id| group.component(id).is_some() || missing.contains_key(&id);
    let belongs_to = |component: &Component| match component.place {
        Place::Sum(_) => None,
        Place::Part(_, parent) | Place::Way(parent, _) => Some(parent),
        Place::Within(parents, ..) => parents.iter().copied().find(|parent| has_row(*parent)),
    };
    let mut rows = Vec::new();
    for component in COMPONENTS
        .iter()
        .filter(|c| has_row(c.id) && belongs_to(c).is_none())
    {
        rows.push(component_row(group, about, component, None, &missing));
        for below in COMPONENTS
            .iter()
            .filter(|c| has_row(c.id) && belongs_to(c) == Some(component.id))
        {
            rows.push(component_row(
                group,
                about,
                below,
                Some(component),
                &missing,
            ));
        }
    }
    rows
}

/// Of each component not always measured: how often, and the most frequent reason.
fn missing(group: &Group) -> BTreeMap<Id, (u64, Absorbed)> {
    let mut missing: BTreeMap<Id, (u64, u64, Absorbed)> = BTreeMap::new();
    for (absorbed, times) in group.absorbed() {
        let entry = missing.entry(absorbed.id).or_insert((0, 0, *absorbed));
        entry.0 += times;
        if *times > entry.1 {
            (entry.1, entry.2) = (*times, *absorbed);
        }
    }
    missing
        .into_iter()
        .map(|(id, (all, _, absorbed))| (id, (all, absorbed)))
        .collect()
}

fn component_row(
    group: &Group,
    about: &About<'_>,
    component: &Component,
    parent: Option<&Component>,
    missing: &BTreeMap<Id, (u64, Absorbed)>,
) -> row::Component {
    let stat = group.component(component.id);
    let (kind, estimated) = match component.place {
        Place::Sum(_) => (Kind::Sum, false),
        Place::Part(..) => (Kind::Part, false),
        Place::Within(..) => (Kind::Within, false),
        Place::Way(..) => (Kind::Within, true),
    };
    let (times, absorbed) = missing
        .get(&component.id)
        .map_or((0, None), |(times, absorbed)| (*times, Some(absorbed)));
    row::Component {
        group: about.number,
        interval: about.interval,
        component: component.name.to_owned(),
        stage: component.stage.name().to_owned(),
        kind,
        parent: parent.map(|parent| parent.name.to_owned()),
        share: stat.and_then(|stat| share(group, stat)),
        l: stat.and_then(|stat| l(group, about, stat)),
        time: stat.map_or_else(Distribution::default, Stat::distribution),
        missing: times,
        reason: absorbed.map(|absorbed| reason(absorbed, about)),
        shows_in: absorbed
            .and_then(|absorbed| absorbed.shows_in)
            .map(|id| id.component().name.to_owned()),
        bound_ns: (estimated && stat.is_some()).then_some(group.bound),
    }
}

fn reason(absorbed: &Absorbed, about: &About<'_>) -> String {
    let point = match absorbed.why {
        Why::Passthrough => return "passthrough: not through the block layer".to_owned(),
        Why::Retried => return "retried: the driver's start is the last attempt's".to_owned(),
        Why::Point(_) | Why::Tls(_) => absorbed.why.point(),
    };
    let Some(point) = point else {
        return "not recorded".to_owned();
    };
    let (side, on_host) = match point.side {
        Role::Host => ("host", true),
        Role::Target => ("target", false),
    };
    if let Why::Tls(_) = absorbed.why {
        return format!(
            "{side} point {} not recorded: TLS hides where a PDU begins in the stream",
            point.name
        );
    }
    match about.missing.get(&(on_host, point.name.to_owned())) {
        Some(reason) => format!("{side} point {} not recorded: {reason}", point.name),
        None => format!("{side} point {} not recorded", point.name),
    }
}
