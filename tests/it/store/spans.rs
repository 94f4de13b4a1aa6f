//! The ledger's own count after a claim: whatever Redis granted, no span holds more than the rule allows.

use std::time::Duration;

use refundd::limiter::{Counted, Permit, PermitNumber};
use refundd::refund::{LimitName, RefundId};

use crate::harness::{Scratch, until};

use super::{claim, claim_of, limited_scratch_with, numbered, window};

const SLIDING: &str = r#"{"algorithm":"sliding_log","permits":2,"per_us":1000000,"lateness_us":20000}"#;

/// Two permits of the limit `acme` that open `from_now` ms after now, under the limit's present generation.
async fn sliding(
    scratch: &Scratch,
    ids: [i64; 2],
    from_now: i64,
    counted: Counted,
) -> Vec<(RefundId, Permit)> {
    let now = scratch.now_us().await;
    let generation = scratch.store.generation(&LimitName::new("acme").unwrap()).await.unwrap();
    let permit = |id: i64| {
        let (id, mut permit) = numbered(id, now + from_now * 1000, i32::try_from(id).unwrap());
        let own_rule = SLIDING.into();
        permit.numbers[0] = PermitNumber { own_rule, generation, counted, ..permit.numbers[0].clone() };
        (id, permit)
    };
    ids.map(permit).into()
}

const ALWAYS: Counted = Counted { is_always: true, lead: Duration::from_millis(150), clock_known: None };

#[tokio::test]
async fn permits_of_another_clock_count_by_the_time_at_which_they_were_spent() {
    for (apart, another_server, clock_known) in [
        // The next permits are named far before and far after the ones that were just spent.
        (-1_500, true, None),
        (1_500, true, None),
        (-1_500, false, Some(Duration::from_millis(1))),
        (1_500, false, Some(Duration::from_millis(1))),
    ] {
        let scratch = limited_scratch_with(6).await;
        let first = sliding(&scratch, [1, 2], 0, ALWAYS).await;
        assert_eq!(claim(&scratch, "a", &first).await.leased.len(), 2, "{apart}");
        if another_server {
            scratch
                .sql(
                    "update refundd.limits set generation = generation + 1, server_since = clock_timestamp()",
                )
                .await;
        }
        let at_once = Counted { clock_known, ..ALWAYS };
        let second = claim(&scratch, "b", &sliding(&scratch, [3, 4], apart, at_once).await).await;
        assert!(second.leased.is_empty(), "{apart}: four in a second");
        assert_eq!(second.overspent.len(), 2, "{apart}: {second:?}");
    }
}

#[tokio::test]
async fn permits_for_inquiries_count_by_the_time_at_which_they_were_spent_too() {
    let scratch = limited_scratch_with(4).await;
    scratch.lease("true", "attempts = 1").await;
    scratch.release("true", "state = 'unknown', inquire_at = now()").await;
    let first = sliding(&scratch, [1, 2], 0, ALWAYS).await;
    let first = scratch.store.claim_inquiries(&claim_of("a", &first)).await.unwrap();
    assert_eq!(first.leased.len(), 2, "{first:?}");
    scratch
        .sql("update refundd.limits set generation = generation + 1, server_since = clock_timestamp()")
        .await;
    // Only the new server makes the ledger count.
    let second = sliding(&scratch, [3, 4], 1_500, Counted { is_always: false, ..ALWAYS }).await;
    let second = scratch.store.claim_inquiries(&claim_of("b", &second)).await.unwrap();
    assert!(second.leased.is_empty(), "four in a second");
    assert_eq!(second.overspent.len(), 2, "{second:?}");
}

#[tokio::test]
async fn permits_of_one_clock_count_by_their_names_alone() {
    let scratch = limited_scratch_with(6).await;
    for (ids, from_now) in [([1, 2], -1_030), ([3, 4], 0)] {
        let taken = sliding(&scratch, ids, from_now, ALWAYS).await;
        assert_eq!(claim(&scratch, "a", &taken).await.leased.len(), 2, "{from_now}");
    }
}

#[tokio::test]
async fn a_step_of_the_clock_long_ago_refuses_nothing() {
    let scratch = limited_scratch_with(6).await;
    let known = Counted { clock_known: Some(Duration::from_mins(1)), ..ALWAYS };
    for (ids, from_now) in [([1, 2], -1_030), ([3, 4], 0)] {
        let taken = sliding(&scratch, ids, from_now, known).await;
        assert_eq!(claim(&scratch, "a", &taken).await.leased.len(), 2, "{from_now}");
    }
}

