//! The charts of a channel's page: they count every bar as a whole, and show a limit that is kept as kept.

use super::see;
use crate::harness::{Scratch, TestNode};

const PERMITS: u32 = 3;

/// The page of a channel with a fixed window of each of these lengths, while all permits of every window are spent.
async fn page_of_used_up(lengths_ms: &[u32]) -> String {
    let scratch = Scratch::new().await;
    let table = |ms: &u32| {
        format!("[limit.w{ms}]\nalgorithm = \"fixed_window\"\npermits = {PERMITS}\nper = \"{ms}ms\"\n")
    };
    let tables = lengths_ms.iter().map(table).collect::<Vec<_>>().concat();
    let limits: Vec<String> = lengths_ms.iter().map(|ms| format!("w{ms}")).collect();
    let channel =
        format!("[channel.acme]\nendpoint = \"http://{{bank}}/acme/refunds\"\nlimits = {limits:?}\n");
    let node = TestNode::start(&scratch, "a", &(tables + &channel)).await;
    for ms in lengths_ms {
        // Also of the next minute, so that it does not matter how long the page takes.
        scratch
            .sql(&format!(
                "insert into refundd.permits (limit_name, window_start, ordinal, caller, node)
                 select 'w{ms}', timestamptz 'epoch' + (now_ms / {ms} - n) * {ms} * interval '1 millisecond', o, 'shop', 'a#1'
                   from (select (extract(epoch from now()) * 1000)::bigint as now_ms) clock,
                        generate_series(-60000 / {ms}, 960000 / {ms} + 2) n, generate_series(1, {PERMITS}) o"
            ))
            .await;
    }
    let answer = see(&node, "/channels/acme").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    node.stop().await;
    answer.text
}

/// The sentence above the chart of a limit that was used up in every bar.
fn used_up(ms: u32, permits: u32, bar: &str, all: &str) -> String {
    format!(
        "<h3>Permits of limit w{ms}</h3><p><strong>{permits} of {permits}</strong> permits in the fullest {bar} of the last {all}; \
         <strong>{permits} of {permits}</strong> on average, which is 100.0 %.</p>"
    )
}

#[tokio::test]
async fn a_chart_counts_every_permit_of_windows_of_a_minute_and_longer() {
    let page = page_of_used_up(&[60_000, 300_000, 600_000, 900_000]).await;
    for (ms, bar, all) in [
        (60_000, "60 s", "15\u{a0}min"),
        (300_000, "300 s", "15\u{a0}min"),
        (600_000, "600 s", "20\u{a0}min"),
        (900_000, "900 s", "15\u{a0}min"),
    ] {
        let words = used_up(ms, PERMITS, bar, all);
        assert!(page.contains(&words), "`{words}` is missing: {page}");
    }
}

#[tokio::test]
async fn a_limit_whose_span_is_no_whole_number_of_seconds_is_kept_on_its_chart() {
    let page = page_of_used_up(&[300, 1_500, 2_500, 7_777]).await;
    for (ms, windows, bar, all) in
        [(300, 10, "3 s", "15\u{a0}min"), (1_500, 2, "3 s", "15\u{a0}min"), (2_500, 2, "5 s", "15\u{a0}min")]
    {
        let words = used_up(ms, windows * PERMITS, bar, all);
        assert!(page.contains(&words), "`{words}` is missing: {page}");
    }
    // Two of these windows begin in some bars, and one in the others.
    let (_, odd) = page.split_once("<h3>Permits of limit w7777</h3>").unwrap();
    assert!(odd.starts_with("<p><strong>6 of 6</strong> permits in the fullest 8 s"), "{page}");
}
