//! Ids with versions on the command line, such as 4711@7.

use std::io::stdin;

use anyhow::bail;

/// Reads ids of `what` from the command line, or from standard input. The version may be missing.
pub(super) fn read_ids(args: &[String], what: &str) -> anyhow::Result<Vec<(i64, Option<i32>)>> {
    if args == ["-"] {
        let text = std::io::read_to_string(stdin())?;
        return text.lines().filter(|line| !line.trim().is_empty()).map(|line| read_id(line, what)).collect();
    }
    args.iter().map(|text| read_id(text, what)).collect()
}

fn read_id(text: &str, what: &str) -> anyhow::Result<(i64, Option<i32>)> {
    let text = text.trim();
    let (id, version) = text.split_once('@').map_or((text, None), |(id, version)| (id, Some(version)));
    let id = id.parse().ok().filter(|id| *id > 0);
    let seen = version.map(str::parse).transpose().ok();
    match (id, seen) {
        (Some(id), Some(seen)) => Ok((id, seen)),
        _ => bail!(
            "`{text}` is no {what}'s id: it is a positive whole number, with @ and the version that you saw; \
             nothing was changed"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refund_is_named_with_the_version_that_was_seen() {
        let read = |text: &str| read_id(text, "refund").ok();
        assert_eq!(read(" 4711@7 "), Some((4711, Some(7))));
        assert_eq!(read("4711"), Some((4711, None)));
        for bad in ["", "0", "-1", "x", "@7", "4711@", "4711@x", "4711@7@8"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
