mod readable;

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

fn good() -> Value {
    json!({"refund_ref": "R-1", "channel": "acme", "payment_ref": "P-1", "amount_minor": 1250, "currency": "EUR"})
}

fn with(field: &str, value: Value) -> Value {
    let mut draft = good();
    draft[field] = value;
    draft
}

fn check(draft: &Value) -> Result<NewRefund, Vec<FieldError>> {
    Draft::check(draft, &|_| DraftRules::default())
}

fn refused(draft: &Value) -> Vec<FieldError> {
    check(draft).expect_err(&draft.to_string())
}

#[test]
fn a_refund_with_the_five_fields_it_needs_passes() {
    let refund = check(&good()).unwrap();
    assert_eq!((refund.refund_ref.as_str(), refund.channel.as_str()), ("R-1", "acme"));
    assert_eq!((refund.money.amount_minor, refund.money.currency.as_str()), (1250, "EUR"));
    assert_eq!((refund.payload, refund.due_at, refund.deadline_at), (None, None, None));
}

#[test]
fn null_is_the_same_as_leaving_an_optional_field_out() {
    let mut draft = good();
    for field in ["payload", "due_at", "deadline_at"] {
        draft[field] = Value::Null;
    }
    assert_eq!(check(&draft), check(&good()));
}

#[test]
fn every_wrong_field_is_named_at_once_and_in_order() {
    let draft = json!({
        "amount_minor": "1250", "refund_ref": "", "channel": "ACME", "currency": "eur",
        "payload": "\0", "due_at": "soon", "deadline_at": 7, "amount": 3,
    });
    let fields: Vec<String> = refused(&draft).into_iter().map(|error| error.field).collect();
    assert_eq!(fields[..8], FIELDS.map(str::to_owned));
    assert_eq!(fields[8..], ["amount"]);
}

#[test]
fn an_empty_object_misses_exactly_the_five_needed_fields() {
    let errors = refused(&json!({}));
    assert_eq!(errors.len(), 5);
    assert!(errors.iter().all(|e| e.message.starts_with("is missing; ") && e.value.is_none()), "{errors:?}");
}

#[test]
fn an_amount_that_is_no_whole_positive_number_is_refused_with_the_reason() {
    for (value, words) in [
        (json!("1250"), "write the number without quotes: 1250"),
        (json!("12,50"), "is no number; it must be a whole number"),
        (json!("12.50"), "has a fraction or an exponent; it must be a whole number of minor units"),
        (json!("99999999999999999999"), "is larger than any amount can be"),
        (json!("inf"), "is no number"),
        (json!(12.5), "12.50 EUR is 1250"),
        (json!(1e3), "a fraction or an exponent"),
        (json!(u64::MAX), "is larger than any amount can be"),
        (json!(1e30), "is larger than any amount can be"),
        (json!(0), "from 1 to"),
        (json!(-5), "from 1 to"),
        (json!(i64::MIN), "from 1 to"),
        (json!(true), "is a boolean"),
        (json!(null), "is missing"),
    ] {
        let errors = refused(&with("amount_minor", value.clone()));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].message.contains(words), "{value}: {}", errors[0].message);
    }
    assert_eq!(check(&with("amount_minor", json!(i64::MAX))).unwrap().money.amount_minor, i64::MAX);
}

#[test]
fn the_example_of_minor_units_is_in_the_drafts_own_currency_where_it_is_one() {
    for (currency, example) in [
        (json!("JPY"), "(1,250 JPY is 1250)"),
        (json!("KWD"), "(1.250 KWD is 1250)"),
        (json!("eur"), "(12.50 EUR is 1250)"),
        (json!(null), "(12.50 EUR is 1250)"),
    ] {
        for amount in [json!(12.5), json!("12.5")] {
            let mut draft = with("amount_minor", amount);
            draft["currency"] = currency.clone();
            let errors = refused(&draft);
            assert!(errors[0].message.ends_with(example), "{currency}: {errors:?}");
        }
    }
}

#[test]
fn a_ref_counts_characters_not_bytes() {
    for field in ["refund_ref", "payment_ref"] {
        assert!(check(&with(field, "ä".repeat(200).into())).is_ok());
        assert!(refused(&with(field, "ä".repeat(201).into()))[0].message.contains("has 201 characters"));
        for control in ["a\nb", "\u{7f}", "\u{85}", "\0"] {
            assert!(refused(&with(field, control.into()))[0].message.contains("control character"));
        }
    }
}

#[test]
fn a_currency_is_a_real_one_in_capitals() {
    for good in ["EUR", "JPY", "KWD"] {
        assert!(check(&with("currency", good.into())).is_ok(), "{good}");
    }
    for (bad, words) in [
        ("eur", "write `EUR`"),
        ("XYZ", "is not a currency"),
        ("XXX", "no currency at all"),
        ("€", "is not a currency"),
    ] {
        let errors = refused(&with("currency", bad.into()));
        assert!(errors[0].message.contains(words), "{bad}: {errors:?}");
    }
}

#[test]
fn a_deadline_comes_after_the_due_time() {
    let mut draft = with("due_at", "2030-01-31T12:00:00Z".into());
    draft["deadline_at"] = "2030-01-31T13:00:00+01:00".into();
    assert_eq!(refused(&draft)[0].message, "must be after due_at, which is 2030-01-31T12:00:00Z");
    draft["deadline_at"] = "2030-01-31T12:00:01Z".into();
    assert!(check(&draft).is_ok());
}

