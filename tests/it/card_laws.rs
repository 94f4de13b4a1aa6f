//! The rules for card numbers and for hidden characters exist twice: in Rust, for HTTP and files, and in SQL, for a plain
//! insert. Here both judge the same random texts.

use fastrand::Rng;
use refundd::refund::{card, text};
use sqlx::PgConnection;

use crate::harness::Scratch;

/// Characters that stand between digits: separators, separators of lists, letters, and digits of other scripts.
const BETWEEN: [&str; 28] = [
    "",
    "",
    " ",
    "-",
    ".",
    "/",
    "_",
    "+",
    "*",
    "\u{a0}",
    "–",
    "•",
    "\u{3000}",
    ":",
    ",",
    ";",
    "  ",
    "a",
    "g",
    "é",
    "٣",
    "４",
    "--",
    " - ",
    ", ",
    ":::",
    "----",
    "\u{a0}–\u{a0}",
];

fn digits(random: &mut Rng, count: usize) -> String {
    std::iter::repeat_with(|| random.digit(10)).take(count).collect()
}

/// The digits and the last one, by which they pass the check of Luhn.
fn luhn(digits: &str) -> String {
    let weigh = |(nth, digit): (usize, u32)| match digit {
        digit if nth % 2 == 1 => digit,
        digit if digit < 5 => digit * 2,
        digit => digit * 2 - 9,
    };
    let sum: u32 = digits.chars().rev().filter_map(|digit| digit.to_digit(10)).enumerate().map(weigh).sum();
    format!("{digits}{}", (10 - sum % 10) % 10)
}

fn card_number(random: &mut Rng) -> String {
    let first = [
        "4", "51", "2221", "2720", "34", "37", "300", "305", "306", "36", "38", "35", "50", "56", "6", "62",
        "1",
    ];
    let first = random.choice(first).unwrap_or_default();
    let count = random.usize(12..=19);
    luhn(&format!("{first}{}", digits(random, count - first.len())))
}

fn article_number(random: &mut Rng) -> String {
    let twelve = format!("4{}", digits(random, 11));
    let weigh = |(nth, digit): (usize, u32)| digit * if nth % 2 == 0 { 1 } else { 3 };
    let sum: u32 = twelve.chars().filter_map(|digit| digit.to_digit(10)).enumerate().map(weigh).sum();
    format!("{twelve}{}", (10 - sum % 10) % 10)
}

/// An account number with its check digits; its digits often are a card number, too.
fn iban(random: &mut Rng) -> String {
    let country = *random.choice(&["DE", "no", "Gb", "XA"]).unwrap_or(&"DE");
    let account = if random.bool() { card_number(random) } else { format!("WEST{}", digits(random, 14)) };
    let value = |text: &str| {
        text.bytes().fold(0, |rest, byte| match byte {
            b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
            letter => (rest * 100 + u32::from(letter.to_ascii_uppercase() - b'A') + 10) % 97,
        })
    };
    let check = 98 - value(&format!("{account}{country}00"));
    let whole = format!("{country}{check:02}{account}");
    if random.bool() { spaced(&whole, " ") } else { whole }
}

