//! What viewers cost: the pace of a paced channel and the node's processor time, without viewers and with ten.

use std::fmt::Write;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::time::sleep;

use crate::harness::http::get;
use crate::harness::{NodeProcess, Scratch, until};

const SPAN: Duration = Duration::from_secs(30);
const VIEWERS: u32 = 10;
/// As the script of the page does.
const EVERY: Duration = Duration::from_secs(5);

/// The processor time of a process so far, in seconds.
fn processor_time(pid: Pid) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

#[tokio::test]
#[ignore = "measures for more than a minute; `make page-cost` runs it"]
async fn ten_viewers_of_a_thousand_channels_change_no_pace() {
    let scratch = Scratch::new().await;
    let mut channels = "[limit.paced]\nalgorithm = \"paced\"\npermits = 20\nper = \"1s\"\n\
                        [channel.paced]\nendpoint = \"http://{bank}/paced/refunds\"\nlimits = [\"paced\"]\n"
        .to_owned();
    for nth in 1..1000 {
        write!(channels, "[channel.c{nth}]\nendpoint = \"http://{{bank}}/c/refunds\"\nlimits = []\n")
            .unwrap();
    }
    let node = NodeProcess::start(&scratch, "a", &channels);
    let address = node.address().unwrap().parse().unwrap();
    scratch.insert("paced", "R-", 3000).await;
    until("it sends", async || scratch.bank.look(|ledger| ledger.all().len()) > 100).await;
    let measure = async || {
        let (arrived, used, began) =
            (scratch.bank.look(|ledger| ledger.all().len()), processor_time(node.pid()), Instant::now());
        sleep(SPAN).await;
        let arrived = scratch.bank.look(|ledger| ledger.all().len()) - arrived;
        let seconds = began.elapsed().as_secs_f64();
        (arrived as f64 / seconds, (processor_time(node.pid()) - used) / seconds)
    };
    let (pace_alone, used_alone) = measure().await;
    let viewers: Vec<_> = (0..VIEWERS)
        .map(|nth| {
            tokio::spawn(async move {
                sleep(EVERY * nth / VIEWERS).await;
                loop {
                    let (status, page) = get(address, "/").await.unwrap();
                    assert!(status == 200 && page.contains("1,000 channels"), "{page}");
                    sleep(EVERY).await;
                }
            })
        })
        .collect();
    let (pace, used) = measure().await;
    for viewer in viewers {
        viewer.abort();
        assert!(viewer.await.unwrap_err().is_cancelled(), "a viewer saw something else");
    }
    println!(
        "pace {pace_alone:.2} a second without viewers, {pace:.2} with {VIEWERS}; \
         {:.1} % of a core without, {:.1} % with",
        used_alone * 100.0,
        used * 100.0
    );
    assert!((pace / pace_alone - 1.0).abs() < 0.01, "{pace_alone} and {pace}");
    // One hundredth of a core, and not of what the node used before: that is little.
    assert!(cfg!(debug_assertions) || used - used_alone < 0.01, "{used_alone} and {used} of a core");
}
