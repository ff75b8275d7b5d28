//! Reads which archive this machine's apt uses, in both of apt's formats, and
//! makes the lab's own list of it. No host name is known to the lab.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// One source of packages, as either format gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) uri: String,
    pub(crate) suites: Vec<String>,
    pub(crate) components: Vec<String>,
    /// As written: a file, a fingerprint, or a key over several lines.
    pub(crate) signed_by: Option<String>,
}

/// The value of `VERSION_CODENAME` in an os-release file.
pub(crate) fn codename(os_release: &str) -> Option<String> {
    os_release
        .lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .map(|v| v.trim().trim_matches('"').to_owned())
        .filter(|v| !v.is_empty())
}

/// Every enabled binary source below `etc` (`/etc/apt`).
pub(crate) fn read_all(etc: &Path) -> Result<Vec<Source>> {
    let mut files = vec![etc.join("sources.list")];
    if let Ok(dir) = fs::read_dir(etc.join("sources.list.d")) {
        let mut more: Vec<_> = dir.flatten().map(|e| e.path()).collect();
        more.sort();
        files.extend(more);
    }
    let mut out = Vec::new();
    for path in files {
        let parse: fn(&str) -> Vec<Source> = match path.extension().and_then(|e| e.to_str()) {
            Some("list") => one_line,
            Some("sources") => deb822,
            _ => continue,
        };
        match fs::read_to_string(&path) {
            Ok(text) => out.extend(parse(&text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e).with_context(|| format!("`{}`", path.display())),
        }
    }
    Ok(out)
}

/// `deb [signed-by=..] URI SUITE COMPONENT...`, one a line.
pub(crate) fn one_line(text: &str) -> Vec<Source> {
    let parse = |line: &str| {
        let line = line.split('#').next()?.trim();
        let mut rest = line.strip_prefix("deb")?;
        if !rest.starts_with(char::is_whitespace) {
            return None;
        }
        let mut signed_by = None;
        if let Some(inner) = rest.trim_start().strip_prefix('[') {
            let (options, after) = inner.split_once(']')?;
            signed_by = options
                .split_whitespace()
                .find_map(|o| o.strip_prefix("signed-by="))
                .map(str::to_owned);
            rest = after;
        }
        let mut words = rest.split_whitespace().map(str::to_owned);
        Some(Source {
            uri: words.next()?,
            suites: vec![words.next()?],
            components: words.collect(),
            signed_by,
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Stanzas of `Field: value`, values going on in lines that begin with space.
pub(crate) fn deb822(text: &str) -> Vec<Source> {
    let mut out = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    for line in lines.chain([""]) {
        if line.trim().is_empty() {
            out.extend(stanza(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    out
}

fn stanza(fields: &[(String, String)]) -> Vec<Source> {
    let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v);
    let words = |name: &str| -> Vec<String> {
        get(name)
            .map(|v| v.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default()
    };
    let off = get("enabled").is_some_and(|v| v.eq_ignore_ascii_case("no"));
    if off || !words("types").iter().any(|t| t == "deb") {
        return Vec::new();
    }
    let source = |uri| Source {
        uri,
        suites: words("suites"),
        components: words("components"),
        signed_by: get("signed-by").cloned(),
    };
    words("uris").into_iter().map(source).collect()
}

/// The sources the lab uses, out of all: the distribution's archive, with its
/// backports added, and its security archive.
pub(crate) fn choose(all: &[Source], codename: &str, backports: bool) -> Result<Vec<Source>> {
    let has = |s: &Source, suite: &str| s.suites.iter().any(|x| x == suite);
    let usable = |s: &&Source| s.components.iter().any(|c| c == "main");
    // Other people's archives name their suites after the release too: the
    // distribution's own is signed with its own keys, or lies in its folder.
    let rank = |s: &&Source| {
        let signed = s.signed_by.as_deref().unwrap_or_default();
        let keys = signed.contains("debian-archive") || signed.is_empty();
        let folder = s.uri.trim_end_matches('/').ends_with("/debian");
        (i32::from(folder) * 2) + i32::from(keys)
    };
    let mut main: Vec<&Source> = all
        .iter()
        .filter(usable)
        .filter(|s| has(s, codename))
        .collect();
    main.sort_by_key(|s| -rank(s));
    let Some(main) = main.first() else {
        bail!(
            "apt's sources: none has the suite `{codename}` with the component main; \
             add the distribution's archive to /etc/apt/sources.list.d"
        );
    };
    let mut suites = vec![codename.to_owned()];
    let updates = format!("{codename}-updates");
    if all.iter().any(|s| s.uri == main.uri && has(s, &updates)) {
        suites.push(updates);
    }
    if backports {
        suites.push(format!("{codename}-backports"));
    }
    let mut out = vec![Source {
        suites,
        components: vec!["main".into()],
        ..(*main).clone()
    }];
    let security = [
        format!("{codename}-security"),
        format!("{codename}/updates"),
    ];
    for suite in security {
        if let Some(s) = all.iter().filter(usable).find(|s| has(s, &suite)) {
            out.push(Source {
                suites: vec![suite],
                components: vec!["main".into()],
                ..s.clone()
            });
        }
    }
    Ok(out)
}

/// Suites of other releases, for the kernels they have, and whether each is of
/// the security archive. They hold little else: their lists are short.
const KERNELS: &[(&str, bool)] = &[("bullseye-security", true), ("trixie-backports", false)];

/// The sources of [`KERNELS`], at the addresses of those [`choose`] gave.
pub(crate) fn of_kernels(own: &[Source]) -> Vec<Source> {
    let named = |security: bool| {
        let suites = |s: &Source| s.suites.iter().any(|x| x.contains("security"));
        own.iter().find(move |s| suites(s) == security)
    };
    (KERNELS.iter())
        .filter_map(|(suite, security)| {
            Some(Source {
                suites: vec![(*suite).to_owned()],
                ..named(*security)?.clone()
            })
        })
        .collect()
}

/// The sources as a file in the newer format, which can hold a whole key.
pub(crate) fn render(sources: &[Source]) -> String {
    let mut out = String::new();
    for s in sources {
        out += &format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: {}\nArchitectures: amd64\n",
            s.uri,
            s.suites.join(" "),
            s.components.join(" ")
        );
        if let Some(by) = &s.signed_by {
            out += &format!("Signed-By: {by}\n");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
# a comment
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] file:/mirror/debian bookworm main contrib
deb-src file:/mirror/debian bookworm main
deb file:/mirror/debian-security bookworm-security main # trailing
debris
";

    const SOURCES: &str = "\
Types: deb deb-src
# a comment inside
URIs: file:/mirror/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb
URIs: file:/other
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: file:/elsewhere
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/elsewhere.gpg
";

    #[test]
    fn one_line_format() {
        let s = one_line(LIST);
        assert_eq!(s.len(), 2);
        assert_eq!(s[0].uri, "file:/mirror/debian");
        assert_eq!(s[0].components, ["main", "contrib"]);
        assert!(s[0].signed_by.as_deref().unwrap().ends_with("keyring.gpg"));
        assert_eq!(s[1].suites, ["bookworm-security"]);
        assert_eq!(s[1].components, ["main"]);
    }

    #[test]
    fn deb822_format() {
        let s = deb822(SOURCES);
        assert_eq!(s.len(), 2);
        assert_eq!(s[0].suites, ["bookworm", "bookworm-updates"]);
        assert!(s[0].signed_by.as_deref().unwrap().contains("\n abc"));
        assert_eq!(s[1].uri, "file:/elsewhere");
    }

    #[test]
    fn the_distribution_is_chosen_and_backports_added() {
        let mut all = deb822(SOURCES);
        all.reverse();
        all.extend(one_line(LIST));
        let chosen = choose(&all, "bookworm", true).unwrap();
        assert_eq!(chosen[0].uri, "file:/mirror/debian");
        assert_eq!(
            chosen[0].suites,
            ["bookworm", "bookworm-updates", "bookworm-backports"]
        );
        assert_eq!(chosen[1].suites, ["bookworm-security"]);
        assert_eq!(deb822(&render(&chosen)), chosen);
        let kernels = of_kernels(&chosen);
        assert_eq!(kernels[0].uri, chosen[1].uri);
        assert_eq!(kernels[1].suites, ["trixie-backports"]);
        assert_eq!(kernels[1].uri, chosen[0].uri);
        let e = choose(&all, "trixie", true).unwrap_err().to_string();
        assert!(e.contains("`trixie`"), "{e}");
    }

    #[test]
    fn codename_of_a_release() {
        assert_eq!(
            codename("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(),
            Some("bookworm")
        );
        assert_eq!(
            codename("VERSION_CODENAME=\"noble\"\n").as_deref(),
            Some("noble")
        );
        assert_eq!(codename("ID=debian\n"), None);
    }
}
