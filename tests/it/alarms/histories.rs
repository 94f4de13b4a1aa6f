//! What the rules find in histories that are too long or too rare for a real node: lost scrapes, slow channels, old
//! answers and retired channels.

use super::expression::{EVERY, Labels, Scrape, samples};
use super::watch::Watch;

/// The scrape of a node that has these samples.
fn scrape(page: &str) -> Scrape {
    let own = [("job", "refundd"), ("instance", "a")];
    let own: Labels = own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    samples(&format!("up 1\n{page}"), &own)
}

/// Scrapes with these samples for so many minutes.
fn minutes(count: usize, page: &str) -> Vec<Scrape> {
    vec![scrape(page); count * 60 / EVERY]
}

/// Whether the rule holds at the end of these scrapes.
fn holds(alert: &str, history: Vec<Scrape>) -> bool {
    let watch = Watch::of(history);
    watch.compare_with_promtool();
    watch.holds(alert)
}

#[test]
fn a_failover_of_postgres_or_a_restart_of_the_node_ends_no_alarm_and_a_true_zero_does() {
    for (alert, gauge, value) in [
        ("RefunddChannelPaused", "refundd_channel_paused{channel=\"acme\"}", 1),
        ("RefunddBreakerOpen", "refundd_channel_suspended{channel=\"acme\",by=\"breaker\"}", 1),
        ("RefunddNothingMoves", "refundd_oldest_ready_seconds{channel=\"acme\"}", 700),
        ("RefunddBacklogOld", "refundd_oldest_ready_seconds{channel=\"acme\"}", 4000),
        ("RefunddBacklogFull", "refundd_backlog_full{channel=\"acme\"}", 1),
        ("RefunddRefundsLate", "refundd_refunds_late{channel=\"acme\"}", 1),
        ("RefunddUnknownStays", "refundd_refunds{channel=\"acme\",state=\"unknown\"}", 1),
        ("RefunddReview", "refundd_refunds{channel=\"acme\",state=\"review\"}", 1),
        ("RefunddProposalWaits", "refundd_proposals_waiting{channel=\"acme\"}", 1),
        ("RefunddJournalUnsealed", "refundd_journal_unsealed_seconds", 400),
        ("RefunddNotifyLate", "refundd_notify_lag_seconds", 400),
        ("RefunddSnapshotHeld", "refundd_snapshot_held_seconds", 2000),
        ("RefunddCountsFail", "refundd_postgres_up 1\nrefundd_census_age_seconds", 1000),
    ] {
        let page = |value| format!("refundd_channel_nodes{{channel=\"acme\"}} 1\n{gauge} {value}");
        let mut history = minutes(1, &page(value));
        for without in [scrape("refundd_postgres_up 0"), scrape("refundd_postgres_up 0"), Scrape::new()] {
            history.push(without);
            assert!(holds(alert, history.clone()), "{alert} ends where a scrape lacks its gauge");
        }
        history.extend(minutes(1, &page(value)));
        assert!(holds(alert, history.clone()), "{alert}");
        history.push(scrape(&page(0)));
        assert!(!holds(alert, history), "{alert} goes on although its gauge is 0");
    }
}

#[test]
fn a_count_that_is_old_rings_only_while_postgres_answers() {
    let finds = |page: &str| holds("RefunddCountsFail", minutes(20, page));
    assert!(finds("refundd_postgres_up 1\nrefundd_census_age_seconds 901"));
    assert!(
        !finds("refundd_postgres_up 1\nrefundd_census_age_seconds 600"),
        "counts may be five minutes apart"
    );
    assert!(!finds("refundd_postgres_up 0\nrefundd_census_age_seconds 901"), "another rule says so");
    assert!(!finds("refundd_postgres_up 0"), "another rule says so");
}

#[test]
fn a_snapshot_that_is_held_for_more_than_half_an_hour_rings() {
    let page = |held: u32| minutes(1, &format!("refundd_snapshot_held_seconds {held}"));
    assert!(holds("RefunddSnapshotHeld", page(1801)));
    assert!(!holds("RefunddSnapshotHeld", page(1800)));
}

