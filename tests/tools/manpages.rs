//! The manual pages say what `--help` says: the same options, with or without
//! a value, and the same defaults.

use ntp_tests::tools::run;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The tools that people call.
pub(crate) const TOOLS: [&str; 5] = [
    "ntp-probe",
    "ntp-capture",
    "ntp-join",
    "ntp-stages",
    "ntp-fmt",
];

/// One option of a page or of a help text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Whether a value follows.
    value: bool,
    /// Everything said of it, in one line.
    text: String,
}

/// Options by their names: `-s, --sample`.
pub(crate) type Options = BTreeMap<String, Entry>;

/// The names at the beginning of a line, and whether anything follows them.
fn names(line: &str) -> (String, bool) {
    let is_name = |word: &&str| {
        let bare = word.trim_start_matches('-');
        word.starts_with('-') && bare.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let line = line.replace(',', " ");
    let words = line.split_whitespace();
    let names: Vec<&str> = words.clone().take_while(is_name).collect();
    let value = words.count() > names.len();
    (names.join(", "), value)
}

/// Options of a help text. They are indented by 2 columns, or by 6 when they
/// have no letter; what is said of them is indented further.
pub(crate) fn help(tool: &str) -> Options {
    let text = run(tool, &["--help"]).expect(0).text();
    let (_, text) = text.split_once("\nOptions:\n").expect("options");
    let mut options = Options::new();
    let mut last = None;
    for line in text.lines() {
        let rest = line.trim_start();
        if rest.is_empty() {
            continue;
        }
        match line.len() - rest.len() {
            0 => break,
            2 | 6 if rest.starts_with('-') => {
                let (head, said) = rest.split_once("  ").unwrap_or((rest, ""));
                let (names, value) = names(head);
                last = Some(names.clone());
                let text = said.trim().to_owned();
                assert_eq!(options.insert(names, Entry { value, text }), None, "{tool}");
            }
            _ => {
                let entry = last.as_ref().and_then(|name| options.get_mut(name));
                let entry = entry.expect("an option before what is said of it");
                entry.text += " ";
                entry.text += rest;
            }
        }
    }
    options
}

/// A line of a page without its fonts and escapes.
fn plain(line: &str) -> String {
    let mut line = line.replace("\\-", "-").replace('"', "");
    for font in ["\\fB", "\\fI", "\\fR", "\\fP", "\\&"] {
        line = line.replace(font, "");
    }
    // mdoc writes the dash of an option as a macro.
    line.replace("Fl Fl ", "--")
        .replace("Fl -", "--")
        .replace("Fl ", "-")
}

/// Options of a page, of either macro package: the tags of the list in the
/// section of that name.
fn page(source: &str) -> Options {
    let mut options = Options::new();
    let mut inside = false;
    let mut tag_is_next = false;
    let mut last = None;
    for line in source.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [".SH" | ".Sh", title @ ..] = words.as_slice() {
            inside = title == ["OPTIONS"];
            continue;
        }
        if !inside {
            continue;
        }
        let (name, rest) = match line.strip_prefix('.') {
            Some(request) => request.split_once(' ').unwrap_or((request, "")),
            None => ("", line),
        };
        let rest = plain(rest);
        if std::mem::take(&mut tag_is_next) || name == "It" {
            let (names, value) = names(&rest);
            last = Some(names.clone());
            let entry = Entry {
                value,
                text: String::new(),
            };
            assert_eq!(options.insert(names, entry), None, "{line}");
        } else if name == "TP" {
            tag_is_next = true;
        } else if let Some(entry) = last.as_ref().and_then(|name| options.get_mut(name)) {
            entry.text += " ";
            entry.text += &rest;
        }
    }
    options
}

/// Letters and digits only: how a default is typeset does not matter.
fn squeezed(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

fn pages() -> Vec<(String, String)> {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../man"));
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(dir).expect("man") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|ext| ext == "1") {
            let tool = path.file_stem().expect("name").to_string_lossy();
            let source = std::fs::read_to_string(&path).expect("page");
            pages.push((tool.into_owned(), source));
        }
    }
    pages.sort();
    pages
}

/// Every cause a total can name is told of where its reader will look.
#[test]
fn pages_tell_of_every_cause() {
    use ntp_record::cause::{Book, CAUSES};
    let pages = pages();
    for (book, code, _) in CAUSES {
        let tool = match book {
            Book::Left => "ntp-join",
            Book::Lost | Book::Miss => "ntp-capture",
        };
        let (_, page) = pages.iter().find(|(name, _)| name == tool).expect("page");
        assert!(page.contains(code), "man/{tool}.1 does not tell of {code}");
    }
}

