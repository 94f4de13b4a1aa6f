//! Statements whose parameters have names: `:node` in the text, and `bind!(SETTLE, node: …)` in the code.
//!
//! sqlx binds by position alone: its issue 199 has asked for names since 2020. The crates that add them
//! (`sqlx-named-bind`, `postgres-named-parameters`) have one release each, for another database and for another client.
//!
//! The names become numbers while the program is compiled (`text`). A name that the text does not have, a name without
//! a value, and a name with two values fail the build. The order of the values does not matter. Postgres gets
//! `$1/*node*/` for `:node`, so that its log shows the name.

pub(super) mod text;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Encode, Postgres, Type};

use text::{MOST, fail, place};

/// A statement as Postgres gets it, and the names of its parameters in the order of their numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Statement {
    pub sql: &'static str,
    pub names: &'static [&'static str],
}

/// Makes a [`Statement`] of a text with names. `$part`, if given, takes the place of the line that names it.
macro_rules! statement {
    ($text:expr) => {
        statement!($text, "")
    };
    ($text:expr, $part:expr) => {{
        use crate::store::named::text::{ROOM, Text};
        const READ: &Text<{ $text.len() + $part.len() + ROOM }> = &Text::read($text, $part);
        Statement { sql: READ.sql(), names: READ.names() }
    }};
}
pub(super) use statement;

/// Makes a query of a [`Statement`] and a value for each name. A wrong name fails the build.
macro_rules! bind {
    ($statement:expr, $($name:ident: $value:expr),+ $(,)?) => {
        // The values end with this block, and not after the caller's await.
        {
            const ORDER: crate::store::named::BindOrder = $statement.order([$(stringify!($name)),+]);
            $statement.query(&[$(&$value),+], &ORDER)
        }
    };
}
pub(super) use bind;

/// One column of many rows, for `unnest`.
pub(super) fn column<'a, R, T>(rows: &'a [R], of: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

type PgQuery = Query<'static, Postgres, PgArguments>;

/// A value that Postgres understands.
pub(super) trait Value {
    fn bind(&self, query: PgQuery) -> PgQuery;
}

impl<'t, T: Encode<'t, Postgres> + Type<Postgres>> Value for T {
    fn bind(&self, query: PgQuery) -> PgQuery {
        query.bind(self)
    }
}

/// For each parameter, where its value stands among the values that a caller gives.
pub(super) type BindOrder = [usize; MOST];

impl Statement {
    /// Binds `values` in the order of the parameters' numbers.
    pub fn query(self, values: &[&dyn Value], order: &BindOrder) -> PgQuery {
        order.iter().take(values.len()).fold(sqlx::query(self.sql), |query, nth| values[*nth].bind(query))
    }

    /// The order of values with these names.
    pub const fn order<const COUNT: usize>(self, given: [&str; COUNT]) -> BindOrder {
        let mut order = [MOST; MOST];
        let mut at = 0;
        while at < COUNT {
            match place(self.names, given[at]) {
                None => fail("the statement has no parameter with this name: ", given[at]),
                Some(nth) if order[nth] < MOST => fail("this parameter gets two values: ", given[at]),
                Some(nth) => order[nth] = at,
            }
            at += 1;
        }
        let mut nth = 0;
        while nth < self.names.len() {
            if order[nth] == MOST {
                fail("this parameter of the statement gets no value: ", self.names[nth]);
            }
            nth += 1;
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::statements;

    const SOME: Statement = statement!(
        "select :unit_us, ':quoted', x::text -- the node's :comment – …
         -- gate.sql stands here, then permits.sql or unlimited.sql
         , \":quoted\" from unnest(:id::bigint[]) where y > -:unit_us",
        "of :id and :part"
    );

    #[test]
    fn a_name_gets_one_number_and_casts_comments_and_quoted_texts_stay() {
        assert_eq!(
            SOME.sql,
            "select $1/*unit_us*/, ':quoted', x::text -- the node's :comment – …
         of $2/*id*/ and $3/*part*/
         , \":quoted\" from unnest($2/*id*/::bigint[]) where y > -$1/*unit_us*/"
        );
    }

    #[test]
    fn values_come_in_any_order_and_go_to_the_numbers_of_their_names() {
        assert_eq!(SOME.order(["part", "unit_us", "id"])[..3], [1, 2, 0]);
    }

    #[test]
    #[should_panic(expected = "the statement has no parameter with this name: ids")]
    fn a_name_that_the_statement_lacks_fails_the_build() {
        SOME.order(["part", "unit_us", "ids"]);
    }

    #[test]
    #[should_panic(expected = "this parameter of the statement gets no value: id")]
    fn a_parameter_without_a_value_fails_the_build() {
        SOME.order(["part", "unit_us"]);
    }

    #[test]
    #[should_panic(expected = "this parameter gets two values: id")]
    fn a_parameter_with_two_values_fails_the_build() {
        SOME.order(["part", "unit_us", "id", "id"]);
    }

    /// The names of parameters in a part of a statement.
    fn names(part: &str) -> Vec<&str> {
        part.split("/*").skip(1).filter_map(|rest| Some(rest.split_once("*/")?.0)).collect()
    }

    #[test]
    fn rows_of_parameters_have_columns_of_the_same_names() {
        let mut rows = 0;
        for (statement, text) in statements() {
            for rest in text.split("unnest(").skip(1) {
                let (given, rest) = rest.split_once(')').unwrap();
                if names(given).is_empty() {
                    continue;
                }
                let columns = rest.split_once(" (").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
                let mut columns: Vec<&str> = columns.split(',').map(str::trim).collect();
                columns.retain(|column| *column != "nth" || names(given).contains(column));
                assert_eq!(names(given), columns, "statement `{statement}`");
                rows += 1;
            }
        }
        assert!(rows > 15, "{rows}");
    }

    #[test]
    fn a_statement_with_more_than_three_parameters_names_them() {
        for (statement, text) in statements() {
            let bare = text.split("$4").skip(1).any(|rest| !rest.starts_with("/*"));
            assert!(!bare, "statement `{statement}`: {text}");
        }
    }

    #[test]
    fn every_statement_with_a_with_is_one_file_and_every_file_is_one_statement() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/sql");
        // Statements share the parts in the folder `parts`; a part is no statement by itself.
        for (folder, is_whole) in [(folder.to_owned(), true), (format!("{folder}/parts"), false)] {
            let paths = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            for path in paths.filter(|path| path.is_file()) {
                let (name, text) =
                    (path.file_stem().unwrap().to_str().unwrap(), std::fs::read_to_string(&path).unwrap());
                let is_named = statements().iter().any(|(other, _)| *other == name);
                assert_eq!(is_named, is_whole, "a statement is named after {name}.sql");
                assert!(!text.contains('$'), "{name}.sql has a parameter without a name");
                assert!(text.starts_with(&format!("-- {name}: ")), "{name}.sql does not begin with its name");
            }
        }
        for (name, text) in statements() {
            let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("--"));
            // The two statements of a claim differ in their parts alone.
            let file = name.strip_suffix("_unlimited").unwrap_or(name);
            let has_file = std::path::Path::new(&format!("{folder}/{file}.sql")).exists();
            assert!(
                has_file || !first.unwrap().starts_with("with "),
                "`{name}` begins with `with` and has no file"
            );
        }
    }
}