#[test]
fn a_bank_that_refuses_each_of_a_slow_channels_few_requests_accepts_nothing() {
    // A request every four minutes. For a minute before it the census has no send to judge by.
    let page = |nth: usize| {
        let lasts = if nth % 16 > 12 { 0 } else { nth * EVERY };
        format!(
            "refundd_attempts_total{{channel=\"acme\",outcome=\"asked_to_wait\"}} {}\n\
             refundd_nothing_accepted_seconds{{channel=\"acme\"}} {lasts}",
            1 + nth / 16
        )
    };
    let history: Vec<Scrape> = (0..100).map(|nth| scrape(&page(nth))).collect();
    for length in [45, 47, 48, 60, 63, 100] {
        assert!(holds("RefunddBankAcceptsNothing", history[..length].to_vec()), "{length} scrapes");
    }
    assert!(!holds("RefunddBankAcceptsNothing", history[..40].to_vec()), "ten minutes are not over");
}

#[test]
fn a_bank_that_is_seen_to_refuse_for_ten_minutes_accepts_nothing_however_little_of_the_journal_is_read() {
    let seen = |seconds: u32| {
        minutes(10, &format!("refundd_nothing_accepted_seconds{{channel=\"acme\"}} {seconds}"))
    };
    let accepts = minutes(1, "refundd_nothing_accepted_seconds{channel=\"acme\"} 0");
    assert!(!holds("RefunddBankAcceptsNothing", seen(170)), "ten minutes are not over");
    assert!(holds("RefunddBankAcceptsNothing", [seen(170), vec![scrape("")], seen(170)].concat()));
    assert!(holds("RefunddBankAcceptsNothing", [seen(170), seen(170)].concat()));
    for history in [[seen(170), accepts.clone(), seen(170)], [seen(170), seen(170), accepts]] {
        assert!(!holds("RefunddBankAcceptsNothing", history.concat()));
    }
}

#[test]
fn a_wait_of_a_minute_for_the_limit_does_not_explain_that_nothing_moves_and_a_spent_quota_does() {
    let due =
        "refundd_oldest_ready_seconds{channel=\"acme\"} 2000\nrefundd_channel_nodes{channel=\"acme\"} 1";
    let waits =
        |left: usize| scrape(&format!("{due}\nrefundd_limit_wait_seconds{{channel=\"acme\"}} {left}"));
    // A permit a minute. The gauge is there for waits of more than 30 s.
    let slow: Vec<Scrape> = (0..60).flat_map(|_| [waits(55), waits(40), scrape(due), scrape(due)]).collect();
    for back in 0..4 {
        assert!(holds("RefunddNothingMoves", slow[..slow.len() - back].to_vec()), "{back} scrapes ago");
    }
    let quota: Vec<Scrape> = (0..120).rev().map(|nth| waits(45 + nth * EVERY)).collect();
    for length in [1, 60, 120] {
        assert!(!holds("RefunddNothingMoves", quota[..length].to_vec()), "{length} scrapes");
    }
    // The quota is there again, and nothing is sent.
    assert!(holds("RefunddNothingMoves", [quota, minutes(11, due)].concat()));
}

#[test]
fn nothing_moves_is_for_causes_without_a_rule_of_their_own() {
    let due = "refundd_oldest_ready_seconds{channel=\"acme\"} 2000\n";
    let runs = "refundd_channel_nodes{channel=\"acme\"} 1\n";
    let connected = |is| format!("refundd_bank_connected{{channel=\"acme\",purpose=\"send\"}} {is}\n");
    let suspended = |by| format!("refundd_channel_suspended{{channel=\"acme\",by=\"{by}\"}} 1\n");
    let finds = |page: &str| holds("RefunddNothingMoves", minutes(15, &format!("{due}{page}")));
    assert!(finds(runs));
    assert!(finds(&format!("{runs}{}", connected(1))));
    for by in ["all", "person", "credentials", "breaker"] {
        assert!(!finds(&format!("{runs}{}", suspended(by))), "{by}");
    }
    assert!(!finds("refundd_channel_nodes{channel=\"acme\"} 0\n"));
    assert!(!finds(&format!("{runs}{}", connected(0))));
}

