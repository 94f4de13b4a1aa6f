//! Builds indexes concurrently: each statement of a migration runs by itself, outside of a transaction.

use sqlx::migrate::Migration;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Error, Executor};

// An index whose build broke off exists and is not valid; `if not exists` would leave it so.
const IS_BROKEN: &str = "
    select exists (select from pg_catalog.pg_index i where i.indexrelid = to_regclass('refundd.' || $1) and not i.indisvalid)";

/// Runs the migration and notes it as applied.
pub(super) async fn build(connection: &mut PgConnection, migration: &Migration) -> Result<(), Error> {
    // A build waits for all older transactions; the lock on the table is the least of it.
    connection.execute("set lock_timeout = 0").await?;
    for statement in statements(migration.sql.as_str()) {
        if let Some(index) = index_of(&statement)
            && sqlx::query_scalar(IS_BROKEN).bind(index).fetch_one(&mut *connection).await?
        {
            let drop = format!("drop index concurrently refundd.{index}");
            connection.execute(AssertSqlSafe(drop)).await?;
        }
        connection.execute(AssertSqlSafe(statement)).await?;
    }
    // As sqlx writes it, so that it checks the text of this migration, too.
    sqlx::query(
        "insert into refundd.migrations (version, description, success, checksum, execution_time) values ($1, $2, true, $3, 0)",
    )
    .bind(migration.version)
    .bind(&*migration.description)
    .bind(&*migration.checksum)
    .execute(&mut *connection)
    .await?;
    connection.execute("set lock_timeout = '3s'").await?;
    Ok(())
}

/// The index that a statement builds.
fn index_of(statement: &str) -> Option<&str> {
    statement.strip_prefix("create index concurrently if not exists ")?.split_whitespace().next()
}

/// The statements of a text, without comments. None of them has a semicolon inside.
fn statements(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split(';').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_statements_are_left_out() {
        let text = "-- why; and how\ncreate index a on b (c);\n\n-- more\ncreate index d on b (e);\n";
        assert_eq!(statements(text), ["create index a on b (c)", "create index d on b (e)"]);
        assert_eq!(index_of("create index concurrently if not exists a on b (c)"), Some("a"));
    }
}
