//! Completions and manual pages, tried with a real shell and a real formatter.

use std::process::{Command, Stdio};

use super::text;

fn printed(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_their_options() {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut script, printed(&["completions", "bash"]).as_bytes()).unwrap();
    let completed = |words: &str, at: usize| {
        let ask = format!(
            "set -eu; source '{}'; COMP_WORDS=({words}); COMP_CWORD={at}; COMPREPLY=(); \
             _refundd refundd \"${{COMP_WORDS[{at}]}}\" \"${{COMP_WORDS[{at}-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.path().display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    };
    assert_eq!(completed("refundd stat", 1).trim(), "status");
    assert_eq!(completed("refundd review set", 2).trim(), "settle");
    assert_eq!(completed("refundd import --dry", 2).trim(), "--dry-run");
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(printed(&["completions", shell]).contains("import"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page_that_renders() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("man1");
    assert_eq!(printed(&["man", "--to", to.to_str().unwrap()]), "");
    let main = std::fs::read_to_string(to.join("refundd.1")).unwrap();
    assert_eq!(main, printed(&["man"]));
    let pages: Vec<_> = std::fs::read_dir(&to).unwrap().map(|page| page.unwrap().path()).collect();
    for name in ["refundd-run.1", "refundd-import.1", "refundd-review-settle.1", "refundd-export.1"] {
        assert!(to.join(name).exists(), "{name}: {pages:?}");
    }
    if Command::new("groff").arg("--version").stdout(Stdio::null()).status().is_err() {
        return; // without a formatter the pages are only written
    }
    for page in pages {
        // Plain text, without letters struck over each other.
        let format = ["-man", "-Tutf8", "-ww", "-P-cbou"];
        let output = Command::new("groff").args(format).arg(&page).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && shown.contains("NAME"), "{}: {}", page.display(), text(&output));
        assert!(output.stderr.is_empty(), "{}: {}", page.display(), String::from_utf8_lossy(&output.stderr));
    }
}
