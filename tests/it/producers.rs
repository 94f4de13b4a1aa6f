//! Producers that log in with roles of their own: what the owner binds them to, and when a channel takes no more.

mod amounts;
mod repeats;

use refundd::refund::State;
use sqlx::{Connection, Executor, PgConnection};

use crate::attacks::are_refused;
use crate::chain::owned;
use crate::cli::{csv_file, file, refundd, text};
use crate::dispatch::UNLIMITED;
use crate::harness::servers::SERVERS;
use crate::harness::{Scratch, TestNode, until};
use crate::roles::make_producers;

/// The statement that a producer uses.
fn insert(refund_ref: &str, channel: &str) -> String {
    format!(
        "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
         values ('{refund_ref}', '{channel}', 'P', 1, 'EUR') on conflict (refund_ref) do nothing returning id, state"
    )
}

/// Channels `acme` and `globex`, and two producers: `shop` and `boutique`, each with a suffix.
async fn two_producers() -> (Scratch, PgConnection, PgConnection) {
    let scratch = Scratch::new().await;
    scratch.publish("acme").await;
    scratch.publish("globex").await;
    let mut owner = scratch.connect().await;
    make_producers(&mut owner).await;
    let shop = log_in(&scratch, "shop").await;
    let boutique = log_in(&scratch, "boutique").await;
    (scratch, shop, boutique)
}

async fn log_in(scratch: &Scratch, name: &str) -> PgConnection {
    let role = format!("{name}_of_{}", scratch.name);
    scratch.sql(&format!("create role {role} login in role refundd_producer")).await;
    let url = scratch.owner_url.replacen("refundd@", &format!("{role}@"), 1);
    PgConnection::connect(&url).await.unwrap()
}

async fn bind(scratch: &Scratch, name: &str, channels: &str) {
    scratch.sql(&format!("select refundd.bind_producer('{name}_of_{}', '{channels}')", scratch.name)).await;
}

/// The refs that a producer sees.
async fn seen(producer: &mut PgConnection) -> Vec<String> {
    let refs = "select refund_ref from refundd.refunds order by refund_ref";
    sqlx::query_scalar(refs).fetch_all(producer).await.unwrap()
}

async fn run(producer: &mut PgConnection, statement: &str) {
    producer
        .execute(sqlx::AssertSqlSafe(statement))
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
}

#[tokio::test]
async fn a_bound_producer_saves_and_reads_only_refunds_of_its_channels() {
    let (scratch, mut shop, mut boutique) = two_producers().await;
    bind(&scratch, "shop", "{acme}").await;
    bind(&scratch, "boutique", "{globex}").await;
    run(&mut shop, &insert("S-1", "acme")).await;
    run(&mut shop, &insert("S-1", "acme")).await;
    run(&mut shop, "select refundd.enqueue('S-2', 'acme', 'P', 1, 'EUR')").await;
    run(&mut boutique, &insert("B-1", "globex")).await;
    let (to_globex, row) =
        (insert("S-3", "globex"), "row-level security policy \"producers_keep_to_their_channels\"");
    let who = format!(
        "role \"shop_of_{}\" may not use channel \"globex\"; The owner of the schema binds a producer",
        scratch.name
    );
    let boutiques = format!("set session authorization boutique_of_{}", scratch.name);
    are_refused(
        &mut shop,
        &[
            (&to_globex, "42501", row),
            ("select refundd.enqueue('S-3', 'globex', 'P', 1, 'EUR')", "42501", &who),
            // The refund of another producer is not named.
            (
                "select refundd.enqueue('B-1', 'acme', 'P', 1, 'EUR')",
                "RD001",
                "already taken by a refund with other content",
            ),
            (
                "update refundd.refunds set state = 'cancelled'",
                "42501",
                "permission denied for table refunds",
            ),
            ("select payload from refundd.refunds", "42501", "permission denied for table refunds"),
            ("select * from refundd.attempts", "42501", "permission denied for table attempts"),
            (
                "insert into refundd.producers values (session_user, 'globex')",
                "42501",
                "permission denied for table producers",
            ),
            (
                "select refundd.bind_producer(session_user, '{}')",
                "42501",
                "permission denied for function bind_producer",
            ),
            (
                "alter table refundd.refunds disable row level security",
                "42501",
                "must be owner of table refunds",
            ),
            (
                "do $$ begin set local row_security = off; perform id from refundd.refunds; end $$",
                "42501",
                "would be affected by row-level security",
            ),
            (&boutiques, "42501", "permission denied"),
        ],
    )
    .await;
    run(&mut shop, "set role refundd_producer").await;
    are_refused(&mut shop, &[(&to_globex, "42501", row)]).await;
    assert_eq!(seen(&mut shop).await, ["S-1", "S-2"]);
    assert_eq!(seen(&mut boutique).await, ["B-1"]);
    // Two channels, and then all again.
    bind(&scratch, "shop", "{acme,globex}").await;
    assert_eq!(seen(&mut shop).await, ["B-1", "S-1", "S-2"]);
    bind(&scratch, "shop", "{}").await;
    run(&mut shop, &to_globex).await;
    assert_eq!(seen(&mut boutique).await, ["B-1", "S-3"]);
    let stranger = scratch.sql_error("select refundd.bind_producer('nobody', '{acme}')").await;
    assert!(stranger.to_string().contains("role \"nobody\" is no member of refundd_producer"), "{stranger}");
    // A subquery that finds nothing gives null. It does not mean all channels.
    bind(&scratch, "shop", "{acme}").await;
    for channels in ["null", "'{acme,null}'"] {
        let bind = format!("select refundd.bind_producer('shop_of_{}', {channels})", scratch.name);
        let refused = scratch.sql_error(&bind).await.to_string();
        assert!(refused.contains("are null"), "{channels}: {refused}");
    }
    assert_eq!(seen(&mut shop).await, ["S-1", "S-2"]);
}