fn uuid(random: &mut Rng) -> String {
    let hex = if random.bool() {
        format!("{:032x}", random.u128(..))
    } else {
        format!("{:0>32}", digits(random, 16) + &card_number(random)).split_off(0)
    };
    let hex = &hex[hex.len() - 32..];
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The text in groups of four.
fn spaced(text: &str, separator: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(4).map(|four| four.iter().collect::<String>()).collect::<Vec<_>>().join(separator)
}

fn piece(random: &mut Rng) -> String {
    match random.u8(..10) {
        0..=3 => card_number(random),
        4 => {
            let number = card_number(random);
            spaced(&number, random.choice(BETWEEN).unwrap_or_default())
        }
        5 => iban(random),
        6 => uuid(random),
        7 => article_number(random),
        8 => {
            let count = random.usize(1..20);
            digits(random, count)
        }
        _ => random.choice(["R", "P-", "of ", "a", "F", "Ä", "1", "0.", "+"]).unwrap_or_default().to_owned(),
    }
}

fn random_text(random: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..random.u8(1..4) {
        text.push_str(random.choice(BETWEEN).unwrap_or_default());
        text.push_str(&piece(random));
    }
    text.push_str(random.choice(BETWEEN).unwrap_or_default());
    text
}

/// A payload whose numbers Rust reads without loss.
fn random_json(random: &mut Rng) -> String {
    let text = serde_json::Value::String(random_text(random));
    let whole = card_number(random);
    let short = &whole[whole.len().saturating_sub(15)..];
    match random.u8(..6) {
        0 => format!("{{\"a\": [1, {text}]}}"),
        1 => format!("{{{text}: true}}"),
        2 => format!("[{}]", whole.trim_start_matches('0')),
        3 => format!("{{\"n\": -{}}}", whole.trim_start_matches('0')),
        4 => format!("[{}.0]", short.trim_start_matches('0')),
        _ => format!("[{}.{}]", &whole[..2], &short[2..]),
    }
}

/// What Postgres says about each text.
async fn by_sql(connection: &mut PgConnection, kind: &str, texts: &[String]) -> Vec<bool> {
    let query = format!(
        "select refundd.holds_card_number(t::{kind}) from unnest($1::text[]) with ordinality g (t, n) order by n"
    );
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).bind(texts).fetch_all(connection).await.unwrap()
}

/// The longest payloads in which most digits may begin a card number, and none does.
#[tokio::test]
async fn the_database_looks_through_the_longest_payload_in_moments() {
    let scratch = Scratch::new().await;
    let mut connection = scratch.connect().await;
    // The search took 12 s for the first of these.
    sqlx::query("set statement_timeout = '3s'").execute(&mut connection).await.unwrap();
    let texts = [
        "5 6 ".repeat(4_096),
        "2 3 ".repeat(4_096),
        "GB82WEST12345698765432 ".repeat(700),
        "GB82 WEST 1234 5698 7654 32 ".repeat(580),
        "x-5412345678901239-".repeat(860),
    ];
    for text in texts {
        assert!(!card::is_in(&text), "{text:.40}");
        assert_eq!(by_sql(&mut connection, "text", &[text]).await, [false]);
    }
}

#[tokio::test]
async fn rust_and_the_database_find_the_same_card_numbers_in_random_texts() {
    let scratch = Scratch::new().await;
    let mut connection = scratch.connect().await;
    let mut random = Rng::with_seed(4111);
    let rust = |kind: &str, text: &String| match kind {
        "text" => card::is_in(text),
        _ => card::is_in_json(&serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))),
    };
    for kind in ["text", "jsonb"] {
        let texts: Vec<String> = std::iter::repeat_with(|| match kind {
            "text" => random_text(&mut random),
            _ => random_json(&mut random),
        })
        .take(10_000)
        .collect();
        let sql = by_sql(&mut connection, kind, &texts).await;
        let differ: Vec<_> = texts.iter().zip(&sql).filter(|(text, sql)| rust(kind, text) != **sql).collect();
        let shown = &differ[..differ.len().min(20)];
        assert!(differ.is_empty(), "{} of {kind} differ (text, what SQL says): {shown:#?}", differ.len());
        let found = sql.iter().filter(|found| **found).count();
        assert!((1_000..9_000).contains(&found), "{found} of 10,000 hold a card number");
    }
}

#[tokio::test]
async fn rust_and_the_database_refuse_the_same_characters() {
    let scratch = Scratch::new().await;
    let refused = "select coalesce(string_agg(refundd.refused_character('R' || chr(n) || '1'), ' ' order by n), '') from generate_series(1, 1114111) n
                    where n not between 55296 and 57343";
    let by_rust = ('\u{1}'..=char::MAX)
        .filter(|character| text::reference_problem(&format!("R{character}1")).is_some())
        .map(|character| format!("U+{:04X}", u32::from(character)));
    assert_eq!(scratch.text(refused).await, by_rust.collect::<Vec<_>>().join(" "));
    // Inside a reference, U+0020 is the only blank that is not refused.
    let blanks = |is_refused: bool| {
        ('\u{1}'..=char::MAX).filter(move |character| {
            character.is_whitespace()
                && text::reference_problem(&format!("R{character}1")).is_some() == is_refused
        })
    };
    assert_eq!((blanks(false).collect::<String>().as_str(), blanks(true).count()), (" ", 24));
}
