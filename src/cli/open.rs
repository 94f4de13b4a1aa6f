//! What most commands begin with: the configuration, the database, and the names that a person gave.

use std::path::PathBuf;

use anyhow::bail;

use crate::config::{Config, Postgres};
use crate::store::Store;

/// The named configuration file, or the one in the usual place.
pub(super) fn path(file: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let usual = PathBuf::from(Config::DEFAULT_PATH);
    match file {
        Some(path) => Ok(path.clone()),
        None if usual.exists() => Ok(usual),
        None => bail!(
            "no configuration: give --config FILE, set REFUNDD_CONFIG, or write {}; `refundd check --reference` prints one to start from",
            Config::DEFAULT_PATH
        ),
    }
}

/// Reads the configuration file.
pub(super) fn load(file: Option<&PathBuf>) -> anyhow::Result<Config> {
    Ok(Config::load(Some(&path(file)?))?)
}

/// Reads the configuration file for a reload. It blocks its thread for a moment.
pub(super) fn load_settled(file: Option<&PathBuf>) -> anyhow::Result<Config> {
    Ok(Config::load_settled(&path(file)?)?)
}

/// Reads `[postgres]` of the configuration file, and nothing else.
pub(super) fn load_postgres(file: Option<&PathBuf>) -> anyhow::Result<Postgres> {
    Ok(Config::load_postgres(Some(&path(file)?))?)
}

/// Reads `[postgres]` of the configuration file, and the whole file if it has no fault and no secret that this user may not read.
pub(super) fn load_postgres_and_rest(file: Option<&PathBuf>) -> anyhow::Result<(Postgres, Option<Config>)> {
    Ok(Config::load_postgres_and_rest(Some(&path(file)?))?)
}

/// The database of a configuration, which answered.
pub(super) async fn reached(postgres: &Postgres) -> anyhow::Result<Store> {
    let store = crate::daemon::open_store(postgres, 2)?;
    store.reach().await?;
    Ok(store)
}

/// The database of a configuration, with its schema.
pub(super) async fn store(postgres: &Postgres) -> anyhow::Result<Store> {
    let store = reached(postgres).await?;
    // A role that may not look at the version learns from its own statement what it may not do.
    if let Ok(schema) = store.schema().await {
        if schema.applied == 0 {
            bail!("the database has no schema `refundd` yet: run `refundd migrate`");
        }
        if let Some(missing) = schema.missing {
            eprintln!(
                "refundd: the database's schema is at version {} and lacks migration {missing}: run `refundd migrate`",
                schema.applied
            );
        }
    }
    Ok(store)
}

/// A text without the byte order mark that some editors write first.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Refuses a channel that no node ever ran here: it is misspelt, and "nothing" would be a wrong answer.
pub(super) async fn channel_exists(store: &Store, flag: &str, name: &str) -> anyhow::Result<()> {
    let known = store.provable().await?.channels;
    if known.iter().any(|(channel, _)| channel == name) {
        return Ok(());
    }
    let there: Vec<&str> = known.iter().map(|(channel, _)| channel.as_str()).collect();
    let there = if there.is_empty() { "none yet".to_owned() } else { there.join(", ") };
    bail!("{flag} {name}: no such channel was ever run on this database; there are: {there}")
}
