//! Findings about Postgres: settings, rights, schema and TLS.

use std::path::Path;
use std::process::Command;

use jiff::{ToSpan, Zoned};
use playground::{Authority, PostgresOptions, PrivatePostgres};
use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};

use super::{config_of, examine, finding, is_found, is_well};
use crate::cli::file;
use crate::harness::Scratch;
use crate::harness::certificates::{Identity, Issued};
use crate::roles::make_producers;
use crate::server_tls::put;

#[tokio::test]
async fn settings_by_which_postgres_loses_refunds_are_found_with_their_values() {
    let scratch = Scratch::new().await;
    // The servers of tests do not wait for the disk.
    let (report, code) = examine(&config_of(&scratch.database_url));
    assert_eq!(code, 1);
    is_found(&report, "broken", "postgres.settings", "fsync = off");
    is_found(&report, "broken", "postgres.settings", "full_page_writes = off");
    is_well(&report, "postgres.settings", "4 connections are needed");
    let name = &scratch.name;
    for statement in [
        format!("alter database {name} set zero_damaged_pages = on"),
        format!("alter database {name} connection limit 3"),
        "alter table refundd.clock set unlogged".to_owned(),
        "alter table refundd.refunds disable trigger all".to_owned(),
    ] {
        scratch.sql(&statement).await;
    }
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "broken", "postgres.settings", "zero_damaged_pages = on");
    is_found(&report, "broken", "postgres.settings", "unlogged tables: clock");
    is_found(&report, "broken", "postgres.settings", "triggers that are switched off");
    is_found(&report, "warning", "postgres.settings", "this role may have 3");
}

