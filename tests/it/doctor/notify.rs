//! Findings about the receiver of webhooks: it is connected to, and no message is sent.

use std::io::Write;
use std::net::SocketAddr;

use jiff::{ToSpan, Zoned};
use playground::{Authority, PretendBank};

use super::{NO_POSTGRES, NO_REDIS, config, examine, finding, is_found, is_well};

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_of_webhooks_whose_certificate_ends_or_that_is_away_is_found_without_a_message() {
    let authority = Authority::new().unwrap();
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let soon = Zoned::now().date().checked_add(10.days()).unwrap();
    let well = PretendBank::start_secure(here, authority.identity().unwrap()).unwrap();
    let ends = PretendBank::start_secure(here, authority.identity_until(soon).unwrap()).unwrap();
    let ended = PretendBank::start_secure(here, authority.expired_identity().unwrap()).unwrap();
    let plain = PretendBank::start_here().unwrap();
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    writeln!(secret, "whsec_{}", "A".repeat(32)).unwrap();
    let report_of = |url: &str| {
        let ca = if url.starts_with("https") {
            format!("ca_file = {:?}\n", authority.file())
        } else {
            String::new()
        };
        let (url, secret) = (format!("{url}/hook?key=canary"), secret.path());
        let section = format!("[notify]\nurl = \"{url}\"\nsecret_file = {secret:?}\n{ca}");
        let (report, _) = examine(&config(NO_POSTGRES, NO_REDIS, &section));
        assert!(!report.to_string().contains("canary"), "the path may have a key: {report:#}");
        report
    };
    let report = report_of(&format!("https://{}", well.address()));
    is_well(&report, "notify.reach", "is connected");
    is_well(&report, "notify.tls", "ends in");
    let report = report_of(&format!("https://{}", ends.address()));
    is_found(&report, "warning", "notify.tls", &format!("at {soon}"));
    is_found(&report_of(&format!("https://{}", ended.address())), "broken", "notify.tls", "failed to");
    is_well(&report_of(&format!("http://{}", plain.address())), "notify.tls", "on this host");
    let report = report_of("https://127.0.0.1:1");
    is_found(&report, "broken", "notify.reach", "failed to");
    let way_out = finding(&report, "notify.reach", "failed to")["way_out"].as_str().unwrap();
    assert!(way_out.contains("receiver is up"), "{way_out}");
    for receiver in [&well, &ends, &ended, &plain] {
        assert_eq!(receiver.ledger().all().len(), 0, "no message may be sent");
    }
}
