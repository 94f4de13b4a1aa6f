//! One Postgres and one Redis for the whole run. They end with this process, however it ends.

use std::sync::LazyLock;
use std::sync::mpsc;

use playground::{PostgresOptions, PrivatePostgres, PrivateRedis};
use refundd::store::Store;

/// The database that every scratch is copied from.
pub const TEMPLATE: &str = "template_of_refundd";

pub struct Servers {
    pub postgres: PrivatePostgres,
    pub redis: PrivateRedis,
}

pub static SERVERS: LazyLock<Servers> = LazyLock::new(|| {
    let (ready, servers) = mpsc::channel();
    // A thread and a runtime that live as long as the process, since tests' own runtimes do not.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut options = PostgresOptions::for_tests();
            options.settings.push(("max_prepared_transactions".to_owned(), "10".to_owned()));
            let postgres = PrivatePostgres::start_with(&options).await.unwrap();
            let redis = PrivateRedis::start().await.unwrap();
            postgres.create_database(TEMPLATE, None).await.unwrap();
            let store = Store::open(&postgres.url(TEMPLATE), None, 1).unwrap();
            store.migrate().await.unwrap();
            store.close().await;
            postgres.admit_nodes(TEMPLATE).await.unwrap();
            ready.send(Servers { postgres, redis }).unwrap();
            std::future::pending::<()>().await;
        });
    });
    servers.recv().expect("the servers start; run tools/install-servers if they are not installed")
});
