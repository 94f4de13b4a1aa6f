//! Faults of chains that need no database, and the bytes of a line.

use super::*;

/// Computed by another program, from docs/prove.md.
#[test]
fn a_digest_is_what_the_documentation_says() {
    let mut values: Vec<Option<Vec<u8>>> = Vec::new();
    let number = |number: i64| Some(number.to_be_bytes().to_vec());
    let text = |text: &str| Some(text.as_bytes().to_vec());
    values.extend([number(7), number(6), text("acme"), text("send"), Some(1i32.to_be_bytes().to_vec())]);
    values.extend([number(3), text("node-a#1"), None, number(0), number(846_755_996_000_000)]);
    values.extend([text("succeeded"), text("succeeded"), Some(200i16.to_be_bytes().to_vec())]);
    values.extend([text("paid"), text("äö")]);
    assert_eq!(values.len(), LINE.len());
    let fields: Vec<SealedColumn<'_>> = LINE
        .iter()
        .zip(&values)
        .map(|((_, oid), value)| SealedColumn { oid: *oid, bytes: value.as_deref() })
        .collect();
    assert_eq!(
        hex::encode(digest(&fields)),
        "fb94bf38dcd8f70ce44adb69ce747458434b9974418d33c0024563845dc57f4a"
    );
}

fn seal(number: i64, previous: Option<Hash>, ids: &[i64]) -> Seal {
    let line = |id: &i64| [&id.to_be_bytes()[..], &id.to_be_bytes(), &[0; 32]].concat();
    let hash = [u8::try_from(number).unwrap(); 32];
    Seal {
        channel: "acme".to_owned(),
        number,
        to_id: *ids.last().unwrap(),
        sealed_us: 0,
        month_ends_us: 100,
        previous: previous.map(|hash| hash.to_vec()),
        lines: ids.iter().flat_map(line).collect(),
        hash: hash.to_vec(),
        computed: hash,
    }
}

fn line(id: i64, digest: Hash) -> JournalLine {
    JournalLine { id, refund: id, channel: "acme".to_owned(), finished_us: None, digest }
}

fn faults(walk: Walk, missing_seals: i64) -> Vec<(i64, ChainFault)> {
    let (chains, _) = walk.finish(missing_seals);
    chains.into_values().flat_map(|chain| chain.first).map(|found| (found.at_id, found.fault)).collect()
}

#[test]
fn seals_that_are_read_before_their_lines_are_compared_with_them_later() {
    let mut walk = Walk::new(KeptMonths::default(), []);
    walk.see_seal(&seal(1, None, &[1, 2, 3]));
    walk.see_seal(&seal(2, Some([1; 32]), &[4, 6]));
    assert_eq!(walk.sealed_ids(4), [1, 2, 3, 4]);
    walk.see_lines(2, &[line(1, [0; 32]), line(2, [9; 32])]);
    walk.see_lines(6, &[line(4, [0; 32]), line(5, [0; 32]), line(6, [0; 32])]);
    assert_eq!(
        faults(walk, 0),
        [
            (2, ChainFault::LineChanged { refund: 2, finished_us: None, seal: 1 }),
            (3, ChainFault::LineMissing { refund: 3, seal: 1, sealed_us: 0 }),
            (5, ChainFault::LineInserted { refund: 5, finished_us: None }),
        ]
    );
}

#[test]
fn lines_behind_the_last_seal_are_those_of_a_seal_only_where_seals_are_missing() {
    for (missing, first) in [
        (0, ChainFault::LineInserted { refund: 2, finished_us: None }),
        (1, ChainFault::SealMissing { seal: 2 }),
    ] {
        let mut walk = Walk::new(KeptMonths::default(), []);
        walk.see_seal(&seal(1, None, &[1]));
        walk.see_lines(2, &[line(1, [0; 32]), line(2, [0; 32])]);
        assert_eq!(faults(walk, missing)[0].1, first);
    }
    // An idle channel has lines again in a later seal.
    let mut walk = Walk::new(KeptMonths::default(), []);
    walk.see_seal(&seal(1, None, &[1]));
    walk.see_lines(2, &[line(1, [0; 32]), line(2, [0; 32])]);
    walk.see_seal(&seal(2, Some([1; 32]), &[3]));
    walk.see_lines(3, &[line(3, [0; 32])]);
    assert_eq!(faults(walk, 1), [(2, ChainFault::LineInserted { refund: 2, finished_us: None })]);
}

/// `seal()` is of a month that ends at 100 us. Days count from there.
#[test]
fn a_line_may_be_absent_only_from_a_month_that_was_dropped_and_was_old_enough() {
    const DAY: i64 = 86_400_000_000;
    let whole = (None, 100);
    for ((begins_us, ends_us), dropped, kept, now, kept_now, is_forgotten) in [
        // The retention was raised after the drop.
        (whole, 40, 30, 50, 400, true),
        (whole, 40, 41, 50, 400, false),
        // It was dropped too early, and would be old enough now.
        (whole, 40, 41, 50, 50, false),
        (whole, 5, 30, 50, 30, false),
        // Nobody drops a month before 30 days are over, and nobody has dropped one in the future.
        (whole, 29, 1, 50, 400, false),
        (whole, 500, 60, 50, 400, false),
        // Another month.
        ((None, 99), 40, 30, 50, 30, false),
        ((Some(100), 200), 40, 30, 50, 30, false),
        ((Some(0), 100), 40, 30, 50, 400, true),
    ] {
        let (dropped_us, kept_us) = (100 + dropped * DAY, kept * DAY);
        let month = DroppedMonth { begins_us, ends_us, dropped_us, kept_us, noted_later: false };
        let noted_later = DroppedMonth { noted_later: true, ..month };
        for dropped in [vec![month], vec![noted_later], vec![]] {
            let is_old = (begins_us, ends_us) == whole && now >= kept_now;
            let is_forgotten =
                dropped.first().is_some_and(|month| is_forgotten || month.noted_later && is_old);
            let kept = KeptMonths { dropped, now_us: 100 + now * DAY, kept_us: kept_now * DAY };
            let mut walk = Walk::new(kept, []);
            walk.see_seal(&seal(1, None, &[1]));
            walk.see_lines(1, &[]);
            let (chains, _) = walk.finish(0);
            let found = (chains["acme"].forgotten == 1, chains["acme"].faults == 0);
            assert_eq!(found, (is_forgotten, is_forgotten), "{month:?}");
        }
    }
}

#[test]
fn faults_are_shown_in_the_order_of_lines_and_only_the_first_ten() {
    let mut chain = ChannelChain::default();
    for at_id in (1..=25).rev() {
        let fault = ChainFault::SealMissing { seal: at_id };
        chain.add(ChainFinding { at_id, channel: "acme".to_owned(), fault });
    }
    let shown: Vec<i64> = chain.first.iter().map(|finding| finding.at_id).collect();
    assert_eq!((chain.faults, shown), (25, (1..=10).collect()));
}