#[tokio::test]
async fn a_postgres_without_autovacuum_or_that_takes_no_writes_is_found() {
    let settings = [("autovacuum", "off"), ("default_transaction_read_only", "off")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = PostgresOptions { settings, ..PostgresOptions::default() };
    let postgres = PrivatePostgres::start_with(&options).await.unwrap();
    let (report, _) = examine(&config_of(&postgres.url("postgres")));
    is_found(&report, "warning", "postgres.settings", "autovacuum = off");
    is_found(&report, "broken", "postgres.schema", "at version 0");
    is_found(&report, "warning", "postgres.rights", "not checked");
    postgres.kill_hard().await.unwrap();
    let (report, code) = examine(&config_of(&postgres.url("postgres")));
    is_found(&report, "broken", "postgres.reach", "cannot be used: failed to reach Postgres at");
    assert_eq!(code, 1);
}

#[tokio::test]
async fn a_role_with_too_many_or_too_few_rights_is_named_with_each_of_them() {
    let scratch = Scratch::new().await;
    let role = format!("careless_{}", scratch.name);
    let url = scratch.owner_url.replacen("refundd@", &format!("{role}@"), 1);
    scratch.sql(&format!("create role {role} login")).await;
    let (report, _) = examine(&config_of(&url));
    is_found(&report, "broken", "postgres.rights", "lacks rights that a node needs");
    let way_out = finding(&report, "postgres.rights", "lacks")["way_out"].as_str().unwrap().to_owned();
    for words in [
        "/usr/share/refundd/node-role.sql",
        "the first time as a superuser",
        "such as usage on schema refundd",
    ] {
        assert!(way_out.contains(words), "{words}: {way_out}");
    }
    scratch.sql(&format!("grant refundd_node to {role}")).await;
    let (report, _) = examine(&config_of(&url));
    is_well(&report, "postgres.rights", "no others");
    for grant in [
        format!("grant delete on refundd.attempts to {role}"),
        format!("grant update on refundd.permits to {role}"),
        format!("grant update (amount_minor) on refundd.refunds to {role}"),
        format!("grant create on schema refundd to {role}"),
        format!("grant execute on function refundd.enqueue to {role}"),
        format!("grant pg_read_server_files to {role}"),
        format!("alter role {role} createrole"),
    ] {
        scratch.sql(&grant).await;
    }
    let (report, _) = examine(&config_of(&url));
    is_found(&report, "warning", "postgres.rights", &role);
    let found = finding(&report, "postgres.rights", &role)["found"].as_str().unwrap().to_owned();
    for right in [
        "delete on refundd.attempts",
        "update on refundd.permits",
        "update (amount_minor) on refundd.refunds",
        "create in schema refundd",
        "execute on refundd.enqueue",
        "membership in pg_read_server_files",
        "createrole",
    ] {
        assert!(found.contains(right), "{right}: {found}");
    }
    scratch.sql(&format!("alter table refundd.clock owner to {role}")).await;
    let (report, _) = examine(&config_of(&url));
    is_found(&report, "warning", "postgres.rights", "owns the schema");
    let (report, _) = examine(&config_of(&scratch.owner_url));
    is_found(&report, "broken", "postgres.rights", "`refundd` is a superuser");
    // Roles belong to the whole server.
    scratch.sql("alter table refundd.clock owner to refundd").await;
    scratch.sql(&format!("drop owned by {role}")).await;
    scratch.sql(&format!("drop role {role}")).await;
}

/// The node-role.sql of an older version takes rights away that the newer schema needs.
#[tokio::test]
async fn rights_on_a_newer_schema_are_not_to_be_taken_by_this_versions_script() {
    let scratch = Scratch::new().await;
    for newer in [
        "create function refundd.from_the_future() returns int language sql security definer as 'select 1'",
        "grant execute on function refundd.from_the_future to refundd_node",
    ] {
        scratch.sql(newer).await;
    }
    let way_out = || {
        let (report, _) = examine(&config_of(&scratch.database_url));
        is_found(&report, "warning", "postgres.rights", "execute on refundd.from_the_future");
        finding(&report, "postgres.rights", "from_the_future")["way_out"].as_str().unwrap().to_owned()
    };
    assert!(way_out().contains("run config/node-role.sql"), "{}", way_out());
    scratch
        .sql("insert into refundd.migrations (version, description, success, checksum, execution_time) values (9999, 'from the future', true, '', 0)")
        .await;
    let way_out = way_out();
    assert!(way_out.contains("not this version's node-role.sql"), "{way_out}");
}

#[tokio::test]
async fn producers_that_no_binding_reaches_and_a_schema_open_to_all_are_found() {
    let scratch = Scratch::new().await;
    make_producers(&mut scratch.connect().await).await;
    let (shop, boutique) = (format!("shop_of_{}", scratch.name), format!("boutique_of_{}", scratch.name));
    for role in [&shop, &boutique] {
        scratch.sql(&format!("create role {role} login in role refundd_producer")).await;
    }
    scratch.sql("revoke create on schema public from public").await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_well(&report, "postgres.roles", "name roles");
    scratch.sql(&format!("select refundd.bind_producer('{shop}', '{{acme}}')")).await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "warning", "postgres.roles", &boutique);
    // Beside those of other tests: roles belong to the whole server.
    let found = finding(&report, "postgres.roles", &boutique)["found"].as_str().unwrap();
    let named: Vec<&str> = found.split([' ', ',']).collect();
    assert!(named.contains(&boutique.as_str()) && !named.contains(&shop.as_str()), "{found}");
    scratch.sql(&format!("alter role {shop} rename to new_{shop}")).await;
    scratch.sql("grant create on schema public to public").await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "warning", "postgres.roles", &format!("name what is no role: {shop}"));
    is_found(&report, "warning", "postgres.roles", &format!("new_{shop}"));
    is_found(&report, "warning", "postgres.roles", "create objects in the schema `public`");
}

#[tokio::test]
async fn roles_that_may_use_another_installation_of_the_server_are_found_until_they_may_not_connect() {
    let (scratch, other) = (Scratch::new().await, Scratch::new().await);
    let shared = format!("{} (", other.name);
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "warning", "postgres.roles", &shared);
    let found = finding(&report, "postgres.roles", &shared)["found"].as_str().unwrap();
    let members = found.split(&shared).nth(1).unwrap().split(')').next().unwrap();
    assert!(members.split(", ").any(|role| role == "refundd_app"), "{found}");
    other.sql(&format!("revoke connect on database {} from public", other.name)).await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    assert!(!report.to_string().contains(&shared), "{report:#}");
}

#[tokio::test]
async fn a_schema_that_a_newer_program_migrated_is_found_with_both_versions() {
    let scratch = Scratch::new().await;
    scratch
        .sql(
            "insert into refundd.migrations (version, description, installed_on, success, checksum, execution_time)
             select version + 1000, 'later', now(), true, checksum, 0 from refundd.migrations order by version desc limit 1",
        )
        .await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "warning", "postgres.schema", "and this refundd knows");
}

