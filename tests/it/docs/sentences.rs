//! Sentences of the docs are short. The aim is 25 words; a sentence of more than 30 fails.

use super::{ROOT, name, pages};

const MOST_WORDS: usize = 30;

/// Pages that are not checked, each with the reason.
const NOT_CHECKED: &[(&str, &str)] = &[
    ("README.zh-CN.md", "its words are not set apart by spaces"),
    ("docs/bench.md", "`make bench` writes it"),
];

/// The paragraphs and the items of lists, each with the number of its first line. Tables, headings, pictures and code
/// are left out.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let (mut blocks, mut open, mut is_code): (Vec<(usize, String)>, bool, bool) = (Vec::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_fence
            || is_code
            || line.is_empty()
            || line.starts_with(['|', '#', '<'])
            || line.starts_with("![")
        {
            open = false;
            continue;
        }
        let item = line.split_once(' ').filter(|(mark, _)| {
            ["-", "*"].contains(mark)
                || mark.strip_suffix('.').is_some_and(|number| number.parse::<u32>().is_ok())
        });
        match (item, blocks.last_mut().filter(|_| open)) {
            (None, Some((_, block))) => {
                block.push(' ');
                block.push_str(line);
            }
            (item, _) => blocks.push((number + 1, item.map_or(line, |(_, rest)| rest).to_owned())),
        }
        open = true;
    }
    blocks
}

/// The text with each span of code as one word, and without the targets of links.
fn plain(block: &str) -> String {
    let spans = block.split('`').enumerate();
    let text: String = spans.map(|(nth, part)| if nth % 2 == 0 { part } else { "code" }).collect();
    let mut plain = String::new();
    for (nth, part) in text.split("](").enumerate() {
        let part = if nth == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) };
        plain.push_str(part);
    }
    plain.replace(['*', '['], "")
}

/// The sentences of a text: each ends with `.`, `?` or `!`, perhaps a bracket, and a space.
fn sentences(plain: &str) -> Vec<Vec<&str>> {
    let mut sentences = vec![Vec::new()];
    for word in plain.split_whitespace() {
        sentences.last_mut().unwrap().push(word);
        if word.trim_end_matches([')', '"']).ends_with(['.', '?', '!']) {
            sentences.push(Vec::new());
        }
    }
    for sentence in &mut sentences {
        sentence.retain(|word| word.contains(char::is_alphanumeric));
    }
    sentences
}

#[test]
fn no_sentence_of_the_docs_has_more_than_thirty_words() {
    let (mut long, mut seen) = (Vec::new(), 0);
    for (page, text) in pages() {
        let page = name(&page);
        if NOT_CHECKED.iter().any(|(name, _)| *name == page) {
            continue;
        }
        for (line, block) in blocks(&text) {
            let plain = plain(&block);
            for sentence in sentences(&plain) {
                seen += 1;
                if sentence.len() > MOST_WORDS {
                    long.push(format!("{page}:{line}: {} words: {}", sentence.len(), sentence.join(" ")));
                }
            }
        }
    }
    assert!(seen > 2_000, "only {seen} sentences were found");
    assert!(long.is_empty(), "long sentences:\n{}", long.join("\n"));
    for (page, _) in NOT_CHECKED {
        assert!(std::path::Path::new(ROOT).join(page).exists(), "{page} is not there");
    }
}

#[test]
fn a_long_sentence_is_found_in_a_paragraph_and_in_an_item_but_not_in_a_table_or_code() {
    let long = "word ".repeat(31);
    let lengths = |text: &str| -> Vec<usize> {
        let blocks = blocks(text);
        blocks
            .iter()
            .flat_map(|(_, block)| sentences(&plain(block)).iter().map(Vec::len).collect::<Vec<_>>())
            .collect()
    };
    let most = |text: &str| lengths(text).into_iter().max().unwrap_or(0);
    assert_eq!(most(&format!("One.\n{long}\n`a b c d` end.")), 33);
    assert_eq!(most(&format!("- one [two](three four.md)\n- {long}")), 31);
    assert_eq!(most(&format!("| {long} |\n# {long}\n```\n{long}\n```")), 0);
    assert_eq!(lengths("It is (so.) Yes! `x.y` stays. v1.2 stays")[..], [3, 1, 2, 2]);
}
