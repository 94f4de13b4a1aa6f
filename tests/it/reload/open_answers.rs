//! A node warns of rules that leave answers over, as `refundd check` does: after an upgrade those answers are `unknown`.

use rustix::process::Signal;

use crate::dispatch::UNLIMITED;
use crate::harness::{NodeProcess, Scratch};

#[tokio::test]
async fn a_start_and_a_reload_warn_of_rules_about_the_body_that_leave_answers_over() {
    let scratch = Scratch::new().await;
    let channel = |status: u16| {
        let rule = "pointer = \"/code\"\nequals = \"51\"\noutcome = \"rejected\"\n";
        format!("{UNLIMITED}[[channel.acme.verdict]]\nstatus = {status}\n{rule}")
    };
    let warning = |status: u16| {
        format!(
            "In the configuration, channel `acme` has rules with `pointer` for status {status}, and none without"
        )
    };
    let mut node = NodeProcess::start(&scratch, "a", &channel(200));
    node.wait_for_line(&warning(200));
    node.rewrite(&scratch.file("a", &channel(201)));
    node.signal(Signal::HUP);
    node.wait_for_line(&warning(201));
}
