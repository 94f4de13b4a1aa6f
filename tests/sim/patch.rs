//! Patches: they put a known mistake into the text of a statement or of a script.

/// Pairs of texts: the text to replace, and its replacement.
pub type Patch = &'static [(&'static str, &'static str)];

/// The text with every pair of the patch replaced; `None` if it has none of the patch's texts.
pub fn patched(text: &str, patch: Patch) -> Option<String> {
    patch.iter().any(|(from, _)| has(text, from)).then(|| {
        patch.iter().fold(text.to_owned(), |text, (from, to)| {
            text.replace(&numbered(from, &text), &numbered(to, &text))
        })
    })
}

/// Whether the text has a part of a patch.
pub fn has(text: &str, part: &str) -> bool {
    text.contains(&numbered(part, text))
}

/// A part of a patch with each `:node` as the statement has it on its way to Postgres: `$1/*node*/`.
fn numbered(part: &str, statement: &str) -> String {
    let mut pieces = part.split(':');
    let mut numbered = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let (name, rest) = piece.split_at(piece.find(|c| !is_name(c)).unwrap_or(piece.len()));
        let comment = format!("/*{name}*/");
        let number = |end: usize| Some(&statement[statement[..end].rfind('$')?..end]);
        match statement.find(&comment).and_then(number) {
            Some(number) => numbered.extend([number, &comment, rest]),
            None => numbered.extend([":", piece]),
        }
    }
    numbered
}
