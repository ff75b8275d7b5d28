//! What must hold of the table of hooks.

use ntp_ebpf::hooks::{How, Kind, Need, OBJECTS};

#[test]
fn every_object_has_one_last_hook_and_it_is_required_and_at_the_end() {
    for o in OBJECTS {
        let last: Vec<_> = o.hooks.iter().filter(|h| h.last).collect();
        assert_eq!(last.len(), 1, "{}", o.name);
        assert_eq!(last[0].need, Need::Required);
        assert_eq!(o.hooks.last().map(|h| h.handler), Some(last[0].handler));
    }
}

#[test]
fn handlers_are_unique_and_stand_ins_follow_what_they_stand_for() {
    for o in OBJECTS {
        for (i, h) in o.hooks.iter().enumerate() {
            assert!(!h.sites.is_empty(), "{}", h.handler);
            assert!(
                !o.hooks[..i].iter().any(|g| g.key() == h.key()),
                "{}",
                h.handler
            );
            if let Some(main) = h.stands_for {
                let main = o.hooks[..i].iter().find(|g| g.key() == main);
                let main = main.unwrap_or_else(|| panic!("{} before its main", h.handler));
                assert_eq!(main.gives, h.gives, "{}", h.handler);
            }
        }
    }
}

#[test]
fn every_point_of_a_side_has_a_hook_that_gives_it() {
    for o in OBJECTS {
        for p in ntp_record::point::of(o.role, o.transport) {
            assert!(
                o.hooks.iter().any(|h| h.gives.contains(p)),
                "{}: nothing gives {}",
                o.name,
                p.name
            );
        }
        for h in o.hooks {
            let points = ntp_record::point::of(o.role, o.transport);
            assert!(
                h.gives.iter().chain(h.helps).all(|p| points.contains(p)),
                "{}",
                h.handler
            );
        }
    }
}

#[test]
fn the_object_has_a_program_for_every_way_to_hook_a_handler() {
    for o in OBJECTS {
        let object = aya_obj::Object::parse(o.code).unwrap();
        for h in o.hooks {
            let ways: &[How] = match h.kind {
                Kind::Tracepoint => &[How::RawTp],
                Kind::Entry => &[How::Fentry, How::Kprobe],
                Kind::Exit => &[How::Fexit],
            };
            for how in ways {
                let name = h.program(*how);
                assert!(object.programs.contains_key(&name), "{}: no {name}", o.name);
            }
        }
        // And none that no hook uses.
        let used = |p: &String| {
            o.hooks.iter().any(|h| {
                [How::RawTp, How::Fentry, How::Fexit, How::Kprobe]
                    .iter()
                    .any(|how| h.program(*how) == *p)
            })
        };
        assert_eq!(
            object.programs.keys().find(|p| !used(p)),
            None,
            "{}",
            o.name
        );
    }
}

#[test]
fn every_module_of_a_site_is_read_for_types_or_is_the_kernel() {
    for o in OBJECTS {
        for s in o.hooks.iter().flat_map(|h| h.sites) {
            assert!(
                s.module == "vmlinux" || o.modules.contains(&s.module),
                "{}",
                s.name
            );
        }
    }
}
