//! A function that the simulation mirrors does not change unseen: `tests/sim/node/` must change with it.

use std::path::Path;

use super::ROOT;

/// Each mirrored function: its file, its name, the file of its mirror, and the fingerprint of its code. After a change,
/// compare both files, change the mirror if the order of calls or a condition changed, and put the new fingerprint here.
const MIRRORED: &[(&str, &str, &str, u32)] = &[
    ("src/acquire.rs", "acquire", "acquire.rs", 0x4fac_8b56),
    ("src/acquire.rs", "grant", "acquire.rs", 0xbf64_6ce4),
    ("src/bucket/clock_steps.rs", "watch_clock", "housekeeping.rs", 0xbabe_8630),
    ("src/bucket/clock_steps.rs", "watch_clocks", "housekeeping.rs", 0xa210_811f),
    ("src/channel_worker/attempt.rs", "make", "send.rs", 0xe933_de57),
    ("src/channel_worker/claiming.rs", "claim_and_start", "channel_worker/claiming.rs", 0x9010_99cd),
    ("src/channel_worker/claiming.rs", "more", "channel_worker/left_over.rs", 0x676e_7807),
    ("src/channel_worker/claiming.rs", "claim_once", "channel_worker/claiming.rs", 0xfc71_3fc8),
    ("src/channel_worker/claiming.rs", "follow_up", "channel_worker/claiming.rs", 0xe98c_10d9),
    ("src/channel_worker/claiming.rs", "take_back", "channel_worker/claiming.rs", 0x14df_ecae),
    ("src/channel_worker/round.rs", "round", "channel_worker.rs", 0x9379_8180),
    ("src/channel_worker/send.rs", "run", "send.rs", 0x1750_5e25),
    ("src/channel_worker/send.rs", "send", "send.rs", 0x3fbf_4e73),
    ("src/channel_worker/inquire.rs", "run", "asking.rs", 0xc15b_5b84),
    ("src/channel_worker/inquire.rs", "settle", "asking.rs", 0x37c3_7cd6),
    ("src/due_poller.rs", "find_due", "inquiries.rs", 0x755e_fe6e),
    ("src/feeder.rs", "fill_one", "housekeeping.rs", 0x59aa_dc4f),
    ("src/heartbeat.rs", "watch_clock", "housekeeping.rs", 0xae00_5aac),
    ("src/heartbeat.rs", "write_liveness", "housekeeping.rs", 0x0db9_aa2b),
    ("src/node/restoring.rs", "restore", "restoring.rs", 0xf91f_7f29),
    ("src/node/restoring.rs", "catch_up", "restoring.rs", 0x8663_b84a),
    ("src/node/restoring.rs", "try_to_restore", "restoring.rs", 0x8de4_9186),
    ("src/node/suspending.rs", "read_suspensions", "housekeeping.rs", 0x3514_0911),
    ("src/node/suspending.rs", "suspend", "send.rs", 0x688c_a038),
    ("src/node/suspending.rs", "note_and_write", "send.rs", 0xc911_c1d1),
    ("src/node/suspending.rs", "write_refusal", "send.rs", 0xed70_7d9a),
    ("src/recovery.rs", "pass", "housekeeping.rs", 0xb716_bf7f),
    ("src/recovery.rs", "bring_back_stranded", "housekeeping.rs", 0xd65b_f61a),
    ("src/recovery/housekeeping.rs", "keep_house", "housekeeping.rs", 0x93fe_efc6),
    ("src/recovery/isolation.rs", "recover", "housekeeping.rs", 0xaeaa_f4ba),
    ("src/recovery/isolation.rs", "recover_together", "housekeeping.rs", 0x228c_bf09),
    ("src/recovery/isolation.rs", "recover_some", "housekeeping.rs", 0x336a_6392),
    ("src/recovery/isolation.rs", "recover_alone", "housekeeping.rs", 0x72b3_e6af),
    ("src/settler.rs", "write", "housekeeping.rs", 0x397f_9f51),
];

/// The code without comments, texts and spaces. So a reworded log line or comment changes no fingerprint.
fn bare(code: &str) -> String {
    let (mut bare, mut is_text, mut is_escaped) = (String::new(), false, false);
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for letter in line.chars() {
            match letter {
                _ if is_escaped => is_escaped = false,
                '\\' if is_text => is_escaped = true,
                '"' => is_text = !is_text,
                _ if is_text || letter.is_whitespace() => {}
                _ => bare.push(letter),
            }
        }
        is_escaped = false;
    }
    bare
}

/// A function in bare code, from its name to its last brace.
fn body_of<'a>(bare: &'a str, name: &str) -> Option<&'a str> {
    let begin = [format!("fn{name}("), format!("fn{name}<")].iter().find_map(|head| bare.find(head))?;
    let mut depth = 0_usize;
    for (at, letter) in bare[begin..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(&bare[begin..=begin + at]),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// FNV-1a: the same in every version of Rust.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[test]
fn a_function_that_the_simulation_mirrors_changes_together_with_its_mirror() {
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let wrong: Vec<String> = MIRRORED
        .iter()
        .filter_map(|(file, name, mirror, seen)| {
            let mirror = format!("tests/sim/node/{mirror}");
            assert!(Path::new(ROOT).join(&mirror).exists(), "{mirror} is not there");
            let bare = bare(&read(file));
            let Some(body) = body_of(&bare, name) else {
                return Some(format!("{file} has no function `{name}`, which {mirror} mirrors"));
            };
            let is = fingerprint(body);
            (is != *seen).then(|| {
                format!("{file}: `{name}` changed: compare it with {mirror}, then write 0x{is:08x} here")
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
