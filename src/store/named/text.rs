//! Reads the text of a statement while the program is compiled, and puts a number in the place of each name.
//!
//! It knows of SQL only what hides a colon: comments that begin with `--`, quoted texts, and casts. A statement with
//! `/* */`, `E''` or `$$` needs more.

/// The most parameters of one statement. A statement with more fails the build.
pub const MOST: usize = 32;

/// How much longer a text may become by its numbers. A text that becomes longer fails the build.
pub const ROOM: usize = 512;

/// The lines in whose place a statement gets its part.
const PARTS: [&str; 3] = [
    "-- gate.sql stands here, then permits.sql or unlimited.sql",
    "-- address_reason.sql stands here",
    "-- refund_columns.sql stands here",
];

/// A text as far as it is read: the names that it had, and the numbers in their place.
#[derive(Debug)]
pub struct Text<const SIZE: usize> {
    sql: [u8; SIZE],
    length: usize,
    names: [&'static str; MOST],
    count: usize,
}

impl<const SIZE: usize> Text<SIZE> {
    const EMPTY: Self = Text { sql: [b' '; SIZE], length: 0, names: [""; MOST], count: 0 };

    pub const fn read(text: &'static str, part: &'static str) -> Self {
        let mut read = Self::EMPTY;
        read.add(text, part);
        read
    }

    /// The text as Postgres gets it.
    pub const fn sql(&self) -> &str {
        match str::from_utf8(self.sql.split_at(self.length).0) {
            Ok(sql) => sql,
            Err(_) => panic!("it was a `str`"),
        }
    }

    pub const fn names(&self) -> &[&'static str] {
        self.names.split_at(self.count).0
    }

    const fn add(&mut self, text: &'static str, part: &'static str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (token, after) = rest.split_at(token_length(rest.as_bytes()));
            rest = after;
            if let [b':', b'a'..=b'z', ..] = token.as_bytes() {
                let name = token.split_at(1).1;
                let number = self.number(name);
                self.push("$");
                self.push("0123456789".split_at(number / 10).1.split_at((number >= 10) as usize).0);
                self.push("0123456789".split_at(number % 10).1.split_at(1).0);
                self.push("/*");
                self.push(name);
                self.push("*/");
            } else if place(&PARTS, token).is_some() {
                self.add(part, "");
            } else {
                self.push(token);
            }
        }
    }

    /// The number of a name, counted from 1.
    const fn number(&mut self, name: &'static str) -> usize {
        if let Some(nth) = place(self.names(), name) {
            return nth + 1;
        }
        self.names[self.count] = name;
        self.count += 1;
        self.count
    }

    const fn push(&mut self, text: &str) {
        let mut at = 0;
        while at < text.len() {
            self.sql[self.length] = text.as_bytes()[at];
            self.length += 1;
            at += 1;
        }
    }
}

/// The length of the first token: a comment, a quoted text, a cast's `::`, a name with its colon, or all before these.
const fn token_length(text: &[u8]) -> usize {
    let mut at = 1;
    match text {
        [b'-', b'-', ..] => {
            while at < text.len() && text[at] != b'\n' {
                at += 1;
            }
        }
        [quote @ (b'\'' | b'"'), ..] => {
            while text[at] != *quote {
                at += 1;
            }
            at += 1;
        }
        [b':', b':', ..] => at = 2,
        [b':', ..] => {
            while at < text.len() && matches!(text[at], b'a'..=b'z' | b'0'..=b'9' | b'_') {
                at += 1;
            }
        }
        _ => {
            while at < text.len() && !matches!(text[at], b'-' | b'\'' | b'"' | b':') {
                at += 1;
            }
        }
    }
    at
}

pub const fn place(names: &[&str], name: &str) -> Option<usize> {
    let mut nth = 0;
    while nth < names.len() {
        if is_same(names[nth], name) {
            return Some(nth);
        }
        nth += 1;
    }
    None
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Fails the build with a reason and a name.
pub const fn fail(why: &str, name: &str) -> ! {
    let mut text = Text::<ROOM>::EMPTY;
    text.push(why);
    text.push(name);
    panic!("{}", text.sql())
}
