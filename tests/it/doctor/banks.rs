//! Findings about banks: each is tried, and no request is sent.

use std::fmt::Write as _;
use std::net::SocketAddr;

use jiff::{ToSpan, Zoned};
use playground::{Authority, PretendBank};

use super::{NO_POSTGRES, NO_REDIS, config, examine, examine_file, finding, is_found, is_well};
use crate::cli::file;

#[tokio::test(flavor = "multi_thread")]
async fn each_bank_is_tried_without_a_request_and_each_trouble_is_named() {
    let authority = Authority::new().unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let soon = Zoned::now().date().checked_add(10.days()).unwrap();
    let well = PretendBank::start_secure(here, authority.identity().unwrap()).unwrap();
    let ends = PretendBank::start_secure(here, authority.identity_until(soon).unwrap()).unwrap();
    let ended = PretendBank::start_secure(here, authority.expired_identity().unwrap()).unwrap();
    let plain = PretendBank::start_here().unwrap();
    let ca = authority.file();
    let (certificate, key) = authority.client_files("node").unwrap();
    let mut channels = String::new();
    for (name, endpoint, more) in [
        (
            "well",
            format!("https://{}/well", well.address()),
            format!("ca_file = {ca:?}\nclient_certificate_file = {certificate:?}\nclient_key_file = {key:?}"),
        ),
        ("ends", format!("https://{}/ends", ends.address()), format!("ca_file = {ca:?}")),
        ("ended", format!("https://{}/ended", ended.address()), format!("ca_file = {ca:?}")),
        ("strange", format!("https://{}/strange", well.address()), String::new()),
        ("plain", format!("http://{}/plain", plain.address()), String::new()),
        ("gone", "http://127.0.0.1:1/gone".to_owned(), String::new()),
        ("misspelt", "https://bank.invalid/refunds".to_owned(), String::new()),
        (
            "elsewhere",
            format!("http://localhost:{}/elsewhere", plain.address().port()),
            "addresses = [\"203.0.113.0/24\"]".to_owned(),
        ),
        (
            "asks",
            format!("http://{}/asks", plain.address()),
            "inquiry = { url = \"http://127.0.0.1:1/asks/{request_id}\" }".to_owned(),
        ),
    ] {
        let _ = writeln!(channels, "[channel.{name}]\nendpoint = \"{endpoint}\"\nlimits = []\n{more}");
    }
    let text = config(NO_POSTGRES, NO_REDIS, &channels);
    let (report, code) = examine(&text);
    assert_eq!(code, 1);
    is_well(&report, "bank", "`well`, endpoint\" https");
    is_well(&report, "bank", "the client certificate ends in");
    is_well(&report, "bank", "`plain`");
    is_found(&report, "warning", "bank", &format!("at {soon}"));
    is_found(&report, "broken", "bank", "`ended`");
    is_found(&report, "broken", "bank", "`strange`");
    is_found(&report, "broken", "bank", "`gone`");
    is_found(&report, "broken", "bank", "`misspelt`");
    is_found(&report, "broken", "bank", "`elsewhere`");
    is_found(&report, "broken", "bank", "`asks`, inquiry.url");
    is_well(&report, "bank", "`asks`, endpoint");
    let way_out = |words: &str| finding(&report, "bank", words)["way_out"].as_str().unwrap();
    assert!(way_out("`elsewhere`").contains("`addresses`"), "{}", way_out("`elsewhere`"));
    assert!(way_out("`strange`").contains("`ca_file`"), "{}", way_out("`strange`"));
    assert!(way_out("`misspelt`").contains("DNS"), "{}", way_out("`misspelt`"));
    // The time of the warning is the caller's choice.
    let (report, _) = examine_file(file(&text).path(), &["--ends-within", "1d"]);
    is_well(&report, "bank", &format!("at {soon}"));
    for bank in [&well, &ends, &ended, &plain] {
        assert_eq!(bank.ledger().all().len(), 0, "no request may reach a bank");
    }
}
