//! Texts for people: lines of at most 80 columns.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

pub(super) const COLUMNS: usize = 80;

/// The width of a terminal; 80 columns if the terminal does not know it, and says nought.
pub(super) fn width_of(terminal: impl AsFd) -> usize {
    let width = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if width == 0 { COLUMNS } else { width }
}

/// The text in lines. The first one begins with `label`, the others with as many blanks. A word that is too long for a line is
/// broken.
pub(super) fn hanging(label: &str, text: &str) -> String {
    let margin = label.chars().count();
    let room = COLUMNS.saturating_sub(margin).max(1);
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let fits =
            |line: &String, length: usize| line.is_empty() || line.chars().count() + 1 + length <= room;
        if !lines.last().is_some_and(|line| fits(line, word.len().min(room))) {
            lines.push(String::new());
        }
        loop {
            let rest = word.split_off(word.len().min(room));
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.extend(&word);
            }
            if rest.is_empty() {
                break;
            }
            lines.push(String::new());
            word = rest;
        }
    }
    let blanks = " ".repeat(margin);
    let line = |(nth, line): (usize, &String)| {
        let begin = if nth == 0 { label } else { &blanks };
        format!("{}\n", format!("{begin}{line}").trim_end())
    };
    lines.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_80_columns_and_no_character_is_lost() {
        let text = format!("one two three {} four {}", "long".repeat(60), "word ".repeat(40));
        for label in ["", "label  ", &" ".repeat(30)] {
            let lines = hanging(label, &text);
            assert!(lines.lines().all(|line| line.chars().count() <= COLUMNS), "{lines}");
            let plain = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(plain(&lines), plain(&format!("{label}{text}")));
        }
        assert_eq!(hanging("a  ", "b c"), "a  b c\n");
        assert_eq!(hanging("a", ""), "a\n");
    }
}