#[test]
fn nothing_is_confirmed_while_attempts_end_and_none_says_what_the_bank_did() {
    let page = |outcome: &str, nth: usize, more: &str| {
        scrape(&format!("refundd_attempts_total{{channel=\"acme\",outcome=\"{outcome}\"}} {nth}\n{more}"))
    };
    let finds = |outcome: &str, more: &dyn Fn(usize) -> String| {
        let history = (0..80).map(|nth| page(outcome, nth, &more(nth))).collect();
        holds("RefunddNothingConfirmed", history)
    };
    for outcome in ["unknown", "review"] {
        assert!(finds(outcome, &|_| String::new()), "{outcome}");
    }
    for outcome in
        ["succeeded", "accepted", "rejected", "handed_back", "asked_to_wait", "unauthorised", "not_executed"]
    {
        assert!(!finds(outcome, &|_| String::new()), "{outcome}");
    }
    // One refund in ten minutes is enough, and one of before is not.
    let once_at = |moment: usize, counter: &'static str, outcome: &'static str| {
        move |nth: usize| {
            let count = u8::from(nth >= moment);
            format!("refundd_{counter}_total{{channel=\"acme\",outcome=\"{outcome}\"}} {count}\n")
        }
    };
    for (counter, outcome) in
        [("attempts", "succeeded"), ("inquiries", "succeeded"), ("inquiries", "rejected")]
    {
        assert!(!finds("unknown", &once_at(60, counter, outcome)), "{counter}, {outcome}");
        assert!(finds("unknown", &once_at(20, counter, outcome)), "{counter}, {outcome}");
    }
    assert!(finds("unknown", &once_at(60, "inquiries", "pending")), "a bank may say it of an old refund");
    let suspended = |_: usize| "refundd_channel_suspended{channel=\"acme\",by=\"breaker\"} 1\n".to_owned();
    assert!(!finds("unknown", &suspended), "the breaker has a rule of its own");
}

#[test]
fn nothing_is_confirmed_on_a_channel_that_sends_every_half_an_hour() {
    const EACH: usize = 30 * 60 / EVERY;
    let page = |unclear: usize, paid: usize| {
        let of = |outcome, count| {
            format!("refundd_attempts_total{{channel=\"acme\",outcome=\"{outcome}\"}} {count}\n")
        };
        scrape(&(of("unknown", unclear) + &of("succeeded", paid)))
    };
    let slow: Vec<Scrape> = (0..EACH * 7).map(|nth| page(nth / EACH, 0)).collect();
    // `for` needs ten minutes without a gap.
    for back in (0..EACH * 2).step_by(7) {
        assert!(holds("RefunddNothingConfirmed", slow[..slow.len() - back].to_vec()), "{back} scrapes ago");
    }
    // Every third one is paid.
    let third: Vec<Scrape> =
        (0..EACH * 7).map(|nth| page(nth / EACH - nth / EACH / 3, nth / EACH / 3)).collect();
    for back in [EACH / 2, EACH + EACH / 2, 2 * EACH + EACH / 2] {
        assert!(
            !holds("RefunddNothingConfirmed", third[..third.len() - back].to_vec()),
            "{back} scrapes ago"
        );
    }
    // A few at once, and then none for hours.
    let few: Vec<Scrape> = (0..EACH * 6).map(|nth| page(if nth < EACH { 0 } else { 3 }, 0)).collect();
    for length in [EACH * 2, EACH * 3, EACH * 4, EACH * 5, EACH * 6] {
        assert!(!holds("RefunddNothingConfirmed", few[..length].to_vec()), "{length} scrapes");
    }
}

#[test]
fn the_breaker_of_a_retired_channel_wakes_nobody() {
    let open = "refundd_channel_suspended{channel=\"acme\",by=\"breaker\"} 1\n";
    let finds = |nodes| {
        let page = format!("{open}refundd_channel_nodes{{channel=\"acme\"}} {nodes}");
        holds("RefunddBreakerOpen", minutes(1, &page))
    };
    assert!(finds(1));
    assert!(!finds(0));
}

#[test]
fn while_a_channel_is_paused_nobody_knows_whether_its_bank_can_be_reached() {
    let finds = |paused: &str, is| {
        let page = format!(
            "refundd_bank_connected{{channel=\"acme\",purpose=\"send\"}} 0\n\
             refundd_channel_paused{{channel=\"{paused}\"}} {is}"
        );
        holds("RefunddBankUnreachable", minutes(1, &page))
    };
    assert!(finds("acme", 0));
    assert!(finds("globex", 1));
    assert!(!finds("acme", 1));
}

