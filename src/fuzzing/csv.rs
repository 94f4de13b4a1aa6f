//! A CSV file for `refundd import`.

use super::{CONFIG, is_sound, quotes_no_card_number};
use crate::cli::rows_of_csv;

/// Each row has its line of the file, in order, and is a sound refund or has problems that show no card number.
pub fn target(input: &[u8]) {
    let Ok(rows) = rows_of_csv(input, &CONFIG) else { return };
    let lines = input.split(|byte| *byte == b'\n').count() as u64;
    let mut last = 1;
    for (line, refund) in rows {
        assert!(last < line && line <= lines, "line {line} after line {last} of {lines}");
        last = line;
        match refund {
            Ok(refund) => is_sound(&refund),
            Err(wrong) => {
                assert!(!wrong.is_empty());
                for wrong in wrong {
                    quotes_no_card_number(&wrong);
                }
            }
        }
    }
}
