//! The scripts that make the roles, and the schemas that they refuse.

use std::path::Path;
use std::process::{Command, Output};

use playground::find;
use sqlx::{Executor, PgConnection};

use crate::compose::with_path;
use crate::harness::Scratch;
use crate::harness::servers::SERVERS;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const SCRIPTS: [&str; 3] = ["node-role.sql", "producer-role.sql", "reader-role.sql"];

/// Runs a script for psql, whose own commands start with a backslash; the rest is SQL.
async fn run_script(connection: &mut PgConnection, script: &str) {
    let sql = script.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>().join("\n");
    connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
}

/// Roles belong to the whole server, so one test makes them at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn make_role(owner: &mut PgConnection, script: &str) {
    let _alone = ALONE.lock().await;
    for _ in 0..2 {
        run_script(owner, script).await;
    }
}

/// Makes the role of producers, as config/producer-role.sql says; the script may be run again.
pub async fn make_producers(owner: &mut PgConnection) {
    make_role(owner, include_str!("../../../config/producer-role.sql")).await;
}

/// Makes the role of readers, as config/reader-role.sql says.
pub async fn make_readers(owner: &mut PgConnection) {
    make_role(owner, include_str!("../../../config/reader-role.sql")).await;
}

/// Runs a script as people do.
fn psql(scratch: &Scratch, script: &str) -> Output {
    let mut psql = Command::new("psql");
    with_path(&mut psql, &find::postgres().unwrap());
    psql.env("PGHOST", SERVERS.postgres.folder()).env("PGPORT", "5432").env("PGUSER", "refundd");
    psql.env("PGDATABASE", &scratch.name).args(["--no-psqlrc", "--quiet", "--file"]);
    psql.arg(Path::new(ROOT).join("config").join(script)).output().unwrap()
}

/// The script fails, and says these words.
fn is_refused(scratch: &Scratch, script: &str, words: &[&str]) {
    let output = psql(scratch, script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{script}: {said}");
    for word in words {
        assert!(said.contains(word), "{script}: {word}: {said}");
    }
}

#[test]
fn each_script_names_the_last_migration() {
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let list = read("src/store/migrations/list.rs");
    let last = list.rsplit('"').nth(1).and_then(|file| file.split('_').next()).unwrap();
    let last: i64 = last.parse().unwrap();
    for script in SCRIPTS {
        let text = read(&format!("config/{script}"));
        assert!(
            text.contains(&format!("\n    own constant bigint := {last};\n")),
            "config/{script}: give what migration {last} needs, and write {last} as `own`"
        );
    }
}

/// Otherwise the script of an older version would take rights that the newer schema needs of every node.
#[tokio::test]
async fn a_script_older_than_the_schema_says_so_and_changes_no_rights() {
    let scratch = Scratch::new().await;
    make_producers(&mut scratch.connect().await).await;
    make_readers(&mut scratch.connect().await).await;
    let last = scratch.store.schema().await.unwrap().known;
    for statement in [
        "create function refundd.of_the_newer_version() returns integer language sql return 1",
        "revoke execute on function refundd.of_the_newer_version from public",
        "grant execute on function refundd.of_the_newer_version to refundd_node, refundd_producer, refundd_reader",
        "insert into refundd.migrations (version, description, success, checksum, execution_time) values (9999, 'from the future', true, '', 0)",
    ] {
        scratch.sql(statement).await;
    }
    for script in SCRIPTS {
        let newer = format!("the schema is newer (9999) than this script ({last})");
        is_refused(&scratch, script, &[&newer, "Nothing was changed", "run the file of the newer version"]);
    }
    let kept = "select count(*) from unnest(array['refundd_node', 'refundd_producer', 'refundd_reader']) as made(role_name)
         where has_function_privilege(role_name, 'refundd.of_the_newer_version()', 'execute')";
    assert_eq!(scratch.number(kept).await, 3);
    assert_eq!(scratch.store.lacking_rights().await.unwrap().rights, Vec::<String>::new());
}

#[tokio::test]
async fn a_script_newer_than_the_schema_asks_for_a_migration_first() {
    let scratch = Scratch::new().await;
    let last = scratch.store.schema().await.unwrap().known;
    scratch.sql(&format!("delete from refundd.migrations where version = {last}")).await;
    let applied = scratch.store.schema().await.unwrap().applied;
    let older = format!("the schema is older ({applied}) than this script ({last})");
    for script in SCRIPTS {
        is_refused(&scratch, script, &[&older, "Nothing was changed", "Run `refundd migrate`"]);
    }
    scratch.sql("drop schema refundd cascade").await;
    let none = format!("the database `{}` has no schema of refundd", scratch.name);
    for script in SCRIPTS {
        is_refused(&scratch, script, &[&none, "Nothing was changed", "run `refundd migrate` first"]);
    }
}

#[tokio::test]
async fn the_script_of_readers_names_rights_to_write_from_elsewhere_and_changes_nothing() {
    let scratch = Scratch::new().await;
    make_readers(&mut scratch.connect().await).await;
    for (right, object, named) in [
        ("insert", "refundd.attempts", "INSERT on table attempts"),
        ("update (reason)", "refundd.refunds", "UPDATE on table refunds"),
        ("execute", "function refundd.cancel", "EXECUTE on function refundd.cancel("),
        ("usage", "sequence refundd.attempts_id_seq", "USAGE on sequence attempts_id_seq"),
    ] {
        scratch.sql(&format!("grant {right} on {object} to public")).await;
        is_refused(&scratch, "reader-role.sql", &["refundd_reader may do more than it should", named]);
        scratch.sql(&format!("revoke {right} on {object} from public")).await;
    }
    let reads = "select count(*) where has_table_privilege('refundd_reader', 'refundd.refunds', 'select')";
    assert_eq!(scratch.number(reads).await, 1);
    assert!(psql(&scratch, "reader-role.sql").status.success());
}
