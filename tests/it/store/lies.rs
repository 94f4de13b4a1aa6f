//! Claims refuse what only a Redis whose program lies could grant.

use refundd::limiter::{Counted, Permit, PermitNumber};
use refundd::refund::RefundId;

use crate::harness::Scratch;

use super::{claim, limited_scratch_with, numbered, window};

const SLIDING: &str = r#"{"algorithm":"sliding_log","permits":2,"per_us":1000000,"lateness_us":20000}"#;

/// The rules of one limit that differ in one thing each, and pairs whose rates are equal.
const RULES: [&str; 12] = [
    r#"{"algorithm":"fixed_window","permits":20,"per_us":1000000,"lateness_us":20000}"#,
    r#"{"algorithm":"fixed_window","permits":10,"per_us":1000000,"lateness_us":20000}"#,
    r#"{"algorithm":"fixed_window","permits":600,"per_us":60000000,"lateness_us":20000}"#,
    r#"{"algorithm":"fixed_window","permits":10,"per_us":1000000,"lateness_us":30000}"#,
    r#"{"algorithm":"fixed_window","permits":4294967295,"per_us":86400000000,"lateness_us":20000,"zone":"Europe/Berlin"}"#,
    r#"{"algorithm":"paced","permits":10,"per_us":1000000,"lateness_us":20000}"#,
    r#"{"algorithm":"paced_strict","permits":10,"per_us":1000000,"lateness_us":20000}"#,
    r#"{"algorithm":"sliding_log","permits":10,"per_us":1000000,"lateness_us":20000}"#,
    r#"{"algorithm":"sliding_window","permits":10,"per_us":1000000,"lateness_us":20000,"segments":10}"#,
    r#"{"algorithm":"sliding_window","permits":10,"per_us":1000000,"lateness_us":20000,"segments":100}"#,
    r#"{"algorithm":"token_bucket","permits":10,"per_us":1000000,"lateness_us":20000,"burst":7}"#,
    r#"{"algorithm":"token_bucket","permits":10,"per_us":1000000,"lateness_us":20000,"burst":10}"#,
];

/// A permit of a sliding log whose span is now, and whose name is this far from now.
async fn sliding(scratch: &Scratch, id: i64, named_away_us: i64) -> (RefundId, Permit) {
    let (id, mut permit) = numbered(id, window(scratch).await, i32::try_from(id).unwrap());
    let named = permit.numbers[0].window_start_us + named_away_us;
    permit.numbers[0] =
        PermitNumber { own_rule: SLIDING.into(), window_start_us: named, ..permit.numbers[0].clone() };
    (id, permit)
}

#[tokio::test]
async fn a_permit_that_is_named_far_from_its_span_is_refused() {
    let scratch = limited_scratch_with(2).await;
    for away in [-3_600_000_000, 3_600_000_000] {
        let refused = claim(&scratch, "a", &[sliding(&scratch, 1, away).await]).await;
        assert!(refused.outdated && refused.leased.is_empty(), "{away}: {refused:?}");
    }
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 0);
    assert_eq!(claim(&scratch, "a", &[sliding(&scratch, 1, 0).await]).await.leased.len(), 1);
}

async fn publish(scratch: &Scratch, rules: [&str; 2]) {
    for rule in rules {
        let publish = "insert into refundd.limit_rules (limit_name, rule, node) values ('acme',";
        scratch.sql(&format!("{publish} '{rule}', 'a')")).await;
    }
}

#[tokio::test]
async fn an_old_rule_that_is_no_stricter_does_not_count_as_the_stricter_one() {
    for (own, old, ordinal) in [(RULES[1], RULES[0], 15), (RULES[1], RULES[2], 500)] {
        let scratch = limited_scratch_with(1).await;
        publish(&scratch, [own, old]).await;
        let (id, mut permit) = numbered(1, window(&scratch).await, ordinal);
        let minute = permit.numbers[0].window_start_us - permit.numbers[0].window_start_us % 60_000_000;
        permit.numbers[0] = PermitNumber {
            own_rule: own.into(),
            stricter_rule: Some(old.into()),
            window_start_us: minute,
            ..permit.numbers[0].clone()
        };
        let refused = claim(&scratch, "a", &[(id, permit)]).await;
        assert!(refused.outdated && refused.leased.is_empty(), "{old}: {refused:?}");
        assert_eq!(scratch.number("select count(*) from refundd.permits").await, 0);
    }
}

