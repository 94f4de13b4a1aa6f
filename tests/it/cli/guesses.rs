//! A word that the command line does not know is never answered by a guess that could move money.

use std::process::Command;

use super::text;

/// What a command without a configuration says, and that it is a wrong command line.
fn refused(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
    text(&output)
}

#[test]
fn a_state_that_nobody_may_decide_is_answered_by_what_each_state_means() {
    for word in ["paid", "unsettled", "reject", "Succeeded"] {
        let said = refused(&["review", "settle", "1", "--as", word, "--reason", "x"]);
        assert!(!said.contains("similar") && !said.contains("tip:"), "{word}: {said}");
        assert!(said.contains(&format!("invalid value '{word}' for '--as <STATE>'")), "{said}");
        for (state, meaning) in [
            ("succeeded", "the bank paid it"),
            ("failed", "the bank refused it"),
            ("cancelled", "nothing will be"),
            ("ready", "refundd sends it again"),
            ("review", "nothing is sent"),
        ] {
            let line = said.lines().find(|line| line.trim_start().starts_with(state));
            assert!(line.is_some_and(|line| line.contains(meaning)), "{word}: {state}: {said}");
        }
    }
}

#[test]
fn a_wrong_confirmation_is_not_answered_by_its_opposite() {
    let said = refused(&["review", "settle", "1", "--as", "ready", "--confirm", "executed", "--reason", "x"]);
    assert!(!said.contains("similar") && !said.contains("tip:"), "{said}");
    assert!(said.contains("not-executed") && said.contains("executed none of the earlier sends"), "{said}");
}

#[test]
fn a_command_that_undoes_is_not_answered_by_the_command_that_does() {
    for (args, never, instead) in [
        (vec!["unpause", "acme"], "pause", Some("resume")),
        (vec!["uncancel", "R-1"], "cancel", None),
        (vec!["review", "disapprove", "1@1"], "approve", Some("withdraw")),
    ] {
        let said = refused(&args);
        assert!(!said.contains(&format!("'{never}'")), "{args:?}: {said}");
        assert_eq!(said.contains("tip:"), instead.is_some(), "{args:?}: {said}");
        assert!(instead.is_none_or(|instead| said.contains(&format!("'{instead}'"))), "{args:?}: {said}");
    }
    // A slip of the fingers is still corrected.
    assert!(refused(&["pasue", "acme"]).contains("'pause'"));
}

#[test]
fn the_help_says_what_each_decision_means() {
    let output = Command::new(env!("CARGO_BIN_EXE_refundd")).args(["review", "settle", "--help"]).output();
    let said = text(&output.unwrap());
    assert!(said.contains("succeeded: the bank paid it") && said.contains("ready:"), "{said}");
}
