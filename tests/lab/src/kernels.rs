//! Which kernels there are: families such as `6.1`, the newest package of
//! each, and the versions pinned in the file `kernels`.

use anyhow::{Context, Result, bail};

use crate::apt::{Apt, Package};
use crate::say;

/// The pins, as checked in: a family, a package and its version a line.
const PINS: &str = include_str!("../kernels");

const PREFIX: &str = "linux-image-";

/// The pinned package of a family.
pub(crate) fn pin(family: &str) -> Option<(&'static str, &'static str)> {
    PINS.lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| {
            let mut words = l.split_whitespace();
            Some((words.next()?, words.next()?, words.next()?))
        })
        .find(|(f, _, _)| *f == family)
        .map(|(_, package, version)| (package, version))
}

/// The family that stands for the newest kernel there is.
pub(crate) const NEWEST: &str = "newest";

/// The family of a package such as `linux-image-6.1.0-57-amd64` (`6.1`) or
/// `linux-image-6.1.0-57-rt-amd64` (`6.1-rt`), and numbers that order those of
/// one family. Other variants (cloud, unsigned, dbg) and packages that only
/// depend on another are none.
fn parse(name: &str) -> Option<(String, Vec<u64>)> {
    let release = name.strip_prefix(PREFIX)?.strip_suffix("-amd64")?;
    let (release, variant) = match release.strip_suffix("-rt") {
        Some(release) => (release, "-rt"),
        None => (release, ""),
    };
    let mut parts = release.splitn(3, '.');
    let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(major) || !digits(minor) {
        return None;
    }
    // `0-57`, `95+deb12`, `12+bpo`: numbers, and who built it.
    let numbers = rest
        .split(['.', '-', '+', '~'])
        .filter_map(
            |w| match w.trim_start_matches("deb").trim_start_matches("bpo") {
                "" => None,
                n => Some(n.parse::<u64>()),
            },
        )
        .collect::<Result<Vec<u64>, _>>()
        .ok()?;
    Some((format!("{major}.{minor}{variant}"), numbers))
}

/// Names of a family, the newest first.
fn of_family(names: &[String], family: &str) -> Vec<String> {
    let mut found: Vec<(Vec<u64>, &String)> = names
        .iter()
        .filter_map(|n| parse(n).map(|(f, order)| (f, order, n)))
        .filter(|(f, _, _)| f == family)
        .map(|(_, order, n)| (order, n))
        .collect();
    found.sort();
    found.reverse();
    found.into_iter().map(|(_, n)| n.clone()).collect()
}

/// The families among package names, in order.
fn families(names: &[String]) -> Vec<String> {
    let mut out: Vec<String> = names
        .iter()
        .filter_map(|n| parse(n))
        .map(|(f, _)| f)
        .collect();
    let numbers = |f: &String| -> Vec<u64> {
        f.trim_end_matches("-rt")
            .split('.')
            .filter_map(|n| n.parse().ok())
            .collect()
    };
    out.sort_by_key(|f| (numbers(f), f.clone()));
    out.dedup();
    out
}

/// Whether an archive has any kernel of a family.
pub(crate) fn has(apt: &Apt, family: &str) -> Result<bool> {
    apt.update(false)?;
    Ok(!of_family(&apt.names(PREFIX)?, family).is_empty())
}

/// The packages that hold the files of a kernel: its own, and from 7.x on two
/// that it depends on.
pub(crate) fn parts(apt: &Apt, image: &Package) -> Result<Vec<Package>> {
    let mut out = vec![image.clone()];
    let held =
        |name: &&String| name.starts_with("linux-binary-") || name.starts_with("linux-modules-");
    for name in image.depends.iter().filter(held) {
        let versions = apt.versions(name)?;
        let same = versions.into_iter().find(|p| p.version == image.version);
        out.push(same.with_context(|| format!("{name} {}: not in the archive", image.version))?);
    }
    Ok(out)
}

/// The package to boot for a family: the pinned one, or the newest if that is
/// gone or none is pinned.
pub(crate) fn choose(apt: &Apt, family: &str) -> Result<Package> {
    let pinned = pin(family);
    if let Some((name, version)) = pinned {
        for update in [false, true] {
            apt.update(update)?;
            if let Some(p) = apt
                .versions(name)?
                .into_iter()
                .find(|p| p.version == version)
            {
                return Ok(p);
            }
        }
    } else {
        apt.update(false)?;
    }
    let names = apt.names(PREFIX)?;
    let newest = families(&names).into_iter().rfind(|f| !f.ends_with("-rt"));
    let family = match family {
        NEWEST => newest.as_deref().unwrap_or(family),
        _ => family,
    };
    for name in of_family(&names, family) {
        if let Some(p) = apt.versions(&name)?.into_iter().next() {
            if let Some((name, version)) = pinned {
                say(format_args!(
                    "{name} {version}: pinned, but gone from the archive; using {} {}",
                    p.name, p.version
                ));
            }
            return Ok(p);
        }
    }
    bail!(
        "kernel `{family}`: not in the archive; there are: {}",
        families(&names).join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn the_newest_of_a_family() {
        let all = names(&[
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-57-amd64",
            "linux-image-6.1.0-57-amd64-dbg",
            "linux-image-6.1.0-58-cloud-amd64",
            "linux-image-6.1.0-59-rt-amd64",
            "linux-image-6.1-amd64",
            "linux-image-6.12.95+deb12-amd64",
            "linux-image-6.12.107+deb12-amd64",
            "linux-image-6.12.107+deb12-amd64-unsigned",
            "linux-image-6.12.12+bpo-amd64",
            "linux-image-amd64",
        ]);
        assert_eq!(of_family(&all, "6.1")[0], "linux-image-6.1.0-57-amd64");
        assert_eq!(
            of_family(&all, "6.12"),
            [
                "linux-image-6.12.107+deb12-amd64",
                "linux-image-6.12.95+deb12-amd64",
                "linux-image-6.12.12+bpo-amd64"
            ]
        );
        assert!(of_family(&all, "9.9").is_empty());
        assert_eq!(of_family(&all, "6.1-rt"), ["linux-image-6.1.0-59-rt-amd64"]);
        assert_eq!(families(&all), ["6.1", "6.1-rt", "6.12"]);
    }

    #[test]
    fn pins_are_of_their_family() {
        for line in PINS
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty())
        {
            let family = line.split_whitespace().next().unwrap();
            let (name, version) = pin(family).expect(line);
            assert_eq!(parse(name).unwrap().0, family, "{line}");
            assert!(
                version.starts_with(family.trim_end_matches("-rt")),
                "{line}"
            );
        }
    }
}
