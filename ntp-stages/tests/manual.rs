//! The manual names what the tables hold.

use ntp_stages::keys::KEYS;
use ntp_stages::rules::COMPONENTS;

/// A page as text: without macros and escapes.
fn page(name: &str) -> String {
    let path = format!("{}/../man/{name}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{path}: {cause}"));
    page.replace("\\(aq", "'").replace("\\-", "-")
}

#[test]
fn every_component_is_explained() {
    let page = page("ntp.7");
    for component in COMPONENTS {
        let name = component.name;
        let named = [
            format!("\"{name}\""),
            format!(".B {name}\n"),
            format!(" {name} "),
        ];
        assert!(
            named.iter().any(|named| page.contains(named)),
            "ntp.7 does not name `{name}`"
        );
    }
}

#[test]
fn every_key_is_explained() {
    let page = page("ntp-stages.1");
    let keys = page
        .split(".SH KEYS")
        .nth(1)
        .unwrap()
        .split(".SH")
        .next()
        .unwrap();
    let words: Vec<&str> = keys.split([' ', '\n', ',', '"']).collect();
    for key in KEYS {
        assert!(
            words.contains(&key.name),
            "ntp-stages.1 does not name `{}`",
            key.name
        );
    }
}
