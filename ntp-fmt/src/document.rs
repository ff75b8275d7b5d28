//! What a report says, before it has a look: lines and tables.

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Title of a group.
    Title,
    /// Ordinary.
    Plain,
    /// What stands out.
    Strong,
    /// Something is wrong or uncertain.
    Warning,
    /// Of little weight.
    Dim,
}

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left.
    Left,
    /// Right, for numbers.
    Right,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its head.
    pub name: &'static str,
    /// Width at least, characters.
    pub width: usize,
    /// Where its text stands.
    pub align: Align,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// One text a column; further ones stay empty.
    pub cells: Vec<String>,
    /// Levels below the row it belongs to.
    pub depth: usize,
    /// How it is meant.
    pub style: Style,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A line of text, and levels of indentation.
    Text(Style, usize, String),
    /// A table.
    Table(Vec<Column>, Vec<Line>),
    /// A blank line.
    Gap,
}

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document(pub Vec<Block>);

impl Document {
    /// Adds a line of text.
    pub fn text(&mut self, style: Style, depth: usize, text: impl Into<String>) {
        self.0
            .push(Block::Text(style, depth, printable(&text.into())));
    }

    /// Adds a table.
    pub fn table(&mut self, columns: Vec<Column>, mut lines: Vec<Line>) {
        for cell in lines.iter_mut().flat_map(|line| &mut line.cells) {
            if cell.contains(char::is_control) {
                *cell = printable(cell);
            }
        }
        self.0.push(Block::Table(columns, lines));
    }

    /// Adds a blank line, but never two.
    pub fn gap(&mut self) {
        if !matches!(self.0.last(), None | Some(Block::Gap)) {
            self.0.push(Block::Gap);
        }
    }
}

/// Names in recordings may hold anything; a terminal is sent no control characters.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_names_do_not_reach_the_terminal() {
        let mut doc = Document::default();
        doc.text(Style::Title, 0, "== read \u{1b}[31mred\n\0 \u{e9}");
        assert_eq!(
            doc.0,
            [Block::Text(
                Style::Title,
                0,
                "== read \u{fffd}[31mred\u{fffd}\u{fffd} \u{e9}".into()
            )]
        );
        let mut doc = Document::default();
        let line = Line {
            cells: vec!["target drive\r (nvmet-tcp)".into()],
            depth: 0,
            style: Style::Plain,
        };
        doc.table(Vec::new(), vec![line]);
        let Block::Table(_, lines) = &doc.0[0] else {
            panic!("{doc:?}");
        };
        assert_eq!(lines[0].cells, ["target drive\u{fffd} (nvmet-tcp)"]);
    }
}
