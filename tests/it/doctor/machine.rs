//! Findings about this machine: modes of files, the listener's certificate, open files, and warnings of the file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{NO_POSTGRES, NO_REDIS, config, examine, examine_file, finding, is_found, is_well};
use crate::cli::file;
use crate::harness::certificates::Issued;

#[test]
fn a_configuration_file_that_others_may_write_or_whose_password_they_may_read_is_found() {
    let with_password = file(&config("postgres://u:word@127.0.0.1:1/p", NO_REDIS, ""));
    let without = file(&config(NO_POSTGRES, NO_REDIS, ""));
    is_found(&with_mode(without.path(), 0o664), "broken", "host.files", "may write");
    is_well(&with_mode(without.path(), 0o644), "host.files", "0644");
    is_well(&with_mode(with_password.path(), 0o640), "host.files", "0640");
    let report = with_mode(with_password.path(), 0o644);
    is_found(&report, "broken", "configuration", "chmod 640");
    assert!(!report.to_string().contains("word@"), "{report:#}");
}

#[test]
fn a_configuration_file_that_others_may_read_is_found_if_the_query_of_an_address_may_have_a_key() {
    let bank = "http://127.0.0.1:1/";
    for (query, of_inquiry, found) in [
        ("?key=canary", "?id={request_id}", Some("channel.acme.endpoint")),
        ("", "?id={request_id}&key=canary", Some("channel.acme.inquiry.url")),
        ("", "?id={request_id}", None),
    ] {
        let channel = format!(
            "[channel.acme]\nendpoint = \"{bank}{query}\"\nlimits = []\ninquiry = {{ url = \"{bank}{of_inquiry}\" }}\n"
        );
        let file = file(&config(NO_POSTGRES, NO_REDIS, &channel));
        is_well(&with_mode(file.path(), 0o640), "host.files", "0640");
        let report = with_mode(file.path(), 0o644);
        match found {
            Some(key) => is_found(&report, "warning", "host.files", key),
            None => is_well(&report, "host.files", "0644"),
        }
        assert!(!report.to_string().contains("canary"), "{report:#}");
    }
}

/// What doctor reports of a file with this mode.
fn with_mode(path: &Path, mode: u32) -> Value {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    examine_file(path, &[]).0
}

#[test]
fn a_listener_whose_certificate_ended_is_found() {
    let issued = Issued::new();
    for (identity, severity) in
        [(issued.identity(&["localhost"]), "ok"), (issued.expired(&["localhost"]), "broken")]
    {
        let tls = format!(
            "max_connections = 16\ntls = {{ certificate_file = {:?}, key_file = {:?} }}",
            identity.certificate, identity.key
        );
        let text = config(NO_POSTGRES, NO_REDIS, "").replace("max_connections = 16", &tls);
        let (report, _) = examine(&text);
        assert_eq!(finding(&report, "host.http_tls", "the listener")["severity"], severity, "{report:#}");
    }
}

#[test]
fn too_few_open_files_are_found_with_the_number_that_the_file_needs() {
    let channel = "[channel.acme]\nendpoint = \"http://127.0.0.1:1/\"\nlimits = []\nmax_in_flight = 1000\n";
    let file = file(&config(NO_POSTGRES, NO_REDIS, channel));
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 500 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_refundd"), "--config"])
        .arg(file.path())
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    is_found(
        &report,
        "warning",
        "host.open_files",
        "at most 1398 files: 1250 for banks, 16 for callers, 4 for",
    );
    let way_out = finding(&report, "host.open_files", "files")["way_out"].as_str().unwrap().to_owned();
    assert!(way_out.contains("LimitNOFILE=2048"), "{way_out}");
}

#[test]
fn what_check_warns_of_is_a_finding_too() {
    let unused = "[limit.unused]\npermits = 1\nper = \"1s\"\n";
    let (report, _) = examine(&config(NO_POSTGRES, NO_REDIS, unused));
    is_found(&report, "warning", "configuration", "no channel names limit `unused`");
}
