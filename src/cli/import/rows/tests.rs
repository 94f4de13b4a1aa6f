use super::*;

fn rows(text: &str, format: FileFormat) -> anyhow::Result<Vec<String>> {
    Ok(chunks(text, format)?.concat())
}

/// At most two rows each.
fn chunks(text: &str, format: FileFormat) -> anyhow::Result<Vec<Vec<String>>> {
    let (outbox, mut inbox) = tokio::sync::mpsc::channel(100);
    let config = Config::parse(Config::REFERENCE, "r.toml", &|_| None)?;
    read(text.as_bytes(), format, 2, &config, &outbox)?;
    drop(outbox);
    let text = |row: Row| match row.refund {
        Ok(refund) => format!("{}: {} {}", row.line, refund.refund_ref, refund.money.amount_minor),
        Err(refused) => format!("{}: {}", row.line, refused.wrong.join("; ")),
    };
    let mut chunks = Vec::new();
    while let Some(chunk) = inbox.blocking_recv() {
        chunks.push(chunk.into_iter().map(text).collect());
    }
    Ok(chunks)
}

#[test]
fn columns_may_stand_in_any_order_and_cells_span_lines() {
    let text = "currency,amount_minor,refund_ref,payment_ref,channel,payload\r\n\
                EUR,5,R-1,P-1,acme,\"{\"\"note\"\":\n\"\"two lines\"\"}\"\n\
                EUR,6,R-2,P-2,acme,\n\n\
                EUR,7,R-3,P-3,acme,\n";
    assert_eq!(rows(text, FileFormat::Csv).unwrap(), ["2: R-1 5", "4: R-2 6", "6: R-3 7"]);
}

#[test]
fn a_wrong_line_is_named_and_spoils_no_other() {
    let text = "refund_ref,channel,payment_ref,amount_minor,currency\n\
                R-1,acme,P-1,12.50,EUR\n\
                R-2,acme,P-2\n\
                R-3,acme,P-3,3,EUR\n";
    let results = rows(text, FileFormat::Csv).unwrap();
    assert!(results[0].starts_with("2: amount_minor \"12.50\": "), "{results:?}");
    assert_eq!(results[1..], ["3: has 3 cells; the first line names 5 columns", "4: R-3 3"]);
}

#[test]
fn lines_that_a_quote_joins_are_all_named() {
    let text = "refund_ref,channel,payment_ref,amount_minor,currency,payload\n\
                R-1,acme,P-1,1,EUR,\n\
                R-2,acme,P-2,2,EUR,\"{\"\"a\"\":1}\n\
                R-3,acme,P-3,3,EUR,\n\
                R-4,acme,P-4,4,EUR,\"{}\"\n\
                R-5,acme,P-5,5,EUR,\n";
    let results = rows(text, FileFormat::Csv).unwrap();
    assert!(results[1].starts_with("3: payload: is not JSON"), "{results:?}");
    let joined = "; lines 3 to 5 were read as one because of a quote, and none of them was saved";
    assert!(results[1].ends_with(joined), "{results:?}");
    assert_eq!([&results[0], &results[2]], ["2: R-1 1", "6: R-5 5"]);
}

#[test]
fn a_quote_that_is_never_closed_is_named_with_its_line() {
    let text = "refund_ref,channel,payment_ref,amount_minor,currency\n\
                R-1,acme,P-1,1,EUR\n\
                \"R-2,acme,P-2,2,EUR\n\
                R-3,acme,P-3,3,EUR\n";
    for text in [text, text.trim_end()] {
        let said = "3: a quote in it is never closed, so no line after it was read";
        assert_eq!(rows(text, FileFormat::Csv).unwrap(), ["2: R-1 1", said]);
    }
}