#[tokio::test]
async fn a_limit_is_used_again_when_the_permits_of_the_other_clock_are_too_old_to_count() {
    let scratch = limited_scratch_with(6).await;
    assert_eq!(claim(&scratch, "a", &sliding(&scratch, [1, 2], 0, ALWAYS).await).await.leased.len(), 2);
    // per + lateness + lead
    let young = "select count(*) from refundd.permits where spent_at > clock_timestamp() - interval '1171 milliseconds'";
    until("they are old", async || scratch.number(young).await == 0).await;
    scratch
        .sql("update refundd.limits set generation = generation + 1, server_since = clock_timestamp()")
        .await;
    assert_eq!(claim(&scratch, "b", &sliding(&scratch, [3, 4], 300, ALWAYS).await).await.leased.len(), 2);
}

/// The number was three, and `ago` it became two, as in [`SLIDING`].
async fn lowered(scratch: &Scratch, ago: &str) {
    scratch
        .sql(&format!(
            "insert into refundd.limit_rules (limit_name, published_at, rule, node) values
             ('acme', now() - interval '1 minute', '{SLIDING}'::jsonb || '{{\"permits\": 3}}', 'a'),
             ('acme', now() - interval '{ago}', '{SLIDING}', 'a')"
        ))
        .await;
}

#[tokio::test]
async fn what_is_spent_under_a_lower_number_keeps_it_in_whichever_order_the_claims_commit() {
    for from_now in [300, -300] {
        let scratch = limited_scratch_with(4).await;
        lowered(&scratch, "5 seconds").await;
        assert_eq!(claim(&scratch, "a", &sliding(&scratch, [1, 2], 0, ALWAYS).await).await.leased.len(), 2);
        // Redis forgot them.
        let third = sliding(&scratch, [3, 4], from_now, ALWAYS).await.split_off(1);
        let third = claim(&scratch, "b", &third).await;
        assert_eq!((third.leased.len(), third.overspent.len()), (0, 1), "{from_now}: three in a second");
    }
}

#[tokio::test]
async fn what_is_spent_under_a_lower_number_keeps_it_though_another_clock_named_it() {
    let scratch = limited_scratch_with(4).await;
    lowered(&scratch, "5 seconds").await;
    assert_eq!(claim(&scratch, "a", &sliding(&scratch, [1, 2], 0, ALWAYS).await).await.leased.len(), 2);
    scratch
        .sql("update refundd.limits set generation = generation + 1, server_since = clock_timestamp()")
        .await;
    let third = sliding(&scratch, [3, 4], 1_500, ALWAYS).await.split_off(1);
    let third = claim(&scratch, "b", &third).await;
    assert_eq!((third.leased.len(), third.overspent.len()), (0, 1), "three in a second");
}

#[tokio::test]
async fn permits_of_the_older_number_do_not_count_against_a_lower_one() {
    let scratch = limited_scratch_with(4).await;
    lowered(&scratch, "0 seconds").await;
    assert_eq!(claim(&scratch, "a", &sliding(&scratch, [1, 2], 0, ALWAYS).await).await.leased.len(), 2);
    let third = sliding(&scratch, [3, 4], 500, ALWAYS).await.split_off(1);
    assert_eq!(claim(&scratch, "b", &third).await.leased.len(), 1);
}

#[tokio::test]
async fn a_span_meets_two_numbered_windows_at_most_though_two_clocks_name_them() {
    let scratch = limited_scratch_with(6).await;
    let w = window(&scratch).await;
    let rule = r#"{"algorithm":"fixed_window","permits":2,"per_us":1000000,"lateness_us":20000}"#;
    let permits = |ids: [i64; 2], window: i64, generation: i64| -> Vec<(RefundId, Permit)> {
        let permit = |(id, nth): (i64, i32)| {
            let (id, mut permit) = numbered(id, window, nth);
            let counted = Counted { is_always: false, ..ALWAYS };
            permit.numbers[0] =
                PermitNumber { own_rule: rule.into(), generation, counted, ..permit.numbers[0].clone() };
            (id, permit)
        };
        [(ids[0], 1), (ids[1], 2)].map(permit).into()
    };
    scratch.sql("update refundd.limits set server_since = clock_timestamp() - interval '40 seconds'").await;
    assert_eq!(claim(&scratch, "a", &permits([1, 2], w, 1)).await.leased.len(), 2);
    // The clock of the next server is two seconds behind.
    scratch
        .sql("update refundd.limits set generation = generation + 1, server_since = clock_timestamp()")
        .await;
    assert_eq!(claim(&scratch, "b", &permits([3, 4], w - 2_000_000, 2)).await.leased.len(), 2);
    let third = claim(&scratch, "b", &permits([5, 6], w - 1_000_000, 2)).await;
    assert_eq!((third.leased.len(), third.overspent.len()), (0, 2), "six in a moment, and four are allowed");
}

