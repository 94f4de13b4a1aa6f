//! A synchronous standby: every commit waits for it, so its promotion loses nothing that was acknowledged.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use super::commands::copy;
use super::{PostgresOptions, PrivatePostgres};
use crate::{PlaygroundError, find};

const PATIENCE: Duration = Duration::from_secs(30);
/// Whether each commit waits for a standby.
const FOLLOWERS: &str = "select count(*) = 1 from pg_stat_replication where sync_state in ('sync', 'quorum')";

impl PrivatePostgres {
    /// Starts a standby with a copy of the data, and waits until each commit waits for it.
    pub async fn add_standby(&self) -> Result<PrivatePostgres, PlaygroundError> {
        let bin = self.options.bin.clone().map_or_else(find::postgres, Ok)?;
        let settings = [
            self.options.settings.clone(),
            vec![("wal_retrieve_retry_interval".to_owned(), "200ms".to_owned())],
        ]
        .concat();
        let options = PostgresOptions { settings, ..self.options.clone() };
        let standby = Self::begin(&bin, &options, copy(&bin, &self.socket_folder, self.port)).await?;
        self.say("postgres", "alter system set synchronous_standby_names = '*'").await?;
        self.say("postgres", "select pg_reload_conf()").await?;
        let began = Instant::now();
        while !self.holds(FOLLOWERS).await? {
            if began.elapsed() > PATIENCE {
                return Err(PlaygroundError::Silent {
                    name: "Postgres",
                    log: "the standby does not follow".to_owned(),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(standby)
    }

    /// Makes a standby accept writes, and waits until it does.
    pub async fn promote(&self) -> Result<(), PlaygroundError> {
        if self.holds("select pg_promote()").await? {
            return Ok(());
        }
        Err(PlaygroundError::Silent { name: "Postgres", log: "the standby was not promoted".to_owned() })
    }

    /// Adds a standby, kills the server after `later`, and promotes the standby. The address then leads to its data.
    pub async fn fail_over(&self, later: Duration) -> Result<(), PlaygroundError> {
        let standby = self.add_standby().await?;
        sleep(later).await;
        self.kill_hard().await?;
        standby.promote().await?;
        standby.reaper.end("INT").await?;
        let [old, new] = [self, &standby].map(|server| server.folder().join("data"));
        let moved = std::fs::remove_dir_all(&old).and_then(|()| std::fs::rename(&new, &old));
        moved.map_err(|source| PlaygroundError::TakeOver { source })?;
        standby.stop().await?;
        self.start_again().await
    }

    async fn holds(&self, question: &'static str) -> Result<bool, PlaygroundError> {
        let ask = async {
            let mut connection: PgConnection = self.connect("postgres").await?;
            let answer = sqlx::query_scalar(question).fetch_one(&mut connection).await?;
            connection.close().await?;
            Ok(answer)
        };
        ask.await.map_err(|source: sqlx::Error| PlaygroundError::Statement {
            statement: question.to_owned(),
            source: Box::new(source),
        })
    }
}