#[test]
fn the_first_late_byte_of_a_channel_rings_for_an_hour_and_not_again_after_a_lost_scrape() {
    let page = |late| format!("refundd_first_bytes_late_total{{channel=\"acme\"}} {late}");
    let after = |count| [minutes(20, &page(0)), minutes(count, &page(1))].concat();
    assert!(!holds("RefunddFirstBytesLate", minutes(20, &page(0))));
    assert!(holds("RefunddFirstBytesLate", after(1)) && holds("RefunddFirstBytesLate", after(59)));
    assert!(!holds("RefunddFirstBytesLate", after(62)), "it never ends");
    let lost = [minutes(120, &page(1)), vec![Scrape::new()], minutes(60, &page(1))].concat();
    assert!(!holds("RefunddFirstBytesLate", lost), "an old one rings again");
}

#[test]
fn a_lost_scrape_makes_no_old_answer_and_no_old_reload_new() {
    for (alert, counter, rings, lost) in [
        ("RefunddUnmappedAnswers", "refundd_unmapped_answers_total{channel=\"acme\",status=\"418\"}", 60, 60),
        ("RefunddReloadRefused", "refundd_config_reloads_total{result=\"refused\"}", 10, 10),
        ("RefunddTokenExpired", "refundd_http_refused_callers_total{reason=\"expired_token\"}", 60, 60),
    ] {
        let after = |count: usize| minutes(count, &format!("{counter} 1"));
        let lost = [after(120), vec![Scrape::new()], after(lost)].concat();
        assert!(!holds(alert, lost), "{alert}: an old one rings again");
        // A node begins its counters at 0, except that of answers.
        let before = if alert == "RefunddUnmappedAnswers" { String::new() } else { format!("{counter} 0") };
        let first = |count| [minutes(20, &before), after(count)].concat();
        assert!(holds(alert, first(1)) && holds(alert, first(rings - 1)), "{alert}");
        assert!(!holds(alert, first(rings + 2)), "{alert} never ends");
    }
}

#[test]
fn a_permit_of_an_inquiry_that_lapses_among_inquiries_that_are_made_wakes_nobody() {
    let page = |sends: Option<u32>, inquiries: u32, lapses: u32| {
        let sends = sends.map_or_else(String::new, |sends| {
            format!("refundd_attempts_total{{channel=\"acme\",outcome=\"succeeded\"}} {sends}\n")
        });
        format!(
            "{sends}refundd_inquiries_total{{channel=\"acme\",outcome=\"pending\"}} {inquiries}\n\
             refundd_permits_unused_total{{channel=\"acme\",reason=\"permit_lapsed\"}} {lapses}"
        )
    };
    let finds = |sends: Option<u32>, inquiries, lapses| {
        let before = minutes(10, &page(sends.map(|_| 0), 0, 0));
        let after = minutes(1, &page(sends, inquiries, lapses));
        holds("RefunddPermitsLapse", [before, after].concat())
    };
    for sends in [None, Some(0)] {
        assert!(!finds(sends, 3, 1), "{sends:?}");
        assert!(finds(sends, 1, 3), "{sends:?}");
    }
    assert!(!finds(Some(3), 3, 5), "six permits were used");
    assert!(finds(Some(2), 2, 5));
}

#[test]
fn a_slow_channel_whose_refunds_are_all_rejected_rings_unless_it_is_suspended() {
    let history = |more: &str, rejected: fn(usize) -> usize| {
        let page = |count| {
            format!("refundd_attempts_total{{channel=\"acme\",outcome=\"rejected\"}} {count}\n{more}")
        };
        (0..=480).map(|nth| scrape(&page(rejected(nth)))).collect::<Vec<_>>()
    };
    let (one_in_five_minutes, an_hour_ago) = (|nth| nth / 20, |nth: usize| nth.min(240) / 8);
    assert!(holds("RefunddBankRejectsAll", history("", one_in_five_minutes)));
    let suspended = "refundd_channel_suspended{channel=\"acme\",by=\"breaker\"} 1";
    assert!(!holds("RefunddBankRejectsAll", history(suspended, one_in_five_minutes)), "another rule says so");
    // As before a person resumed the channel.
    assert!(!holds("RefunddBankRejectsAll", history("", an_hour_ago)), "nothing is rejected now");
}
