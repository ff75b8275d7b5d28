//! A document as Markdown.

use crate::document::{Align, Block, Column, Document, Line, Style};
use std::io::{self, Write};

/// Writes Markdown.
///
/// # Errors
/// Those of the output.
pub fn write(doc: &Document, out: &mut impl Write) -> io::Result<()> {
    for block in &doc.0 {
        match block {
            Block::Gap => {}
            Block::Text(Style::Title, _, text) => {
                writeln!(out, "\n## {}\n", escape(text.trim_start_matches("== ")))?
            }
            Block::Text(Style::Strong | Style::Warning, _, text) => {
                writeln!(out, "**{}**\n", escape(text))?
            }
            Block::Text(_, _, text) => writeln!(out, "{}\n", escape(text))?,
            Block::Table(columns, lines) => table(out, columns, lines)?,
        }
    }
    Ok(())
}

/// Names are text, not markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(
            letter,
            '|' | '*' | '_' | '~' | '`' | '<' | '>' | '\\' | '[' | ']'
        ) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn table(out: &mut impl Write, columns: &[Column], lines: &[Line]) -> io::Result<()> {
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    writeln!(
        out,
        "{}",
        row(columns
            .iter()
            .map(|column| column.name.to_owned())
            .collect())
    )?;
    let rule = |column: &Column| match column.align {
        Align::Left => ":---".to_owned(),
        Align::Right => "---:".to_owned(),
    };
    writeln!(out, "{}", row(columns.iter().map(rule).collect()))?;
    for line in lines {
        let cell = |i: usize| {
            let text = escape(line.cells.get(i).map_or("", String::as_str));
            match i {
                0 => format!("{}{text}", "&emsp;".repeat(line.depth)),
                _ => text,
            }
        };
        writeln!(out, "{}", row((0..columns.len()).map(cell).collect()))?;
    }
    writeln!(out)
}