#[test]
fn a_carriage_return_ends_no_line_alone_and_vanishes_from_no_cell() {
    let text = "refund_ref,channel,payment_ref,amount_minor,currency\r\n\
                R\r1,acme,P-1,1,EUR\r\n\
                R-2,acme,P-2,2,EUR\r\r\n\
                R-3,acme,P-3,3,EUR\r\n";
    let results = rows(text, FileFormat::Csv).unwrap();
    assert!(results[0].starts_with("2: refund_ref \"R\\r1\": holds U+000D"), "{results:?}");
    assert!(results[1].starts_with("3: currency \"EUR\\r\": "), "{results:?}");
    assert_eq!(results[2..], ["4: R-3 3"]);
    // Wherever a read ends, the same comes out.
    for size in 2..20 {
        let is_over = Cell::new(false);
        let mut file = LineFeeds { inner: &b"a\r\r\nb\r\n\rc\r"[..], is_over: &is_over, holds_return: false };
        let (mut all, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            let came = file.read(&mut buffer).unwrap();
            if came == 0 {
                break;
            }
            all.extend_from_slice(&buffer[..came]);
        }
        assert_eq!(all, b"a\r\nb\n\rc\r", "{size}");
    }
}

#[test]
fn a_column_that_is_no_field_is_refused_before_anything_is_saved() {
    let error = rows("refund_ref,amount\nR-1,5\n", FileFormat::Csv).unwrap_err();
    assert!(error.to_string().starts_with("line 1: `amount` is no field"), "{error}");
    let error = rows("channel,channel\n", FileFormat::Csv).unwrap_err();
    assert_eq!(error.to_string(), "line 1: the column `channel` is there twice");
    let error = rows("refund_ref;channel\nR-1;acme\n", FileFormat::Csv).unwrap_err();
    assert_eq!(error.to_string(), "line 1: the cells are separated by `;`; separate them by commas");
    let config = Config::parse(Config::REFERENCE, "r.toml", &|_| None).unwrap();
    for bytes in [&b"\xff\xfer\0e\0f\0\n\0"[..], b"r\0e\0f\0\n\0", b"M\xfcnze,channel\n"] {
        let error = read_csv(bytes, &config, &mut |_: Row| true).unwrap_err();
        assert_eq!(error.to_string(), "line 1: is not UTF-8: save it as CSV UTF-8", "{bytes:?}");
    }
}

#[test]
fn lines_of_json_are_counted_with_the_empty_ones() {
    let one =
        r#"{"refund_ref":"R-1","channel":"acme","payment_ref":"P-1","amount_minor":5,"currency":"EUR"}"#;
    let results = rows(&format!("\n{one}\nnonsense\n"), FileFormat::Ndjson).unwrap();
    assert_eq!(results[0], "2: R-1 5");
    assert!(results[1].starts_with("3: is not JSON"), "{results:?}");
}

