//! How a statement runs over one of the connections: `query.all(&db)`, `one`, `maybe` or `run`.

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, Postgres};
use sqlx::query::{Query, QueryScalar};
use sqlx::{Error, FromRow};

use super::{Connections, in_time};

/// Runs a statement that answers rows, over one of the connections.
pub trait Ask<'q> {
    type Row;
    fn all<'a>(self, db: &'a Connections) -> QueryFuture<'a, Vec<Self::Row>>
    where
        'q: 'a;
    fn one<'a>(self, db: &'a Connections) -> QueryFuture<'a, Self::Row>
    where
        'q: 'a;
    fn maybe<'a>(self, db: &'a Connections) -> QueryFuture<'a, Option<Self::Row>>
    where
        'q: 'a;
}

/// Runs a statement that answers no rows.
pub trait Run<'q> {
    fn run<'a>(self, db: &'a Connections) -> QueryFuture<'a, PgQueryResult>
    where
        'q: 'a;
}

type QueryFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A method that runs a query over a borrowed connection by sqlx's `$fetch`.
macro_rules! verb {
    ($verb:ident, $fetch:ident, $answer:ty) => {
        fn $verb<'a>(self, db: &'a Connections) -> QueryFuture<'a, $answer>
        where
            'q: 'a,
        {
            Box::pin(async move {
                let mut lent = db.lend().await?;
                let answer = in_time(db.patience.limit(), self.$fetch(&mut lent.connection)).await;
                lent.back(answer).await
            })
        }
    };
}

impl<'q> Ask<'q> for Query<'q, Postgres, PgArguments> {
    type Row = PgRow;
    verb!(all, fetch_all, Vec<PgRow>);
    verb!(one, fetch_one, PgRow);
    verb!(maybe, fetch_optional, Option<PgRow>);
}

impl<'q, O> Ask<'q> for QueryScalar<'q, Postgres, O, PgArguments>
where
    O: Send + Unpin + 'q,
    (O,): Send + Unpin + for<'r> FromRow<'r, PgRow>,
{
    type Row = O;
    verb!(all, fetch_all, Vec<O>);
    verb!(one, fetch_one, O);
    verb!(maybe, fetch_optional, Option<O>);
}

impl<'q> Run<'q> for Query<'q, Postgres, PgArguments> {
    verb!(run, execute, PgQueryResult);
}