#[tokio::test]
async fn a_producer_that_is_not_bound_uses_all_channels_as_before() {
    let (scratch, mut shop, mut boutique) = two_producers().await;
    let line = "refund_ref, channel, payment_ref, amount_minor, currency";
    let copy = format!("copy refundd.refunds ({line}) from stdin");
    for (nth, is_bound) in [false, true].into_iter().enumerate() {
        if is_bound {
            bind(&scratch, "boutique", "{globex}").await;
        }
        run(&mut shop, &insert(&format!("S-{nth}"), "acme")).await;
        run(&mut shop, &format!("select refundd.enqueue('E-{nth}', 'globex', 'P', 1, 'EUR')")).await;
        // Postgres copies into no table that is under row-level security.
        let copied = match shop.copy_in_raw(&copy).await {
            Ok(mut copying) => {
                copying.send(format!("C-{nth}\tacme\tP\t1\tEUR\n").into_bytes()).await.unwrap();
                copying.finish().await.is_ok()
            }
            Err(_) => false,
        };
        assert_eq!(copied, !is_bound);
    }
    assert_eq!(seen(&mut shop).await, ["C-0", "E-0", "E-1", "S-0", "S-1"]);
    assert_eq!(seen(&mut boutique).await, ["E-0", "E-1"]);
    // The last one unbound, the table is as it was.
    bind(&scratch, "boutique", "{}").await;
    let secured = "select count(*) from pg_class where oid = 'refundd.refunds'::regclass and relrowsecurity";
    assert_eq!(scratch.number(secured).await, 0);
}

