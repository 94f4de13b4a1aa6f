//! Measures what nine healthy banks lose while a tenth bank hangs, compared with the time when it does not hang.

use std::path::PathBuf;
use std::time::Duration;

use playground::bank::Step;
use playground::load::save_in;
use playground::stage::{ANY, Stage};
use sqlx::{Connection, PgConnection};

use crate::rig::now_us;

const ROUNDS: usize = 4;
const SECONDS: u64 = 8;

/// Arrivals a second of the nine channels: while all ten banks are healthy, and while the tenth hangs.
pub struct Loss {
    pub well: f64,
    pub beside: f64,
}

impl Loss {
    pub fn percent(&self) -> f64 {
        (1.0 - self.beside / self.well) * 100.0
    }
}

pub async fn run() -> anyhow::Result<Loss> {
    let names: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    let section = |name: &String| {
        format!(
            "[limit.{name}]\npermits = 40\nper = \"1s\"\n[channel.{name}]\nendpoint = \"http://{{bank}}/{name}/refunds\"\n\
             limits = [\"{name}\"]\nmax_in_flight = 32\ntimeout = \"2s\"\nconnect_timeout = \"1s\"\nbreaker = \"off\"\n"
        )
    };
    let file: String = names.iter().map(section).collect();
    let stage = Stage::set(PathBuf::from(env!("CARGO_BIN_EXE_refundd")), ANY).await?;
    let nodes = [stage.node("a", ANY, &file).await?, stage.node("b", ANY, &file).await?];
    let mut connection = PgConnection::connect(&stage.database_url()).await?;
    for name in &names {
        save_in(&mut connection, name, 1..=6000).await?;
    }
    connection.close().await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (mut well, mut beside) = (0, 0);
    for round in 0..2 * ROUNDS {
        let hangs = round % 2 == 1;
        stage.bank.then("c0", if hangs { Step::silence() } else { Step::pays() });
        // Waits until all slots of the channel hang, or none hangs any more.
        tokio::time::sleep(Duration::from_secs(4)).await;
        // Counts whole seconds, so that no window is counted in part.
        let second = 1_000_000 - now_us().rem_euclid(1_000_000);
        tokio::time::sleep(Duration::from_micros(second.unsigned_abs())).await;
        let from = now_us() / 1_000_000 * 1_000_000;
        let until = from + i64::try_from(SECONDS)? * 1_000_000;
        tokio::time::sleep(Duration::from_secs(SECONDS) + Duration::from_millis(100)).await;
        let nine = stage.bank.look(|ledger| {
            let of = |a: &&playground::bank::Arrival| &*a.channel != "c0" && (from..until).contains(&a.at_us);
            ledger.all().iter().filter(of).count()
        });
        *(if hangs { &mut beside } else { &mut well }) += nine;
    }
    for node in nodes {
        node.stop().await?;
    }
    stage.strike().await?;
    let seconds = (SECONDS * ROUNDS as u64) as f64;
    Ok(Loss { well: well as f64 / seconds, beside: beside as f64 / seconds })
}