#[tokio::test]
async fn no_permit_of_a_stricter_rule_is_spent_when_the_nodes_own_rule_is_used_up() {
    let own = r#"{"algorithm":"fixed_window","permits":10,"per_us":60000000,"lateness_us":20000}"#;
    let stricter = r#"{"algorithm":"fixed_window","permits":1000,"per_us":86400000000,"lateness_us":20000}"#;
    let scratch = limited_scratch_with(20).await;
    publish(&scratch, [own, stricter]).await;
    let now = window(&scratch).await;
    let take = |ids: std::ops::RangeInclusive<i64>| -> Vec<(RefundId, Permit)> {
        let permit = |id: i64| {
            let (id, mut permit) = numbered(id, now, i32::try_from(id).unwrap());
            permit.numbers[0] = PermitNumber {
                own_rule: own.into(),
                stricter_rule: Some(stricter.into()),
                window_start_us: now - now % 86_400_000_000,
                counted: Counted { is_always: true, ..Counted::default() },
                ..permit.numbers[0].clone()
            };
            (id, permit)
        };
        ids.map(permit).collect()
    };
    for (ids, leased) in [(1..=11, 0), (1..=8, 8), (9..=11, 0), (9..=10, 2), (11..=11, 0)] {
        let claimed = claim(&scratch, "a", &take(ids.clone())).await;
        assert_eq!(claimed.leased.len(), leased, "{ids:?}: {claimed:?}");
        assert_eq!((claimed.outdated, claimed.overspent.len()), (leased == 0, 0), "{ids:?}: {claimed:?}");
    }
    assert_eq!(scratch.number("select count(*) from refundd.permits").await, 10);
}

/// The scripts of the limits, with this verb.
fn with_limits(verb: &str) -> String {
    [
        include_str!("../../../src/bucket/lua/prelude.lua"),
        include_str!("../../../src/limiter/lua/rule.lua"),
        include_str!("../../../src/limiter/lua/fixed_window.lua"),
        include_str!("../../../src/limiter/lua/paced.lua"),
        include_str!("../../../src/limiter/lua/sliding_log.lua"),
        include_str!("../../../src/limiter/lua/sliding_window.lua"),
        include_str!("../../../src/limiter/lua/token_bucket.lua"),
        verb,
    ]
    .concat()
}

const IS_STRICTER: &str = "return is_stricter(read_rule(ARGV[1]), read_rule(ARGV[2])) and 1 or 0";

#[tokio::test]
async fn postgres_and_the_scripts_agree_which_of_two_rules_is_stricter() {
    let scratch = Scratch::new().await;
    let mut redis = scratch.redis().await;
    let script = redis::Script::new(&with_limits(IS_STRICTER));
    let mut stricter = 0;
    for a in RULES {
        for b in RULES {
            let by_lua: i64 = script.arg(a).arg(b).invoke_async(&mut redis).await.unwrap();
            let by_sql = format!("select refundd.rule_is_stricter('{a}', '{b}')::int::bigint");
            assert_eq!(scratch.number(&by_sql).await, by_lua, "{a} beside {b}");
            stricter += by_lua;
        }
    }
    assert_eq!(stricter, 66, "of each pair one is the stricter");
}

/// Locales leave punctuation out, ignore case, or order digits after letters.
#[tokio::test]
async fn the_scripts_compare_texts_byte_by_byte_as_postgres_does() {
    let scratch = Scratch::new().await;
    let mut redis = scratch.redis().await;
    let script = redis::Script::new(&with_limits("return comes_before(ARGV[1], ARGV[2]) and 1 or 0"));
    let texts = ["", "10}", "100}", "10,", "a", "A", "b", "B", "ab", "a b", "é", "z", "_", "\u{10ffff}"];
    for a in texts {
        for b in texts {
            let by_lua: i64 = script.arg(a).arg(b).invoke_async(&mut redis).await.unwrap();
            let by_sql = format!("select ('{a}' collate \"C\" < '{b}' collate \"C\")::int::bigint");
            assert_eq!(scratch.number(&by_sql).await, by_lua, "{a:?} beside {b:?}");
            assert_eq!(i64::from(a < b), by_lua, "{a:?} beside {b:?}");
        }
    }
}

/// `<` would compare by the locale of Redis's process, and the Redis of the tests has locale "C", in which that is the same. So the
/// test turns `comes_before` round, and the answer must turn with it.
#[tokio::test]
async fn of_two_rules_that_differ_in_their_texts_alone_the_scripts_ask_comes_before() {
    let scratch = Scratch::new().await;
    let mut redis = scratch.redis().await;
    let begins = "local function comes_before(a, b)\n";
    let as_it_is = with_limits(IS_STRICTER);
    assert_eq!(as_it_is.matches(begins).count(), 1);
    let turned = as_it_is.replace(begins, &format!("{begins}    do return b < a end\n"));
    let spaced = RULES[1].replacen(':', ": ", 1);
    for (script, answers) in [(as_it_is, [1, 0]), (turned, [0, 1])] {
        let script = redis::Script::new(&script);
        let mut said = Vec::new();
        for (a, b) in [(spaced.as_str(), RULES[1]), (RULES[1], spaced.as_str())] {
            let is_stricter: i64 = script.arg(a).arg(b).invoke_async(&mut redis).await.unwrap();
            said.push(is_stricter);
        }
        assert_eq!(said, answers);
    }
}