#[tokio::test]
async fn a_schema_that_is_too_old_is_found_with_both_versions() {
    let scratch = Scratch::new().await;
    scratch
        .sql("delete from refundd.migrations where version = (select max(version) from refundd.migrations)")
        .await;
    let (report, _) = examine(&config_of(&scratch.database_url));
    is_found(&report, "broken", "postgres.schema", "this refundd needs");
    assert_eq!(
        finding(&report, "postgres.schema", "needs")["way_out"],
        "run `refundd migrate` as the owner of the schema"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_postgres_that_ends_soon_or_ended_is_found_with_its_day() {
    let options = PostgresOptions { tcp: true, ..PostgresOptions::for_tests() };
    let postgres = PrivatePostgres::start_with(&options).await.unwrap();
    postgres.create_database("payments", None).await.unwrap();
    let (authority, data) = (Authority::new().unwrap(), postgres.folder().join("data"));
    put(&data, "pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.1/32 trust\n");
    let soon = Zoned::now().date().checked_add(10.days()).unwrap();
    let mut database = PgConnection::connect(&postgres.url("payments")).await.unwrap();
    let lines = format!(
        "postgres://refundd@localhost:{}/payments?sslmode=verify-full&sslrootcert={}",
        postgres.port().unwrap(),
        authority.file().display()
    );
    for (pem, severity, words) in [
        (authority.pem_until(soon).unwrap(), "warning", soon.to_string()),
        (authority.expired_pem().unwrap(), "broken", "ended at 2020-01-01".to_owned()),
    ] {
        put(&data, "server.crt", &pem.0);
        put(&data, "server.key", &pem.1);
        database.execute("alter system set ssl = on").await.unwrap();
        database.execute("select pg_reload_conf()").await.unwrap();
        let is_served = async || {
            let (report, _) = examine(&config_of(&lines));
            report.to_string().contains(&words).then_some(report)
        };
        let mut report = None;
        crate::harness::until("Postgres shows the certificate", async || {
            report = is_served().await;
            report.is_some()
        })
        .await;
        is_found(&report.unwrap(), severity, "postgres.tls", &words);
    }
}

#[test]
fn a_certificate_of_postgres_that_could_not_be_looked_at_is_a_warning() {
    let (report, _) = examine(&config_of("postgres://u@127.0.0.1:1/p?sslmode=verify-full"));
    is_found(&report, "warning", "postgres.tls", "the end of Postgres's certificate cannot be read");
}

#[test]
fn the_certificate_that_a_node_shows_to_postgres_is_dated_also_while_postgres_is_away() {
    let issued = Issued::new();
    let (good, ended) = (issued.identity(&["node"]), issued.expired(&["node"]));
    let shown = "the certificate that this node shows to Postgres";
    let away = "postgres://u@127.0.0.1:1/p";
    let of_file = |shown: &Identity| {
        let (certificate, key) = (&shown.certificate, shown.key.display());
        format!("{away}\"\ntls = \"verify-full\"\ncertificate_file = {certificate:?}\nkey_file = \"{key}")
    };
    let of_address = |shown: &Identity| {
        let (certificate, key) = (shown.certificate.display(), shown.key.display());
        format!("{away}?sslmode=verify-full&sslcert={certificate}&sslkey={key}")
    };
    for lines in [of_file(&good), of_address(&good)] {
        is_well(&examine(&config_of(&lines)).0, "postgres.tls", &format!("{shown} ends in"));
    }
    for lines in [of_file(&ended), of_address(&ended)] {
        let (report, _) = examine(&config_of(&lines));
        is_found(&report, "broken", "postgres.tls", &format!("{shown} ended at 2020-01-01"));
    }
}

#[test]
fn the_certificate_that_the_environment_names_for_postgres_is_dated_too() {
    let issued = Issued::new();
    let (good, ended) = (issued.identity(&["node"]), issued.expired(&["node"]));
    let shown = "the certificate that this node shows to Postgres";
    let config = file(&config_of("postgres://u@127.0.0.1:1/p?sslmode=verify-full"));
    let examine = |certificate: &str, key: &Path| {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_refundd"));
        doctor.args(["doctor", "--json", "--config"]).arg(config.path());
        let output = doctor.env("PGSSLCERT", certificate).env("PGSSLKEY", key).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    for (identity, severity, words) in [(&good, "ok", "ends in"), (&ended, "broken", "ended at 2020-01-01")] {
        let pem = std::fs::read_to_string(&identity.certificate).unwrap();
        for certificate in [identity.certificate.to_str().unwrap(), pem.as_str()] {
            let report = examine(certificate, &identity.key);
            let finding = finding(&report, "postgres.tls", &format!("{shown} {words}"));
            assert_eq!(finding["severity"], severity, "{finding:#}");
        }
    }
}