#[test]
fn an_unknown_field_is_refused_with_the_nearest_name() {
    for (name, words) in [
        ("amountMinor", "did you mean `amount_minor`?"),
        ("refund-ref", "did you mean `refund_ref`?"),
        ("curency", "did you mean `currency`?"),
        ("state", "is refundd's own"),
        ("colour", "the fields are refund_ref, channel"),
    ] {
        let errors = refused(&with(name, json!(1)));
        assert_eq!((errors.len(), errors[0].field.as_str()), (1, name));
        assert!(errors[0].message.contains(words), "{name}: {}", errors[0].message);
    }
}

#[test]
fn a_flood_of_unknown_fields_is_counted_not_listed() {
    let mut fields = Map::new();
    for n in 0..1000 {
        fields.insert(format!("x{n}"), Value::Null);
    }
    let errors = refused(&Value::Object(fields));
    assert_eq!(errors.len(), 5 + UNKNOWN_FIELDS_LISTED + 1);
    assert_eq!(errors.last().unwrap().message, "980 more fields are unknown");
}

#[test]
fn what_was_given_is_shown_shortened() {
    let errors = refused(&with("refund_ref", "x".repeat(5000).into()));
    assert_eq!(errors[0].value.as_deref(), Some(format!("\"{}…\"", "x".repeat(60)).as_str()));
}

#[test]
fn a_card_number_is_refused_by_its_field_and_never_shown() {
    let only_acme = |channel: &ChannelName| DraftRules {
        accepts_card_numbers: channel.as_str() == "acme",
        ..DraftRules::default()
    };
    for (field, value) in [
        ("refund_ref", json!("R-4111111111111111")),
        ("payment_ref", json!("4111 1111 1111 1111")),
        ("payload", json!({ "note": [{ "card": "4111-1111-1111-1111" }] })),
        ("payload", json!({ "card": 4_111_111_111_111_111_u64 })),
    ] {
        let draft = with(field, value);
        let errors = refused(&draft);
        assert_eq!((errors.len(), errors[0].field.as_str()), (1, field));
        assert!(errors[0].message.contains("card number"), "{errors:?}");
        assert_eq!(errors[0].value, None);
        assert!(Draft::check(&draft, &only_acme).is_ok(), "a channel may accept it");
        assert!(Draft::check(&draft, &|_| DraftRules::default()).is_err());
    }
    for field in FIELDS.into_iter().chain(["4111111111111111"]) {
        for value in
            [json!("4111111111111111"), json!(4_111_111_111_111_111_u64), json!(["x", "4111 1111 1111 1111"])]
        {
            let shown = serde_json::to_string(&check(&with(field, value)).err()).unwrap();
            let shown = shown.replace(['-', ' '], "");
            assert!(!shown.contains("4111111111111111"), "{shown}");
        }
    }
}

#[test]
fn anything_but_an_object_is_no_refund() {
    for (value, words) in [(json!([1]), "an array"), (json!(null), "null"), (json!("x"), "a string")] {
        let errors = refused(&value);
        assert_eq!((errors.len(), errors[0].field.as_str()), (1, "refund"));
        assert!(errors[0].message.ends_with(words), "{errors:?}");
    }
}

#[test]
fn an_amount_above_the_channels_bound_or_of_a_currency_without_one_is_refused() {
    let bounds = AmountBounds(std::sync::Arc::new([("EUR".to_owned(), 1250)].into()));
    let rules = |_: &ChannelName| DraftRules { amount_bounds: bounds.clone(), ..DraftRules::default() };
    assert!(Draft::check(&good(), &rules).is_ok());
    for (draft, why) in [
        (
            with("amount_minor", json!(1251)),
            "is more than the `max_amount_minor` of the channel, which is 1250 for EUR",
        ),
        (
            with("currency", json!("USD")),
            "has no bound: the `max_amount_minor` of the channel names EUR, and not USD",
        ),
    ] {
        let errors = Draft::check(&draft, &rules).unwrap_err();
        assert_eq!(
            (errors.len(), errors[0].field.as_str(), errors[0].message.as_str()),
            (1, "amount_minor", why)
        );
    }
}

#[test]
fn the_error_for_a_channel_nobody_runs_names_the_nearest_one() {
    let error = no_such_channel("acne", ["acme", "globex"]);
    assert_eq!(error.message, "no node runs this channel; did you mean `acme`?");
    assert_eq!(no_such_channel("zzz", ["acme"]).message, "no node runs this channel");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[A-Z]{3}".prop_map(Value::from),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,10})?(Z|[+-][0-9]{2}:[0-9]{2})?"
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_makes_the_check_panic(value in any_json()) {
        let _ = check(&value);
    }

    #[test]
    fn no_json_in_a_known_field_makes_the_check_panic(
        changes in prop::collection::vec((0..FIELDS.len(), any_json()), 1..8),
    ) {
        let mut draft = good();
        for (field, value) in changes {
            draft[FIELDS[field]] = value;
        }
        match check(&draft) {
            Ok(refund) => {
                prop_assert!(refund.money.amount_minor > 0);
                prop_assert!((1..=200).contains(&refund.refund_ref.chars().count()));
                prop_assert!(!refund.payment_ref.chars().any(text::is_hidden));
                prop_assert!(refund.payload.is_none_or(|p| payload::problem(&serde_json::from_str(p.as_str()).unwrap()).is_none()));
            }
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
    }
}
