use super::*;

const GOOD: &str =
    r#"{"refund_ref":"R-1","channel":"acme","payment_ref":"P","amount_minor":1,"currency":"EUR"}"#;

fn anyone() -> Orders {
    Orders { running: Arc::default(), who: Who::Anyone }
}

#[test]
fn a_bad_item_is_refused_alone_and_keeps_its_place() {
    let bytes = Bytes::from(format!("{GOOD}\n{{oops\n\r\n{}\n{GOOD}", GOOD.replace(":1,", ":0,")));
    let sorted = Sorted::read(&bytes, BodyKind::Ndjson, &anyone()).unwrap();
    assert_eq!(sorted.refunds.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 3]);
    let refused: Vec<_> =
        sorted.results.iter().map(|one| (one.index, one.status, one.refund_ref.as_deref())).collect();
    assert_eq!(refused, [(1, 422, None), (2, 422, Some("R-1"))]);
    assert!(sorted.results[0].errors[0].message.contains("line 1 column 2"), "{:?}", sorted.results[0]);
}

#[test]
fn an_item_larger_than_a_single_post_may_be_is_refused_alone() {
    let large = format!("\"{}\"", "x".repeat(body::MOST_BYTES_ONE));
    let sorted = Sorted::read(&Bytes::from(format!("[{large},{GOOD}]")), BodyKind::Json, &anyone()).unwrap();
    assert_eq!(sorted.refunds[0].0, 1);
    assert!(sorted.results[0].errors[0].message.contains("at most 131072"));
}

#[test]
fn a_refund_with_many_wrong_fields_lists_only_some() {
    let fields: Vec<String> = (0..20).map(|n| format!("\"field{n}\":1,")).collect();
    let fields = fields.concat();
    let bytes = Bytes::from(format!("{{{fields}\"more\":1}}"));
    let sorted = Sorted::read(&bytes, BodyKind::Ndjson, &anyone()).unwrap();
    let errors = &sorted.results[0].errors;
    assert_eq!(errors.len(), MOST_ERRORS);
    assert!(errors[MOST_ERRORS - 1].message.contains("more fields are wrong"), "{errors:?}");
}

#[test]
fn a_result_leaves_out_unknown_fields() {
    let result = ItemResult {
        index: 3,
        refund_ref: None,
        status: 422,
        id: None,
        state: None,
        errors: vec![FieldError::new("refund", None, "is not JSON")],
    };
    assert_eq!(
        serde_json::to_string(&result).unwrap(),
        r#"{"index":3,"refund_ref":null,"status":422,"errors":[{"field":"refund","message":"is not JSON"}]}"#
    );
}
