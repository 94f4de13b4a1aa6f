//! README.zh-CN.md says what README.md says, as far as a machine can see.

use std::collections::BTreeSet;
use std::path::Path;

use super::{ROOT, fenced};

/// A translation may not tell another story: the same examples in the same order, and the same pages.
#[test]
fn the_chinese_readme_has_the_examples_and_the_links_of_the_english_one() {
    let [english, chinese] = ["README.md", "README.zh-CN.md"]
        .map(|page| std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap());
    let languages = ["sh", "text", "sql", "toml"];
    let examples = |text: &str| -> Vec<String> {
        fenced(text, &languages).into_iter().map(|(_, line)| line.to_owned()).collect()
    };
    assert!(examples(&english).len() > 50);
    assert_eq!(examples(&english), examples(&chinese));
    let links = |text: &str| -> BTreeSet<String> {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(|(target, _)| target.to_owned()).filter(|target| !target.starts_with("README")).collect()
    };
    assert_eq!(links(&english), links(&chinese));
}
