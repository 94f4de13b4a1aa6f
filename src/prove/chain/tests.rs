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

/// A seal of these lines, behind this one.
fn seal(before: Option<&Seal>, ids: &[i64]) -> Seal {
    let line = |id: &i64| [&id.to_be_bytes()[..], &id.to_be_bytes(), &[0; 32]].concat();
    let number = before.map_or(1, |before| before.number + 1);
    let hash = [u8::try_from(number).unwrap(); 32];
    Seal {
        channel: "acme".to_owned(),
        number,
        span: SealSpan { after_id: ids[0] - 1, to_id: *ids.last().unwrap(), sealed_us: 0 },
        before: before.map(|before| before.span),
        total: before.map_or(0, |before| before.total) + i64::try_from(ids.len()).unwrap(),
        month_ends_us: 100,
        previous: before.map(|before| before.hash.clone()),
        lines: ids.iter().flat_map(line).collect(),
        hash: hash.to_vec(),
        computed: hash,
    }
}

fn line(id: i64, digest: Hash) -> JournalLine {
    JournalLine { id, refund: id, channel: "acme".to_owned(), finished_us: None, digest }
}

fn faults(walk: Walk, missing_seals: i64) -> Vec<(i64, ChainFault)> {
    let (chains, _) = walk.finish(missing_seals, i64::MAX);
    chains.into_values().flat_map(|chain| chain.first).map(|found| (found.at_id, found.fault)).collect()
}

#[test]
fn seals_that_are_read_before_their_lines_are_compared_with_them_later() {
    let mut walk = Walk::new(KeptMonths::default(), []);
    let first = seal(None, &[1, 2, 3]);
    walk.see_seal(&first);
    walk.see_seal(&seal(Some(&first), &[4, 6]));
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
        walk.see_seal(&seal(None, &[1]));
        walk.see_lines(2, &[line(1, [0; 32]), line(2, [0; 32])]);
        assert_eq!(faults(walk, missing)[0].1, first);
    }
    // An idle channel has lines again in a later seal.
    let mut walk = Walk::new(KeptMonths::default(), []);
    walk.see_seal(&seal(None, &[1]));
    walk.see_lines(2, &[line(1, [0; 32]), line(2, [0; 32])]);
    walk.see_seal(&seal(Some(&seal(None, &[1])), &[3]));
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
            walk.see_seal(&seal(None, &[1]));
            walk.see_lines(1, &[]);
            let (chains, _) = walk.finish(0, i64::MAX);
            let found = (chains["acme"].forgotten == 1, chains["acme"].faults == 0);
            assert_eq!(found, (is_forgotten, is_forgotten), "{month:?}");
        }
    }
}

/// Four seals of lines 1 to 6, as they are read: a call repeated lines 1 to 3 and the next one line 4.
#[test]
fn seals_that_repeat_lines_are_named_and_the_first_seal_of_a_line_says_what_it_was() {
    let first = seal(None, &[1, 2]);
    let second = seal(Some(&first), &[3, 4]);
    let mut third = seal(Some(&second), &[1, 2, 3]);
    let mut fourth = seal(Some(&third), &[4, 5]);
    for repeat in [&mut third, &mut fourth] {
        repeat.span.sealed_us = 9;
    }
    let mut walk = Walk::new(KeptMonths::default(), []);
    for seal in [&first, &third, &second, &fourth, &seal(Some(&fourth), &[6])] {
        walk.see_seal(seal);
    }
    let lines: Vec<_> = (1..=6).map(|id| line(id, if id == 2 { [9; 32] } else { [0; 32] })).collect();
    walk.see_lines(6, &lines);
    assert_eq!(
        faults(walk, 0),
        [
            (2, ChainFault::LineChanged { refund: 2, finished_us: None, seal: 1 }),
            (3, ChainFault::SealRepeated { seal: 3, sealed_us: 9 }),
            (5, ChainFault::SealRepeated { seal: 4, sealed_us: 9 }),
        ]
    );
}

#[test]
fn one_line_in_the_chains_of_two_channels_is_a_fault_also_after_it_was_compared() {
    for is_compared in [false, true] {
        let mut walk = Walk::new(KeptMonths::default(), []);
        walk.see_seal(&seal(None, &[1]));
        if is_compared {
            walk.see_lines(1, &[line(1, [0; 32])]);
        }
        walk.see_seal(&Seal { channel: "globex".to_owned(), ..seal(None, &[1, 2]) });
        let rest = [line(1, [0; 32]), line(2, [0; 32])];
        walk.see_lines(2, if is_compared { &rest[1..] } else { &rest[..] });
        assert_eq!(faults(walk, 0), [(2, ChainFault::SealRepeated { seal: 1, sealed_us: 0 })]);
    }
}

#[test]
fn a_seal_has_the_lines_of_its_ids_and_adds_them_to_the_total() {
    let first = seal(None, &[1, 2, 3]);
    // One call makes a seal for each month. Then a channel has no line for a while.
    let mut second = seal(Some(&first), &[5, 7]);
    let mut third = seal(Some(&second), &[6, 8]);
    second.span = SealSpan { after_id: 3, to_id: 9, sealed_us: 1 };
    third.span = second.span;
    third.before = Some(second.span);
    let last = seal(Some(&third), &[20]);
    let found = |seals: [&Seal; 4], until_id| {
        let mut walk = Walk::new(KeptMonths::default(), []);
        for seal in seals {
            walk.see_seal(seal);
        }
        walk.see_lines(20, &[1, 2, 3, 5, 6, 7, 8, 20].map(|id| line(id, [0; 32])));
        let (chains, _) = walk.finish(0, until_id);
        chains["acme"].first.iter().map(|finding| finding.fault.clone()).collect::<Vec<_>>()
    };
    assert!(found([&first, &second, &third, &last], 20).is_empty());
    let ahead = ChainFault::SealAhead { seal: 4, sealed_us: 0, until_id: 19 };
    assert_eq!(found([&first, &second, &third, &last], 19), [ahead]);
    let unfit = ChainFault::SealUnfit { seal: 4, sealed_us: 0 };
    let wrong_total = Seal { total: 9, ..last.clone() };
    let mut outside = last.clone();
    outside.span.after_id = 20;
    for wrong in [wrong_total, outside] {
        assert_eq!(found([&first, &second, &third, &wrong], 20), std::slice::from_ref(&unfit));
    }
}

#[test]
fn a_line_of_a_dropped_month_is_a_fault_unless_it_may_have_come_later() {
    const DAY: i64 = 86_400_000_000;
    let note = DroppedMonth {
        begins_us: None,
        ends_us: 100,
        dropped_us: 100 + 40 * DAY,
        kept_us: 30 * DAY,
        noted_later: false,
    };
    for (month, sealed_us, now, is_fault) in [
        (note, 50, 41, true),
        // A clock was set back: the line was sealed after the drop, or the drop is to come.
        (note, note.dropped_us, 41, false),
        (note, 50, 39, false),
        (DroppedMonth { noted_later: true, ..note }, 50, 41, false),
    ] {
        let kept = KeptMonths { dropped: vec![month], now_us: 100 + now * DAY, kept_us: 30 * DAY };
        let mut walk = Walk::new(kept, []);
        let mut seal = seal(None, &[1]);
        seal.span.sealed_us = sealed_us;
        walk.see_seal(&seal);
        walk.see_lines(1, &[line(1, [0; 32])]);
        let fault = (1, ChainFault::LineNotDropped { refund: 1, finished_us: None, seal: 1 });
        assert_eq!(faults(walk, 0), if is_fault { vec![fault] } else { vec![] }, "{month:?}");
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
