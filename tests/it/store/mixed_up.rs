//! Answers that cannot be about the refund in the request: Rust and the functions of the database name the same ones.

use refundd::refund::{Code, Outcome, RefundId};

use super::{claim, limited_scratch_with, settlement_of, unlimited};

const CODES: &[Code] = &[
    Code::Succeeded,
    Code::Accepted,
    Code::Pending,
    Code::Rejected,
    Code::NotFound,
    Code::SlowDown,
    Code::Unauthorised,
    Code::TokenRefused,
    Code::TokenFailed,
    Code::ChannelRule,
    Code::BankTrouble,
    Code::Redirect,
    Code::Unmapped,
    Code::Unreadable,
    Code::EmptyUnframed,
    Code::NoBankRef,
    Code::NoJson,
    Code::NotJson,
    Code::Other404,
    Code::StoredAnswer,
    Code::NoStatus,
    Code::EchoDiffers,
    Code::BankRefDiffers,
    Code::BankRefTaken,
    Code::Timeout,
    Code::AnswerLost,
    Code::AnswerCut,
    Code::WriteTimeout,
    Code::PermitLapsed,
    Code::Stopping,
    Code::NoKey,
    Code::NoInquiry,
    Code::NoAddress,
    Code::ConnectionLost,
    Code::ConnectionsUsedUp,
    Code::DnsFailed,
    Code::AddressRefused,
    Code::ConnectFailed,
    Code::TlsFailed,
    Code::HttpFailed,
    Code::ConnectTimeout,
    Code::ConnectClosed,
];

#[tokio::test]
async fn rust_and_the_database_call_the_same_answers_mixed_up() {
    let in_rust = include_str!("../../../src/refund/code.rs").matches(" => \"").count();
    assert_eq!(CODES.len(), in_rust, "a new code belongs into the list above, too");
    let mixed_up: Vec<Code> = CODES.iter().copied().filter(|code| code.is_mixed_up()).collect();
    assert_eq!(mixed_up, [Code::EchoDiffers, Code::BankRefDiffers, Code::BankRefTaken]);

    let count = u32::try_from(CODES.len()).unwrap();
    let scratch = limited_scratch_with(count).await;
    let taken: Vec<_> = (1..=i64::from(count)).map(unlimited).collect();
    let claimed = claim(&scratch, "a", &taken).await;
    assert_eq!(claimed.leased.len(), CODES.len());
    scratch.release("true", "state = 'unknown', inquire_at = now() + interval '1 hour'").await;
    let code_of = |id: RefundId| CODES[usize::try_from(id.0 - 1).unwrap()];
    let late: Vec<_> = claimed
        .leased
        .iter()
        .map(|lease| {
            let mut one = settlement_of(lease, Outcome::Review);
            one.answer.code = code_of(lease.id);
            one
        })
        .collect();
    assert!(scratch.store.settle("a", &late, false).await.unwrap().moved.is_empty());
    let named: Vec<&str> = mixed_up.iter().map(|code| code.as_str()).collect();
    let codes_where = async |condition: &str| {
        let codes = format!(
            "select coalesce(string_agg(a.code, ' ' order by a.refund_id), '') from refundd.refunds r
               join refundd.attempts a on a.refund_id = r.id and a.kind = 'send' where {condition}"
        );
        scratch.text(&codes).await
    };
    assert_eq!(codes_where("r.state = 'review'").await, named.join(" "));
    assert_eq!(codes_where("refundd.was_said_paid(r.id, true)").await, named.join(" "));
    assert_eq!(codes_where("r.state = 'unknown'").await.split(' ').count(), CODES.len() - named.len());
}