const STRICT: &str = r#"{"algorithm":"paced_strict","permits":10,"per_us":1000000,"lateness_us":20000}"#;

/// A permit of a strict gap whose slot opens then.
fn strict(id: i64, opens_us: i64) -> (RefundId, Permit) {
    let (id, mut permit) = numbered(id, opens_us, 1);
    let number = permit.numbers[0].clone();
    permit.numbers[0] = PermitNumber { own_rule: STRICT.into(), counted: ALWAYS, ..number };
    (id, permit)
}

/// Its slots are 120 ms apart. The span has room for ten permits.
#[tokio::test]
async fn permits_nearer_to_each_other_than_a_strict_gap_are_refused_in_whichever_order_they_are_claimed() {
    for (away_us, leased) in [(119_999, 0), (-119_999, 0), (120_000, 1), (-120_000, 1)] {
        let scratch = limited_scratch_with(2).await;
        let now = window(&scratch).await;
        assert_eq!(claim(&scratch, "a", &[strict(1, now)]).await.leased.len(), 1);
        let second = claim(&scratch, "b", &[strict(2, now + away_us)]).await;
        assert_eq!((second.leased.len(), second.overspent.len()), (leased, 1 - leased), "{away_us}");
    }
}

#[tokio::test]
async fn permits_of_one_claim_keep_a_strict_gap_too() {
    for (away_us, leased) in [(119_999, 0), (120_000, 2)] {
        let scratch = limited_scratch_with(2).await;
        let now = window(&scratch).await;
        let both = claim(&scratch, "a", &[strict(1, now), strict(2, now + away_us)]).await;
        assert_eq!((both.leased.len(), both.overspent.len()), (leased, 2 - leased), "{away_us}");
    }
}

/// Against a count of every span by hand, at moments where nothing was reloaded.
#[tokio::test]
async fn a_span_above_a_limit_is_found_wherever_a_claims_permits_are_in_it() {
    let scratch = Scratch::new().await;
    let mut rng = fastrand::Rng::with_seed(44);
    let (mut kept, mut broken) = (0, 0);
    let start =
        scratch.number("select (extract(epoch from date_trunc('day', now())) * 1000000)::bigint").await;
    for round in 0..60 {
        let limit = format!("limit-{round}");
        let mut moments: Vec<i64> =
            (0..rng.usize(2..9)).map(|_| start + 60_000_000 + rng.i64(0..40) * 100_000).collect();
        moments.sort_unstable();
        for (nth, at) in moments.iter().enumerate() {
            scratch
                .sql(&format!(
                    "insert into refundd.permits (limit_name, window_start, ordinal, node, caller)
                     values ('{limit}', timestamptz 'epoch' + {at} * interval '1 microsecond', {}, 'a', 'x')",
                    nth + 1
                ))
                .await;
        }
        let claimed = &moments[rng.usize(..moments.len())..];
        let claimed = &claimed[..rng.usize(1..=claimed.len())];
        // Permits that opened in the span that ends with this one.
        let in_span = |end: i64| moments.iter().filter(|at| (end - 1_019_999..=end).contains(*at)).count();
        let last = claimed[claimed.len() - 1];
        let affected = moments.iter().filter(|at| (claimed[0]..=last + 1_019_999).contains(*at));
        let keeps = affected.map(|at| in_span(*at)).all(|count| count <= 2);
        let asked = claimed.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let found = scratch
            .number(&format!(
                "select refundd.spans_keep_rule('{limit}', '{SLIDING}', array[{asked}]::bigint[])::int::bigint"
            ))
            .await;
        assert_eq!(found == 1, keeps, "{moments:?}, claimed {claimed:?}");
        if keeps { kept += 1 } else { broken += 1 }
    }
    assert!(kept > 9 && broken > 9, "{kept} kept, {broken} broken");
}