#[test]
fn a_page_has_the_options_of_the_help() {
    let pages = pages();
    let paged: Vec<&str> = pages.iter().map(|(tool, _)| tool.as_str()).collect();
    assert!(
        TOOLS.iter().all(|tool| paged.contains(tool)),
        "a tool without a page: {paged:?}"
    );
    for (tool, source) in pages {
        assert!(TOOLS.contains(&tool.as_str()), "{tool}: a page of no tool");
        let (help, page) = (help(&tool), page(&source));
        let heads = |options: &Options| {
            let head = |(name, entry): (&String, &Entry)| (name.clone(), entry.value);
            options.iter().map(head).collect::<Vec<_>>()
        };
        assert_eq!(
            heads(&page),
            heads(&help),
            "{tool}: options of man/{tool}.1 (left) and of --help (right), and whether a value follows"
        );
        for (name, entry) in &page {
            assert!(!entry.text.trim().is_empty(), "{tool}: {name}: no word");
        }
    }
}

#[test]
fn a_page_has_the_defaults_of_the_help() {
    for (tool, source) in pages() {
        let page = page(&source);
        for (name, entry) in help(&tool) {
            let default = entry.text.split_once("[default: ");
            let Some((default, _)) = default.and_then(|(_, rest)| rest.split_once(']')) else {
                continue;
            };
            let said = page.get(&name).map_or("", |entry| entry.text.as_str());
            assert!(
                squeezed(said).contains(&squeezed(default)),
                "{tool}: {name}: the default is {default}, the page says: {said}"
            );
        }
    }
}

/// The tools called in a shell line, each with the options given to it.
fn calls(line: &str) -> Vec<(&str, Vec<&str>)> {
    let commands = line.trim().trim_start_matches(['$', ' ']).split('|');
    commands
        .filter_map(|command| {
            let mut words = command
                .split_whitespace()
                .skip_while(|word| *word == "sudo");
            let tool = words.next().filter(|tool| TOOLS.contains(tool))?;
            let options = words.filter(|word| word.starts_with('-') && word.len() > 1);
            Some((tool, options.collect()))
        })
        .collect()
}

#[test]
fn the_commands_shown_have_options_that_exist() {
    let mut texts = vec![(
        "README.md".to_owned(),
        include_str!("../../README.md").to_owned(),
    )];
    texts.extend(pages().into_iter().map(|(tool, page)| (tool, plain(&page))));
    let helps: BTreeMap<&str, Options> = TOOLS.iter().map(|tool| (*tool, help(tool))).collect();
    let mut seen = 0;
    for (name, text) in &texts {
        let shown = text
            .lines()
            .filter(|line| name != "README.md" || line.starts_with("    "));
        for (tool, options) in shown.flat_map(calls) {
            seen += 1;
            for option in options {
                assert!(
                    helps[tool]
                        .keys()
                        .any(|names| names.split(", ").any(|n| n == option)),
                    "{name}: {tool} has no {option}"
                );
            }
        }
    }
    assert!(seen > 40, "only {seen} commands found");
}

#[test]
fn a_letter_means_the_same_in_all_tools() {
    let mut meanings: BTreeMap<String, (String, &str)> = BTreeMap::new();
    for tool in TOOLS {
        for name in help(tool).into_keys() {
            let Some((letter, long)) = name.split_once(", ") else {
                continue;
            };
            let (other, of) = meanings
                .entry(letter.to_owned())
                .or_insert((long.to_owned(), tool));
            assert_eq!(long, other, "{letter} of {tool} and of {of}");
        }
    }
    assert_eq!(
        meanings.get("-o").map(|(long, _)| long.as_str()),
        Some("--output")
    );
}

#[test]
fn options_are_found_in_both_macro_packages() {
    let man = ".SH NAME\n.TP\n.B \\-\\-no\nnot here\n.SH OPTIONS\n.TP\n.BR \\-s \", \" \\-\\-sample \" \" \\fIN\\fR\nOne in\n.BR \\-\\-other .\n.TP\n.B \\-\\-json\nAn object.\n.SH OUTPUT\n.TP\n.B \\-\\-no\n";
    let mdoc = ".Sh OPTIONS\n.Bl -tag\n.It Fl s , Fl -sample Ar N\nOne in\n.Fl -other .\n.It Fl Fl json\nAn object.\n.El\n.Sh OUTPUT\n.It Fl -no\n";
    for source in [man, mdoc] {
        let page = page(source);
        let heads: Vec<_> = page.iter().map(|(n, e)| (n.as_str(), e.value)).collect();
        assert_eq!(heads, [("--json", false), ("-s, --sample", true)]);
        assert!(page["--json"].text.contains("An object."), "{page:?}");
        assert!(page["-s, --sample"].text.contains("-other"), "{page:?}");
    }
}