#[test]
fn a_field_that_stands_twice_is_refused_and_no_name_in_a_payload_has_a_meaning_of_its_own() {
    let head = r#""refund_ref":"R-1","channel":"acme","payment_ref":"P-1","currency":"EUR""#;
    let twice = format!(r#"{{{head},"amount_minor":5,"amount_minor":500}}"#);
    let name = r#"{"$serde_json::private::RawValue":"{}"}"#;
    let named = format!(r#"{{{head},"amount_minor":5,"payload":{name}}}"#);
    let results = rows(&format!("{twice}\n{named}\n"), FileFormat::Ndjson).unwrap();
    assert!(results[0].starts_with("1: says two things: field `amount_minor` is given twice"), "{results:?}");
    assert_eq!(results[1], "2: R-1 5");
    let cells = format!(
        "refund_ref,channel,payment_ref,amount_minor,currency,payload\n\
         R-1,acme,P-1,5,EUR,\"{}\"\n",
        r#"{"a":1,"a":2}"#.replace('"', "\"\""),
    );
    let results = rows(&cells, FileFormat::Csv).unwrap();
    assert!(results[0].starts_with("2: payload: says two things: field `a` is given twice"), "{results:?}");
}

/// A refund whose payload has this text.
fn with_payload(nth: u32, payload: &str, format: FileFormat) -> String {
    match format {
        FileFormat::Csv => format!("R-{nth},acme,P-{nth},{nth},EUR,\"{}\"\n", payload.replace('"', "\"\"")),
        FileFormat::Ndjson => format!(
            "{{\"refund_ref\":\"R-{nth}\",\"channel\":\"acme\",\"payment_ref\":\"P-{nth}\",\"amount_minor\":{nth},\
             \"currency\":\"EUR\",\"payload\":{payload}}}\n"
        ),
    }
}

const COLUMNS: &str = "refund_ref,channel,payment_ref,amount_minor,currency,payload\n";

#[test]
fn the_largest_payload_fits_into_a_line_also_when_each_character_is_an_escape() {
    let payload = format!("\"{}\"", "\\u0078".repeat(16_382));
    for (format, head) in [(FileFormat::Csv, COLUMNS), (FileFormat::Ndjson, "\n")] {
        let line = with_payload(1, &payload, format);
        assert!(line.len() * 2 < MOST_BYTES, "{}", line.len());
        assert_eq!(rows(&format!("{head}{line}"), format).unwrap(), ["2: R-1 1"], "{format:?}");
    }
}

#[test]
fn a_line_of_json_beyond_the_bound_is_refused_alone() {
    let of = |nth| with_payload(nth, "{}", FileFormat::Ndjson);
    let said = |nth| {
        format!(
            "{nth}: has more than 262144 bytes, and no refund needs as many: write one refund on each line"
        )
    };
    let (fits, long) = (" ".repeat(MOST_BYTES), "x".repeat(MOST_BYTES + 1));
    let text = format!("{}{fits}\n{long}\n{}{long}{long}{long}", of(1), of(2));
    assert_eq!(
        rows(&text, FileFormat::Ndjson).unwrap(),
        ["1: R-1 1".to_owned(), said(3), "4: R-2 2".to_owned(), said(5)]
    );
    let (mut endless, mut line) = (std::io::BufReader::new(std::io::repeat(b'x').take(64 << 20)), Vec::new());
    assert_eq!(next_line(&mut endless, &mut line).unwrap(), Some(false));
    assert!(line.capacity() <= 4 * MOST_BYTES, "{}", line.capacity());
    assert_eq!(next_line(&mut endless, &mut line).unwrap(), None);
}

#[test]
fn a_row_beyond_the_bound_is_refused_with_its_line_and_no_more_of_the_file_is_read() {
    // Empty lines are no part of a row, however many they are.
    let empty = "\n".repeat(MOST_BYTES * 2);
    let (before, line) = (with_payload(1, "{}", FileFormat::Csv), MOST_BYTES * 2 + 3);
    let said = format!(
        "{line}: has more than 262144 bytes, and no refund needs as many: no line after it was read; close each quote, \
         and end each line with a line feed"
    );
    for begin in ["R-2,acme,", "\"R-2,acme,\n\n"] {
        let text = format!("{COLUMNS}{before}{empty}{begin}");
        let most = 64 << 20;
        let mut file = std::io::BufReader::new(text.as_bytes().chain(std::io::repeat(b'x').take(most)));
        let config = Config::parse(Config::REFERENCE, "r.toml", &|_| None).unwrap();
        let mut said_of = Vec::new();
        let mut push = |row: Row| {
            said_of.push(match row.refund {
                Ok(refund) => format!("{}: {}", row.line, refund.refund_ref),
                Err(refused) => format!("{}: {}", row.line, refused.wrong.join("; ")),
            });
            true
        };
        read_csv(&mut file, &config, &mut push).unwrap();
        assert_eq!(said_of, ["2: R-1", &said]);
        assert!(file.get_ref().get_ref().1.limit() > most - 4 * MOST_BYTES as u64);
    }
    let error = rows(&"x".repeat(MOST_BYTES * 2), FileFormat::Csv).unwrap_err().to_string();
    assert!(error.starts_with("line 1: has more than 262144 bytes"), "{error}");
}

/// The import shows them after each commit, so it never holds more of them than its few commits have lines.
#[test]
fn refused_lines_fill_a_chunk_as_refunds_do_however_many_they_are() {
    let (json, csv) = ("nonsense\n".repeat(7), format!("refund_ref\n{}", "\"two\",cells\n".repeat(7)));
    for (text, format) in [(json, FileFormat::Ndjson), (csv, FileFormat::Csv)] {
        let sizes: Vec<usize> = chunks(&text, format).unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2, 2, 1], "{format:?}");
    }
}

#[test]
fn the_name_of_a_file_gives_its_format_or_the_format_must_be_named() {
    assert_eq!(FileFormat::of(Path::new("a.CSV")).unwrap(), FileFormat::Csv);
    assert_eq!(FileFormat::of(Path::new("a.jsonl")).unwrap(), FileFormat::Ndjson);
    assert_eq!(FileFormat::of(Path::new("-")).unwrap(), FileFormat::Csv);
    assert!(FileFormat::of(Path::new("refunds.txt")).unwrap_err().to_string().contains("--format csv"));
}
