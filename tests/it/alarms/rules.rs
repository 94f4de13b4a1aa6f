//! Reads config/alarms.yml. The file keeps to one form, and a line of another form is refused.

use std::path::Path;

pub struct Rule {
    pub alert: String,
    pub expression: String,
    pub wait: String,
    pub severity: String,
    pub summary: String,
    pub runbook: String,
}

const HEAD: &str = "groups:\n  - name: refundd\n    rules:\n";

pub fn rules() -> Vec<Rule> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/alarms.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let lines = text.lines().filter(is_content).collect::<Vec<_>>().join("\n");
    let rules = lines.strip_prefix(HEAD).unwrap_or_else(|| panic!("the file begins otherwise than {HEAD}"));
    // A long expression stands on lines of its own, indented by twelve spaces.
    let rules = rules.replace(">-\n            ", "").replace("\n            ", " ");
    let mut lines = rules.lines();
    let mut rules = Vec::new();
    while let Some(first) = lines.next() {
        let mut next = |prefix: &str| field(lines.next().unwrap_or_default(), prefix);
        let alert = field(first, "      - alert: ");
        let (expression, wait) = (next("        expr: "), next("        for: "));
        next("        labels:");
        let severity = next("          severity: ");
        next("        annotations:");
        let summary = unquoted(&next("          summary: "));
        let runbook = unquoted(&next("          runbook: "));
        rules.push(Rule { alert, expression, wait, severity, summary, runbook });
    }
    rules
}

fn field(line: &str, prefix: &str) -> String {
    line.strip_prefix(prefix).unwrap_or_else(|| panic!("`{line}` does not begin with `{prefix}`")).to_owned()
}

fn unquoted(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or_else(|| panic!("{text} has no quotes")).to_owned()
}
