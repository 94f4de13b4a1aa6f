//! One finding of `refundd doctor`, and the page of all.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::wrap::hanging;
use crate::refund::text::{counted, shown};

/// How bad a finding is. The worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// A promise does not hold, or nodes cannot work.
    Broken,
    /// A promise may not hold later, or holds against fewer attacks.
    Warning,
    Ok,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub severity: Severity,
    /// What was checked, such as `postgres.settings`; scripts rely on it.
    pub check: &'static str,
    /// The channel, the file or the server that the finding is about.
    pub subject: Option<String>,
    /// What was found, with its value.
    pub found: String,
    /// Why it matters; `None` if it is well.
    pub why: Option<String>,
    /// A command or a setting that mends it; `None` if it is well.
    pub way_out: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Ok,
            check,
            subject: None,
            found: found.into(),
            why: None,
            way_out: None,
        }
    }

    pub fn warning(check: &'static str, found: impl Into<String>, why: &str, way_out: &str) -> Finding {
        Finding {
            severity: Severity::Warning,
            why: Some(why.to_owned()),
            way_out: Some(way_out.to_owned()),
            ..Finding::ok(check, found)
        }
    }

    pub fn broken(check: &'static str, found: impl Into<String>, why: &str, way_out: &str) -> Finding {
        Finding { severity: Severity::Broken, ..Finding::warning(check, found, why, way_out) }
    }

    pub fn about(self, subject: impl Into<String>) -> Finding {
        Finding { subject: Some(subject.into()), ..self }
    }
}

/// All findings, the worst first.
#[derive(Debug, Serialize)]
pub(super) struct Diagnosis {
    broken: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

impl Diagnosis {
    pub fn of(mut findings: Vec<Finding>) -> Diagnosis {
        findings.sort_by_key(|finding| finding.severity);
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        Diagnosis { broken: count(Severity::Broken), warnings: count(Severity::Warning), findings }
    }

    pub fn is_broken(&self) -> bool {
        self.broken > 0
    }

    /// The findings in 80 columns.
    pub fn page(&self) -> String {
        let mut page = String::new();
        for finding in &self.findings {
            let Finding { severity, check, subject, found, why, way_out } = finding;
            let label = match severity {
                Severity::Broken => "BROKEN   ",
                Severity::Warning => "WARNING  ",
                Severity::Ok => "ok       ",
            };
            let subject = subject.as_ref().map(|subject| format!("{subject}: ")).unwrap_or_default();
            page.push_str(&hanging(label, &shown(&format!("{check}: {subject}{found}"))));
            for (label, text) in [("         Why: ", why), ("         Do:  ", way_out)] {
                if let Some(text) = text {
                    page.push_str(&hanging(label, &shown(text)));
                }
            }
            if *severity != Severity::Ok {
                page.push('\n');
            }
        }
        let ok = self.findings.len() - self.broken - self.warnings;
        let warnings = counted(self.warnings as u64, "warning");
        let _ = writeln!(page, "{} broken, {warnings}, {ok} ok.", self.broken);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_with_its_reason_and_its_way_out_in_80_columns() {
        let long = "a long text of many words ".repeat(10);
        let report = Diagnosis::of(vec![
            Finding::ok("redis.settings", "noeviction"),
            Finding::warning("redis.rights", "the user\u{1b}[2J may do all", &long, &long),
            Finding::broken("postgres.settings", "fsync = off", "why", "set fsync = on").about("main"),
        ]);
        let page = report.page();
        assert!(
            page.starts_with("BROKEN   postgres.settings: main: fsync = off\n         Why: why\n"),
            "{page}"
        );
        assert!(page.ends_with("1 broken, 1 warning, 1 ok.\n"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        assert!(!page.contains('\u{1b}') && report.is_broken(), "{page}");
    }
}
