//! Replaces one table in a documentation page. Two HTML comments mark where the table begins and ends.

use std::path::Path;

use anyhow::Context;

/// Puts `text` between `<!-- NAME -->` and `<!-- /NAME -->`. Fails when the page has no such marks.
pub fn replace(page: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let old = std::fs::read_to_string(page).with_context(|| format!("failed to read {}", page.display()))?;
    let (begins, ends) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let from = old.find(&begins).with_context(|| format!("no `<!-- {name} -->` in {}", page.display()))?;
    let from = from + begins.len();
    let to = from + old[from..].find(&ends).with_context(|| format!("no `{ends}` in {}", page.display()))?;
    let new = format!("{}{}\n{}", &old[..from], text.trim_end(), &old[to..]);
    std::fs::write(page, new).with_context(|| format!("failed to write {}", page.display()))
}
