//! Invariants of the tables of rules and paths.

use super::*;
use crate::paths::{PATHS, Path, Step};
use ntp_record::Role;

fn steps(path: &Path) -> Vec<Step> {
    path.steps
        .iter()
        .flat_map(|piece| piece.iter().copied())
        .collect()
}

#[test]
fn tables_are_in_order_and_names_are_unique() {
    for (i, component) in COMPONENTS.iter().enumerate() {
        assert_eq!(component.id as usize, i, "{}", component.name);
        assert_eq!(
            COMPONENTS
                .iter()
                .filter(|c| c.name == component.name)
                .count(),
            1,
            "{}",
            component.name
        );
        match component.place {
            Sum(_) => {}
            Part(_, parent) | Way(parent, _) => {
                assert!(matches!(parent.component().place, Sum(_)));
                assert!(
                    parent < component.id,
                    "{} comes before its parent",
                    component.name
                );
            }
            Within(parents, from, to, _) => {
                assert!(!parents.is_empty());
                assert_eq!(from.side, to.side, "{}: two clocks", component.name);
            }
        }
    }
    for (i, (stage, _)) in Stage::ALL.iter().enumerate() {
        assert_eq!(*stage as usize, i);
    }
    assert!(COMPONENTS.len() <= 64, "plans keep a bit for each");
}

#[test]
fn only_a_wire_crosses_from_one_machine_to_the_other_and_it_comes_back() {
    for path in PATHS {
        let mut from = path.from;
        let mut open = Vec::new();
        for step in steps(path) {
            if step.to.side != from.side {
                assert!(
                    matches!(step.component.component().place, Sum(Rank::Wire)),
                    "{}",
                    path.name
                );
                match open.pop() {
                    None => open.push(step.component),
                    Some(out) => assert_eq!(out, step.component, "{}", path.name),
                }
            } else {
                assert!(
                    step.to.index > from.index || from.side == Role::Host,
                    "{}",
                    path.name
                );
            }
            from = step.to;
        }
        assert!(
            open.is_empty(),
            "{}: the path ends on the other machine",
            path.name
        );
        assert_eq!(from.side, path.from.side);
    }
}

#[test]
fn every_component_is_on_a_path_or_inside_one() {
    let used: Vec<Id> = PATHS
        .iter()
        .flat_map(steps)
        .flat_map(|step| [Some(step.component), step.unless.map(|(_, id)| id)])
        .flatten()
        .collect();
    for component in COMPONENTS {
        let found = match component.place {
            Sum(_) => {
                used.contains(&component.id)
                    || COMPONENTS
                        .iter()
                        .any(|c| matches!(c.place, Part(_, parent) if parent == component.id))
            }
            Part(..) => used.contains(&component.id),
            Within(parents, ..) => parents.iter().all(|parent| used.contains(parent)),
            Way(parent, _) => used.contains(&parent),
        };
        assert!(found, "{} is never used", component.name);
    }
}
