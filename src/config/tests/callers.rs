//! The requirements of `[caller.NAME]`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use jiff::Timestamp;

use super::{complaints, with};
use crate::caller::scope::CallerScope;
use crate::caller::token::Token;

const CHANNEL: &str = "[limit.acme]\npermits = 1\nper = \"1s\"\n[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n";

/// What is wrong with these tables of callers, each place shown as its line after the channel.
fn wrong(callers: &str) -> String {
    complaints(&format!("{CHANNEL}{callers}"))
}

/// A tokens file in a folder of its own.
fn tokens(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

fn line(token: &Token) -> String {
    token.stored(Timestamp::UNIX_EPOCH).to_string()
}

#[test]
fn a_caller_proves_its_name_and_may_do_something_somewhere() {
    insta::assert_snapshot!(wrong(
        "[caller.a]\n[caller.b]\ncertificate = \"b\"\nmay = []\n[caller.c]\ncertificate = \"c\"\nmay = [\"look\", \"canel\"]\nchannels = [\"acme\"]\n\
         [caller.d]\ncertificate = \"d\"\nmay = [\"pay\"]\n[caller.e]\ncertificate = \"e\"\nmay = [\"look\"]\n\
         [caller.f]\ncertificate = \"f\"\nmay = [\"acquire\"]\n[caller.g]\ncertificate = \"g\"\nmay = [\"metrics\"]\n"
    ), @r#"
    r.toml:11:9: section `[caller.a]`: cannot prove who it is; add `tokens_file`, `certificate` or both
    r.toml:11:9: field `caller.a.may`: missing; it says what the caller may do: some of `enqueue`, `look`, `cancel`, `acquire`, `operate`, `review`, `approve`, `metrics`
    r.toml:14:7: field `caller.b.may` = []: is empty, so the caller could do nothing; name some of `enqueue`, `look`, `cancel`, `acquire`, `operate`, `review`, `approve`, `metrics`
    r.toml:17:7: field `caller.c.may` = ["look", "canel"]: has `canel`, which is no scope (did you mean `cancel`?); there are `enqueue`, `look`, `cancel`, `acquire`, `operate`, `review`, `approve`, `metrics`
    r.toml:21:7: field `caller.d.may` = ["pay"]: has `pay`, which is no scope; there are `enqueue`, `look`, `cancel`, `acquire`, `operate`, `review`, `approve`, `metrics`
    r.toml:22:9: section `[caller.e]`: may `look` and has no channel to do it with; name some in `channels`, or "*" for all
    r.toml:25:9: section `[caller.f]`: may `acquire` and has no limit to acquire from; name some in `limits`, or "*" for all
    "#);
}

#[test]
fn channels_and_limits_of_a_caller_exist() {
    insta::assert_snapshot!(wrong(
        "[caller.a]\ncertificate = \"a\"\nmay = [\"look\", \"acquire\"]\nchannels = [\"acmee\"]\nlimits = [\"globex\"]\n\
         [caller.b]\ncertificate = \"b\"\nmay = [\"look\"]\nchannels = [\"*\", \"acme\"]\n"
    ), @r#"
    r.toml:14:12: field `caller.a.channels` = ["acmee"]: there is no `[channel.acmee]`; did you mean `acme`?
    r.toml:15:10: field `caller.a.limits` = ["globex"]: there is no `[limit.globex]`; add it, or use one of `acme`
    r.toml:19:12: field `caller.b.channels` = ["*", "acme"]: has "*" beside other names; "*" means all and stands alone
    "#);
}

#[test]
fn names_certificates_rates_and_amounts_of_callers_have_bounds() {
    insta::assert_snapshot!(wrong(
        "[caller.Shop]\ncertificate = \"*.internal\"\nmay = [\"metrics\"]\ntoken = \"rfd_hunter2\"\n\
         [caller.4111111111111111]\ncertificate = \"x\"\nmay = [\"metrics\"]\nrequests = 0\nper = \"2h\"\n\
         [caller.b]\ncertificate = \"X\"\nmay = [\"metrics\"]\nrequests = 5\n\
         [caller.c]\ncertificate = \"c\"\nmay = [\"metrics\"]\nmax_amount_minor = { EUR = 0, EURO = 5, XXX = 1 }\n\
         [caller.d]\ncertificate = \"d\"\nmay = [\"metrics\"]\nmax_amount_minor = {}\n"
    ), @r#"
    r.toml:11:9: section `[caller.Shop]`: `Shop` is not a name: use 1 to 63 of a-z, 0-9, `-` and `_`, starting with a letter or digit
    r.toml:12:15: field `caller.Shop.certificate` = "*.internal": must be the name in the caller's client certificate, such as "shop.internal", without blanks and without `*`
    r.toml:14:1: field `caller.Shop.token`: a secret does not belong in this file; `refundd token` makes one, and its line goes into `tokens_file`
    r.toml:15:9: section `[caller.4111111111111111]`: has a name that looks like a card number, and the journal keeps this name; choose another
    r.toml:18:12: field `caller.4111111111111111.requests` = 0: must lie between 1 and 1000000
    r.toml:19:7: field `caller.4111111111111111.per` = "2h": must lie between "10ms" and "1h"
    r.toml:20:9: section `[caller.b]`: has only one of `requests` and `per`; a rate needs both, or leave both out for no bound
    r.toml:21:15: field `caller.b.certificate` = "X": is the certificate of caller `4111111111111111`, too; each caller needs its own
    r.toml:27:28: field `caller.c.max_amount_minor.EUR` = 0: must be at least 1, in minor units: 500000 is 5000.00 EUR
    r.toml:27:38: field `caller.c.max_amount_minor.EURO` = 5: is for a currency of ISO 4217, such as EUR
    r.toml:27:47: field `caller.c.max_amount_minor.XXX` = 1: is for a currency of ISO 4217, such as EUR
    r.toml:31:1: section `[caller.d.max_amount_minor]`: must name a currency and its highest amount in minor units, such as { EUR = 500000 }
    "#);
}

#[test]
fn a_tokens_file_has_one_or_two_lines_of_its_owner_and_is_never_shown() {
    let (one, two, three) = (Token::mint().unwrap(), Token::mint().unwrap(), Token::mint().unwrap());
    let all = [&one, &two, &three].map(line);
    let with_file = |text: &str| {
        let (_folder, path) = tokens(text);
        let shown = wrong(&format!("[caller.a]\ntokens_file = \"{path}\"\nmay = [\"metrics\"]\n"));
        shown.replace(&path, "/tokens")
    };
    insta::assert_snapshot!(with_file(&all.join("\n")), @r#"r.toml:12:15: field `caller.a.tokens_file` = "/tokens": this file has 3 tokens; at most 2 are allowed, the old one and the new one"#);
    insta::assert_snapshot!(with_file(""), @r#"r.toml:12:15: field `caller.a.tokens_file` = "/tokens": this file is empty"#);
    insta::assert_snapshot!(with_file(&format!("\n{}\nrubbish\n", all[0])), @r#"r.toml:12:15: field `caller.a.tokens_file` = "/tokens": entry 2 of this file must have three parts, ID SHA256 EXPIRY, as `refundd token` prints them"#);
    let pasted = with_file(one.expose());
    assert!(pasted.contains("entry 1 of this file holds a token itself"), "{pasted}");
    assert!(!pasted.contains(one.expose().rsplit_once('_').unwrap().1), "{pasted}");

    let (_folder, path) = tokens(&all[..2].join("\n"));
    let table = |name: &str| format!("[caller.{name}]\ntokens_file = \"{path}\"\nmay = [\"metrics\"]\n");
    let twice = wrong(&format!("{}{}", table("a"), table("b")));
    assert!(twice.contains("which caller `a` has, too; give each caller its own"), "{twice}");
    assert_eq!(with(&table("a")).callers.0.values().next().unwrap().tokens.len(), 2);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let open = wrong(&table("a"));
    assert!(open.contains("its mode is 0640; run `chmod 600"), "{open}");
}

#[test]
fn a_caller_has_no_more_than_the_file_says() {
    let config = with(&format!("{CHANNEL}[caller.a]\ncertificate = \"a\"\nmay = [\"metrics\"]\n"));
    let caller = config.callers.0.values().next().unwrap();
    assert!(!caller.channels.has("acme") && !caller.limits.has("acme"));
    assert!(caller.may.iter().eq([&CallerScope::Metrics]));
    let config =
        with(&format!("{CHANNEL}[caller.a]\ncertificate = \"a\"\nmay = [\"look\"]\nchannels = [\"*\"]\n"));
    let caller = config.callers.0.values().next().unwrap();
    assert!(caller.channels.has("anything") && !caller.limits.has("acme"));
}

#[test]
fn a_caller_whose_certificate_nobody_asks_for_is_warned_about() {
    let config = with("[caller.a]\ncertificate = \"a\"\nmay = [\"metrics\"]\n");
    assert!(config.warnings()[0].contains("caller `a` has a `certificate`"), "{:?}", config.warnings());
}

#[test]
fn an_expired_token_is_warned_about() {
    let (_folder, path) = tokens(&line(&Token::mint().unwrap()));
    let config = with(&format!("[caller.a]\ntokens_file = \"{path}\"\nmay = [\"metrics\"]\n"));
    let warnings = config.callers.warnings(Timestamp::now());
    assert!(warnings[0].contains("expired at 1970-01-01T00:00:00Z"), "{warnings:?}");
}

#[test]
fn callers_of_which_none_may_read_metrics_are_warned_about_unless_scrapers_have_an_address_of_their_own() {
    let of = |may: &str, http: &str| {
        let caller = format!("[caller.a]\ncertificate = \"a\"\nmay = [{may}]\nchannels = [\"*\"]\n");
        let warnings = with(&format!("{CHANNEL}{caller}{http}")).warnings();
        warnings.into_iter().filter(|warning| warning.contains("401")).collect::<Vec<_>>()
    };
    let warned = of("\"look\"", "");
    assert_eq!(warned.len(), 1, "{warned:?}");
    for words in
        ["no caller may read `metrics`", "set `admin_listen` in `[http]`", "add \"metrics\" to the `may`"]
    {
        assert!(warned[0].contains(words), "{words}: {warned:?}");
    }
    assert_eq!(of("\"look\", \"metrics\"", ""), Vec::<String>::new());
    assert_eq!(of("\"look\"", "[http]\nadmin_listen = \"127.0.0.1:9090\"\n"), Vec::<String>::new());
}
