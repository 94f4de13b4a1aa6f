use serde_json::json;

use super::*;

/// Numbers that the card schemes publish for tests.
const CARDS: [&str; 14] = [
    "4111111111111111",
    "4012888888899",
    "4000000000000000006",
    "5555555555554444",
    "2223003122003222",
    "378282246310005",
    "30569309025904",
    "36227206271667",
    "3530111333300000",
    "6011111111111117",
    "6200000000000005",
    "6759649826438453",
    "5018000000000009",
    "6304000000000000",
];

#[test]
fn a_card_number_is_found_with_any_separators_and_around_any_words() {
    for card in CARDS {
        assert!(is_in(card), "{card}");
        for separator in [" ", "-", ".", "/", "_", "\u{a0}", "–", "*", "|"] {
            let fours: Vec<String> =
                card.as_bytes().chunks(4).map(|four| String::from_utf8_lossy(four).into_owned()).collect();
            let single: Vec<String> = card.chars().map(String::from).collect();
            for written in [fours.join(separator), single.join(separator)] {
                assert!(is_in(&written), "{written}");
            }
        }
        for text in [
            format!("PAN{card}"),
            format!("visa {card}, paid"),
            format!("R-2024-{card}-7"),
            format!("({card})"),
        ] {
            assert!(is_in(&text), "{text}");
        }
    }
    assert!(is_in("4111-1111 1111/1111"));
    for separator in ["--", " - ", "---", ":", ",", ", ", "; ", " : ", "\u{a0}–\u{a0}", "éé"] {
        for card in
            ["4111 1111 1111 1111", "3782 822463 10005", "3056 930902 5904", "4000 0000 0000 0000 006"]
        {
            let written = card.replace(' ', separator);
            for text in [written.clone(), format!("card {written}, paid"), format!("R-7 ({written})")] {
                assert!(is_in(&text), "{text}");
            }
        }
    }
    assert!(is_in("2024--4111--1111--1111--1111"));
    assert!(is_in("2026-07-28 4111 1111 1111 1111 12/27"));
}

#[test]
fn a_number_that_is_no_card_is_left_alone() {
    for text in [
        "",
        "R-1",
        "4111111111111112",                               // fails Luhn
        "1111111111111117",                               // no scheme
        "411111111111111",                                // no Visa has 15 digits
        "41111111111111111111",                           // 20 digits
        "4111----1111----1111----1111",                   // four separators
        "4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1", // lists
        "41, 11, 11, 11, 11, 11, 11, 11",
        "41111111, 11111111",
        "411, 111, 111, 111, 111, 1",
        "4111, 1111, 1111, 1111, 2222",
        "2222, 4111, 1111, 1111, 1111",
        "411,111,111,111,111,1",
        "41:11:11:11:11:11:11:11", // an address of a network card
        "550e8400-4111-4111-8111-111111111111",
        "4000-0000-0000-0002a", // hexadecimal
        "a4111111111111111",
        "DE12 5001 0517 0648 4898 90", // IBANs
        "BE68 5390 0754 7034",
        "GB82 WEST 1234 5698 7654 32",
        "FR1420041010050500013M02606",
        "NO9386011117947",
        "+4915112345678",    // a telephone number
        "52.52000659999999", // a place
        "4006381333931",     // an article number
        "2026-07-28T05:50:46.704573123Z",
        "2026-07-30 05:50:46.704573",
        "1785240646704573",
    ] {
        assert!(!is_in(text), "{text}");
    }
}

#[test]
fn a_payload_is_searched_in_its_depths_and_in_its_keys_and_numbers() {
    for card in [
        json!({ "note": ["paid by", { "card": "4111 1111 1111 1111" }] }),
        json!({ "4111111111111111": true }),
        json!(4_111_111_111_111_111_u64),
        json!([-4_111_111_111_111_111_i64]),
        json!(4_111_111_111_111_111_f64),
    ] {
        assert!(is_in_json(&card), "{card}");
    }
    for other in
        [json!(null), json!(4.111_111_111_111_111), json!(41.403_381_234_567_89), json!({ "a": [1, "b"] })]
    {
        assert!(!is_in_json(&other), "{other}");
    }
}

#[test]
fn a_masked_text_has_no_card_number_and_the_words_around_it() {
    assert_eq!(masked("card 4111 1111 1111 1111 is closed"), "card 411111******1111 is closed");
    assert_eq!(masked("4111111111111111 378282246310005"), "411111******1111 378282*****0005");
    assert_eq!(masked("4111--1111, 1111 - 1111, paid"), "411111******1111, paid");
    assert_eq!(masked("4012888888899 123"), "401288****899 123");
    assert_eq!(masked("no card"), "no card");
    assert_eq!(
        masked("41111111-1111-1111-abcd-411111111111 1111"),
        "411111******1111-abcd-411111******1111",
        "the second number was a part of what excused the first"
    );
    for card in CARDS {
        assert!(!is_in(&masked(card)), "{card}");
    }
}

/// How many of 100,000 made-up ids are taken for a card number.
fn share(mut id: impl FnMut(&mut fastrand::Rng) -> String) -> f64 {
    let mut random = fastrand::Rng::with_seed(4111);
    let wrong = (0..100_000).filter(|_| is_in(&id(&mut random))).count();
    wrong as f64 / 100_000.0
}

#[test]
fn few_ids_are_taken_for_a_card_number() {
    let digits = |random: &mut fastrand::Rng, n: usize| (0..n).map(|_| random.digit(10)).collect::<String>();
    assert!(share(|random| digits(random, 16)) < 0.05);
    assert!(share(|random| random.u64(..1 << 63).to_string()) < 0.05);
    assert!(share(|random| format!("{:032x}", random.u128(..))) < 0.0001);
    assert!(share(|random| Uuid::from_u128(random.u128(..)).to_string()) < 0.000_01);
    let list = |random: &mut fastrand::Rng, n: usize, most: u32| {
        let numbers: Vec<String> = (0..n).map(|_| random.u32(..most).to_string()).collect();
        numbers.join(", ")
    };
    assert!(share(|random| list(random, 20, 1000)) < 0.000_01);
    assert!(share(|random| list(random, 20, 10_000)) < 0.000_01);
    assert!(share(|random| list(random, 4, 10_000)) < 0.05);
    assert!(share(|random| list(random, 2, 100_000_000)) < 0.000_01);
    // Numbers that grow with time begin with 1 for centuries.
    assert!(share(|random| (1_785_240_646_704_573_u64 + random.u64(..1 << 47)).to_string()) < 0.000_01);
    let iban = |random: &mut fastrand::Rng| {
        let account = format!("5{}", digits(random, 17));
        let check = (2..99).map(|check| format!("DE{check:02}{account}")).find(|iban| is_97(iban.as_bytes()));
        let iban = check.unwrap_or_default();
        iban.as_bytes().chunks(4).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
    };
    assert!(share(iban) < 0.000_01);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text: String, around in "[0-9 .a-fA-F+é-]{0,60}") {
        for text in [text, around] {
            let masked = masked(&text).into_owned();
            proptest::prop_assert!(!is_in(&masked) || !is_in(&text));
        }
    }
}
