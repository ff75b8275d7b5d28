//! A document as text, with or without colour.

use crate::document::{Align, Block, Column, Document, Line, Style};
use std::io::{self, Write};

/// Escape sequence of a style.
fn sequence(style: Style) -> &'static str {
    match style {
        Style::Title => "\x1b[1m",
        Style::Strong => "\x1b[1;36m",
        Style::Warning => "\x1b[33m",
        Style::Dim => "\x1b[2m",
        Style::Plain => "",
    }
}

/// Writes text.
///
/// # Errors
/// Those of the output.
pub fn write(doc: &Document, color: bool, out: &mut impl Write) -> io::Result<()> {
    for block in &doc.0 {
        match block {
            Block::Gap => writeln!(out)?,
            Block::Text(style, depth, text) => {
                line(
                    out,
                    color,
                    *style,
                    &format!("{:indent$}{text}", "", indent = depth * 2),
                )?;
            }
            Block::Table(columns, lines) => table(out, color, columns, lines)?,
        }
    }
    Ok(())
}

fn line(out: &mut impl Write, color: bool, style: Style, text: &str) -> io::Result<()> {
    let text = text.trim_end();
    match sequence(style) {
        on if color && !on.is_empty() => writeln!(out, "{on}{text}\x1b[0m"),
        _ => writeln!(out, "{text}"),
    }
}

/// Characters, not bytes: device names may be anything.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn table(out: &mut impl Write, color: bool, columns: &[Column], lines: &[Line]) -> io::Result<()> {
    let cell = |line: &Line, column: usize| {
        let text = line.cells.get(column).map_or("", String::as_str);
        if column == 0 {
            format!("{:indent$}{text}", "", indent = line.depth * 2)
        } else {
            text.to_owned()
        }
    };
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(i, column)| {
            let widest = lines
                .iter()
                .map(|line| width(&cell(line, i)))
                .max()
                .unwrap_or(0);
            column.width.max(widest).max(width(column.name))
        })
        .collect();
    let render = |cells: Vec<String>| {
        let mut text = String::from(" ");
        for (i, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[i].saturating_sub(width(cell)));
            text.push(' ');
            match columns[i].align {
                Align::Left => text.push_str(&format!("{cell}{pad}")),
                Align::Right => text.push_str(&format!("{pad}{cell}")),
            }
            if i + 2 == cells.len() {
                text.push(' ');
            }
        }
        text
    };
    line(
        out,
        color,
        Style::Plain,
        &render(columns.iter().map(|c| c.name.to_owned()).collect()),
    )?;
    for l in lines {
        line(
            out,
            color,
            l.style,
            &render((0..columns.len()).map(|i| cell(l, i)).collect()),
        )?;
    }
    Ok(())
}
