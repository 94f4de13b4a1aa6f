//! The requirements of `[review]`.

use super::{complaints, with};

#[test]
fn amounts_that_one_person_decides_have_currencies_and_bounds() {
    assert_eq!(with("").second_person_above.0.len(), 0);
    let config = with("[review]\nsecond_person_above = { EUR = 100000, JPY = 0 }\n");
    assert_eq!(config.second_person_above.0["EUR"], 100_000);
    assert_eq!(config.second_person_above.0["JPY"], 0);
    insta::assert_snapshot!(complaints(
        "[review]\nsecond_person_above = { EUR = -1, EURO = 5, USD = 1000000000000000000, JPY = \"5\" }\nsecond_person = true\n"
    ), @r#"
    r.toml:6:31: field `review.second_person_above.EUR` = -1: must lie between 0 and 999999999999999999, in minor units: 100000 is 1000.00 EUR; 0 asks for a second person always
    r.toml:6:42: field `review.second_person_above.EURO` = 5: is for a currency of ISO 4217, such as EUR
    r.toml:6:51: field `review.second_person_above.USD` = 1000000000000000000: must lie between 0 and 999999999999999999, in minor units: 100000 is 1000.00 EUR; 0 asks for a second person always
    r.toml:6:78: field `review.second_person_above.JPY` = "5": must be a whole number, not text
    r.toml:7:1: field `review.second_person`: unknown key; known here: `second_person_above`
    "#);
    for (table, problem) in
        [("{}", "must name a currency and the highest amount"), ("5", "must be a section")]
    {
        let shown = complaints(&format!("[review]\nsecond_person_above = {table}\n"));
        assert!(shown.contains(problem), "{shown}");
    }
}

#[test]
fn a_caller_whose_proposals_nobody_else_may_approve_is_warned_about() {
    let warnings = |other: &str| {
        let channel = "[channel.acme]\nendpoint = \"http://localhost/\"\nlimits = []\n";
        let desk =
            "[caller.desk]\ncertificate = \"desk\"\nmay = [\"review\", \"approve\"]\nchannels = [\"*\"]\n";
        let warnings = with(&format!("{channel}{desk}{other}")).warnings();
        warnings.into_iter().filter(|warning| warning.contains("`approve`")).collect::<Vec<_>>()
    };
    let alone = warnings("");
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert!(
        alone[0].starts_with("caller `desk` may `review`, and no other caller may `approve`"),
        "{alone:?}"
    );
    let chief = "[caller.chief]\ncertificate = \"chief\"\nmay = [\"approve\"]\nchannels = [\"acme\"]\n";
    assert_eq!(warnings(chief), Vec::<String>::new());
    let elsewhere = chief.replace("acme", "globex");
    let globex = "[channel.globex]\nendpoint = \"http://localhost/\"\nlimits = []\n";
    let alone = warnings(&format!("{globex}{elsewhere}"));
    assert_eq!(
        alone,
        [
            "caller `desk` may `review`, and no other caller may `approve` on `acme`, so only `refundd review approve` can approve what \
          this caller proposes there"
        ]
    );
}