#[tokio::test]
async fn a_plain_insert_into_a_full_channel_is_refused_with_the_channel_the_bound_and_the_way_out() {
    let (scratch, mut shop, _boutique) = two_producers().await;
    run(&mut shop, &insert("S-1", "acme")).await;
    scratch.sql("update refundd.channels set max_backlog = 1 where channel = 'acme'").await;
    scratch.store.watch_backlogs().await.unwrap();
    let said =
        "channel \"acme\" already has max_backlog = 1 refunds waiting; Try again later, or raise max_backlog";
    let (one, many) = (insert("S-2", "acme"), "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
        select 'M-' || n, case when n = 7 then 'acme' else 'globex' end, 'P', 1, 'EUR' from generate_series(1, 9) n");
    are_refused(
        &mut shop,
        &[
            (&one, "RD005", said),
            (many, "RD005", said),
            ("select refundd.enqueue('S-2', 'acme', 'P', 1, 'EUR')", "RD005", said),
        ],
    )
    .await;
    // A repeat saves nothing, and is no error.
    run(&mut shop, &insert("S-1", "acme")).await;
    run(&mut shop, &insert("S-2", "globex")).await;
    scratch
        .sql("update refundd.refunds set state = 'cancelled', settled_at = now() where refund_ref = 'S-1'")
        .await;
    scratch.store.watch_backlogs().await.unwrap();
    run(&mut shop, &insert("S-3", "acme")).await;
}

#[tokio::test]
async fn one_statement_of_a_producer_brings_no_more_than_the_channels_bound() {
    let (scratch, mut shop, _boutique) = two_producers().await;
    scratch.sql("update refundd.channels set max_backlog = 5 where channel = 'acme'").await;
    let many = |prefix: &str, count: usize| {
        format!(
            "insert into refundd.refunds (refund_ref, channel, payment_ref, amount_minor, currency)
             select '{prefix}-' || n, case when n <= 9 then 'globex' else 'acme' end, 'P', 1, 'EUR' from generate_series(1, {count}) n"
        )
    };
    let said = "channel \"acme\" takes max_backlog = 5 refunds, and this statement brings 6; Save fewer refunds in one statement";
    are_refused(&mut shop, &[(&many("S", 15), "RD005", said)]).await;
    assert_eq!(scratch.number("select count(*) from refundd.refunds").await, 0);
    run(&mut shop, &many("S", 14)).await;
    // Nodes count before they save, so the statement does not bind them.
    scratch.sql(&many("T", 15)).await;
}

#[tokio::test]
async fn nodes_under_their_role_work_beside_bound_producers() {
    let (scratch, mut shop, _boutique) = two_producers().await;
    bind(&scratch, "shop", "{acme}").await;
    let node = TestNode::start(&scratch, "a", UNLIMITED).await;
    run(&mut shop, &insert("S-1", "acme")).await;
    let config = file(&scratch.file("a", UNLIMITED));
    let rows = csv_file(&["I-1,acme,P-1,5,EUR", "I-2,acme,P-2,5,EUR"]);
    let imported = text(&refundd(config.path(), &["import", rows.path().to_str().unwrap()]));
    assert!(imported.contains("2 saved, 0 were saved before, 0 refused"), "{imported}");
    until("all are settled", async || scratch.count(State::Succeeded).await == 3).await;
    node.stop().await;
}

#[tokio::test]
async fn producers_save_where_the_owner_of_the_schema_is_no_superuser() {
    let scratch = owned().await;
    scratch.publish("acme").await;
    let url = SERVERS.postgres.url(&scratch.name);
    let mut superuser = PgConnection::connect(&url).await.unwrap();
    make_producers(&mut superuser).await;
    let mut producers = Vec::new();
    for name in ["shop", "boutique"] {
        let role = format!("{name}_of_{}", scratch.name);
        run(&mut superuser, &format!("create role {role} login in role refundd_producer")).await;
        let url = url.replacen("refundd@", &format!("{role}@"), 1);
        producers.push(PgConnection::connect(&url).await.unwrap());
    }
    bind(&scratch, "shop", "{acme}").await;
    // Postgres makes the plan that stays with the sixth call of a function in a session.
    for (producer, name) in producers.iter_mut().zip(["S", "B"]) {
        for nth in 0..20 {
            run(producer, &insert(&format!("{name}-{nth}"), "acme")).await;
            run(producer, &format!("select refundd.enqueue('{name}E-{nth}', 'acme', 'P', 1, 'EUR')")).await;
        }
    }
    for producer in &mut producers {
        assert_eq!(seen(producer).await.len(), 80);
    }
}

#[tokio::test]
async fn a_role_with_capitals_has_its_own_bindings() {
    let (scratch, mut shop, _boutique) = two_producers().await;
    let role = format!("SHOP_of_{}", scratch.name);
    scratch.sql(&format!("create role \"{role}\" login in role refundd_producer")).await;
    scratch.sql(&format!("select refundd.bind_producer('{role}', '{{globex}}')")).await;
    bind(&scratch, "shop", "{acme}").await;
    let url = scratch.owner_url.replacen("refundd@", &format!("{role}@"), 1);
    let mut capitals = PgConnection::connect(&url).await.unwrap();
    run(&mut capitals, &insert("C-1", "globex")).await;
    run(&mut shop, &insert("S-1", "acme")).await;
    assert_eq!(seen(&mut capitals).await, ["C-1"]);
    assert_eq!(seen(&mut shop).await, ["S-1"]);
}
