//! Tests of the worker's notices to Redis, of takes that came too late or meet a lost count, of the lead time of inquiries, of an attempt
//! after a sleep, and of the slots of outcomes that wait.

mod stricter;

use tokio::sync::mpsc;

use super::attempt::{Attempt, ClaimTimes};
use super::blocked::Obstacle;
use super::*;
use crate::bank::{Reserved, SendDeadline, Slept};
use crate::bucket::{Bucket, End, Order, ServerTrust};
use crate::channel::Inquiry;
use crate::config::Config;
use crate::limiter::{Algorithm, Span, Supply};
use crate::metrics::Metrics;
use crate::node::ShareLook;
use crate::refund::inquiry::LeasedInquiry;
use crate::refund::{ExpectedEcho, Leased, RequestId, State};
use crate::store::{Settled, Store};

/// What a worker needs of a channel with a paced limit and an inquiry.
fn node_and_bank(bucket: Bucket, placement: &str) -> (Node, Arc<Channel>, Arc<Bank>) {
    let tables = format!(
        "[limit.acme]\nalgorithm = \"paced\"\npermits = 1\nper = \"1s\"\n{placement}\n\
         [channel.acme]\nendpoint = \"http://localhost/\"\nlimits = [\"acme\"]\n\
         timeout = \"1s\"\nconnect_timeout = \"1s\"\non_unknown = \"inquire\"\n\
         inquiry = {{ url = \"http://localhost/{{request_id}}\", not_found_is_final = true, grace = \"30s\" }}\n"
    );
    node_and_bank_of(bucket, &tables)
}

/// What a worker needs of the channel in these tables.
fn node_and_bank_of(bucket: Bucket, tables: &str) -> (Node, Arc<Channel>, Arc<Bank>) {
    let config = Config::of_tables(tables);
    let channel = Arc::clone(config.channels.values().next().unwrap());
    // No server listens at this address.
    let store = Store::open("postgres://refundd@127.0.0.1:9/refundd", None, 1).unwrap();
    let node = Node::new("a", store, bucket, Arc::new(Metrics::new()));
    let bank = Arc::new(Bank::new(&channel).unwrap());
    (node, channel, bank)
}

/// The worker for sends, and the settler's end of its outcomes.
fn worker(bucket: Bucket, placement: &str) -> (ChannelWorker<Sends>, mpsc::Receiver<Settled>) {
    let (node, channel, bank) = node_and_bank(bucket, placement);
    let (outbox, inbox) = mpsc::channel(1);
    let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
    (ChannelWorker::sends(node, wake_ups, channel, bank, outbox, stop), inbox)
}

/// An attempt of this worker under a claim of this moment.
fn attempt_of<W>(worker: &ChannelWorker<W>) -> Attempt {
    let claimed = Instant::now();
    Attempt {
        node: worker.node.clone(),
        channel: Arc::clone(&worker.channel),
        bank: Arc::clone(&worker.bank),
        stop: worker.stop.clone(),
        permit: Permit { numbers: Vec::new(), span: None },
        claim_times: ClaimTimes { claiming: claimed, slept: Slept::now(), claimed },
        connecting: Duration::ZERO,
        send_deadline: claimed + Duration::from_mins(1),
        probe: None,
    }
}

fn expected(id: i64) -> ExpectedEcho {
    ExpectedEcho { refund_id: RefundId(id), ..ExpectedEcho::sample() }
}

/// Lets each task go on until it waits.
async fn turns() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_departure_is_kept_until_redis_has_received_it() {
    // No server listens at this address.
    let bucket =
        Bucket::open("redis://127.0.0.1:9", ServerTrust::default(), "refundd", Duration::from_secs(1))
            .unwrap();
    let (mut worker, _inbox) = worker(bucket, "");
    let channel = Arc::clone(&worker.channel);
    worker.notices.departed = true;
    let resources = || Resources { slots: Vec::new(), connections: Vec::new() };
    for _ in 0..2 {
        assert!(matches!(worker.round(&channel, resources()).await, Err(Obstacle::Redis(_))));
        assert!(worker.notices.departed, "Redis has not freed what the departed node had reserved");
    }
}

#[tokio::test]
async fn what_is_taken_too_long_after_the_look_at_a_share_goes_back_into_the_bucket() {
    let bucket = Bucket::in_memory(Duration::from_secs(5)).unwrap();
    let (mut worker, _inbox) = worker(bucket.clone(), "placement = \"local_share\"\nnodes = 1");
    let channel = Arc::clone(&worker.channel);
    worker.node.shares.keep(&channel.limits[0], 1, ShareLook::now());
    assert!(worker.effective_limits.now().is_some() && !worker.effective_limits.are_too_old());
    worker.effective_limits.look_before_a_sleep();
    assert!(worker.effective_limits.are_too_old());

    let id = RefundId(7);
    bucket.fill(&channel.name, &[id], End::Back, 100).await.unwrap();
    let (ids, _) = bucket.more(&channel.name, 1).await.unwrap();
    assert_eq!(ids, [id]);
    worker.give_back(&[(id, Permit { numbers: Vec::new(), span: None })]).await;
    assert!(worker.notices.wasted, "long windows get these permits back");
    assert_eq!(bucket.more(&channel.name, 1).await.unwrap().0, [id]);
}

#[tokio::test]
async fn an_inquiry_that_is_taken_too_long_after_the_look_goes_back_into_its_own_bucket() {
    let bucket = Bucket::in_memory(Duration::from_secs(5)).unwrap();
    let (node, channel, bank) = node_and_bank(bucket.clone(), "placement = \"local_share\"\nnodes = 1");
    let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
    let mut worker = ChannelWorker::inquiries(node, wake_ups, Arc::clone(&channel), bank, stop).unwrap();
    worker.give_back(&[(RefundId(7), Permit { numbers: Vec::new(), span: None })]).await;
    let head = async |purpose| {
        let depths = bucket.survey(purpose, std::slice::from_ref(&channel.name)).await;
        depths[0].as_ref().unwrap().head
    };
    assert_eq!(head(Purpose::Inquire).await, Some(RefundId(7)));
    assert_eq!(head(Purpose::Send).await, None);
}

#[tokio::test]
async fn inquiries_ask_as_early_as_their_claims_need_unless_sends_could_take_all_permits_of_a_moment() {
    let (node, paced, bank) = node_and_bank(Bucket::in_memory(Duration::from_secs(5)).unwrap(), "");
    for algorithm in Algorithm::all(1, 10) {
        let mut limit = paced.limits[0].as_ref().clone();
        limit.rule.algorithm = algorithm;
        let comes_at_once = limit.rule.algorithm.supply() == Supply::Together;
        let channel = Arc::new(Channel { limits: vec![Arc::new(limit)], ..paced.as_ref().clone() });
        let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
        let worker =
            ChannelWorker::inquiries(node.clone(), wake_ups, channel, Arc::clone(&bank), stop).unwrap();
        for _ in 0..20 {
            worker.work.note_claim(&node, Duration::from_millis(3));
        }
        let is_longest = worker.work.lead_time() == Bucket::LONGEST_LEAD_TIME;
        assert_eq!(is_longest, comes_at_once, "{:?}: {:?}", worker.channel.limits, worker.work.lead_time());
        assert!(is_longest || worker.work.lead_time() < Duration::from_millis(10));
    }
}

#[tokio::test]
async fn inquiries_ask_no_later_than_sends_of_this_node_under_the_same_limits() {
    let (node, channel, bank) = node_and_bank(Bucket::in_memory(Duration::from_secs(5)).unwrap(), "");
    let inquiries = |channel: Arc<Channel>| {
        let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
        let worker =
            ChannelWorker::inquiries(node.clone(), wake_ups, channel, Arc::clone(&bank), stop).unwrap();
        for _ in 0..20 {
            worker.work.note_claim(&node, Duration::from_millis(3));
        }
        worker
    };
    let shared = inquiries(Arc::clone(&channel));
    let mut own = channel.as_ref().clone();
    let inquiry = own.inquiry.as_ref().unwrap().as_ref().clone();
    own.inquiry = Some(Arc::new(Inquiry { limits: Some(channel.limits.clone()), ..inquiry }));
    let own = inquiries(Arc::new(own));
    assert!(shared.work.lead_time() < Duration::from_millis(10), "no send was claimed yet");

    let (outbox, _inbox) = mpsc::channel(1);
    let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
    let sends = ChannelWorker::sends(node.clone(), wake_ups, channel, Arc::clone(&bank), outbox, stop);
    sends.work.note_claim(&node, Duration::from_millis(30));
    assert!(sends.work.lead_time() > Duration::from_millis(30));
    assert_eq!(shared.work.lead_time(), sends.work.lead_time());
    assert!(own.work.lead_time() < Duration::from_millis(10), "limits of their own");
}

#[tokio::test]
async fn a_reply_that_says_nothing_of_rules_leaves_the_bound_of_a_take_as_it_is() {
    let bucket = Bucket::in_memory(Duration::from_secs(5)).unwrap();
    let (mut worker, _inbox) = worker(bucket.clone(), "");
    let channel = Arc::clone(&worker.channel);
    bucket.fill(&channel.name, &[RefundId(7)], End::Back, 100).await.unwrap();
    worker.most_wanted = 20;
    let next = loop {
        // The count is lost. This call is told to restore it, and for 0.3 s the worker is told to wait for that.
        let order = Order { want: 1, low_water: 0, lead_time: Duration::ZERO, until: None };
        let _told = bucket.take(&channel, order).await.unwrap();
        let resources = Resources { slots: Vec::new(), connections: Vec::new() };
        if let Ok(next) = worker.round(&channel, resources).await {
            break next;
        }
    };
    assert!(matches!(next, Next::Grant(_)), "{next:?}");
    assert_eq!((worker.depth, worker.most_wanted), (None, 20));
}

#[tokio::test]
async fn an_attempt_whose_claim_lies_before_a_sleep_of_the_machine_sends_nothing() {
    let (node, channel, bank) = node_and_bank(Bucket::in_memory(Duration::from_secs(5)).unwrap(), "");
    let claimed = Instant::now();
    let in_a_minute = claimed + Duration::from_mins(1);
    let open = Span { opens_us: 0, closes_us: 0, opens: claimed, closes: in_a_minute };
    for span in [None, Some(open)] {
        for (slept, is_over) in [(Slept::now(), false), (Slept::a_second_ago(), true)] {
            let attempt = Attempt {
                node: node.clone(),
                channel: Arc::clone(&channel),
                bank: Arc::clone(&bank),
                stop: CancellationToken::new(),
                permit: Permit { numbers: Vec::new(), span },
                claim_times: ClaimTimes { claiming: claimed, slept, claimed },
                connecting: Duration::ZERO,
                send_deadline: in_a_minute,
                probe: None,
            };
            let request =
                async |deadline: SendDeadline, _: Option<Reserved>| deadline.is_over(Instant::now());
            assert_eq!(attempt.make(None, request).await, Some(is_over), "{span:?}");
        }
    }
}

#[tokio::test]
async fn a_request_begins_neither_after_its_permit_nor_after_its_lease_whichever_is_first() {
    let (worker, _inbox) = worker(Bucket::in_memory(Duration::from_secs(5)).unwrap(), "");
    let now = Instant::now();
    let later = now + Duration::from_mins(1);
    for (closes, send_deadline, is_over) in
        [(Some(later), now, true), (Some(now), later, true), (None, now, true), (Some(later), later, false)]
    {
        let span = closes.map(|closes| Span { opens_us: 0, closes_us: 0, opens: now, closes });
        let permit = Permit { numbers: Vec::new(), span };
        let attempt = Attempt { permit, send_deadline, ..attempt_of(&worker) };
        let request = async |deadline: SendDeadline, _: Option<Reserved>| deadline.is_over(Instant::now());
        assert_eq!(attempt.make(None, request).await, Some(is_over), "{closes:?}, {send_deadline:?}");
    }
}

#[tokio::test]
async fn a_send_keeps_its_slot_until_the_settler_has_room_for_its_outcome() {
    let (worker, mut inbox) = worker(Bucket::in_memory(Duration::from_secs(5)).unwrap(), "");
    let most = worker.slots.free();
    // A worker that ends: no request begins, and each outcome comes at once.
    worker.stop.cancel();
    for id in 1..=3 {
        let leased = Leased {
            id: RefundId(id),
            epoch: 1,
            holder: "a".into(),
            attempt: 1,
            request_id: RequestId(uuid::Uuid::nil()),
            is_resend: false,
            is_first: true,
            expected: expected(id),
            body: Arc::from(Vec::new()),
            traceparent: None,
        };
        worker.work.start(attempt_of(&worker), leased, worker.slots.take(1).pop(), None);
    }
    turns().await;
    assert_eq!((worker.slots.free(), inbox.len()), (most - 2, 1), "the inbox has room for one outcome");
    for free in [most - 1, most, most] {
        assert!(inbox.recv().await.is_some());
        turns().await;
        assert_eq!(worker.slots.free(), free);
    }
}

#[tokio::test]
async fn outcomes_of_256_inquiries_wait_without_a_slot_and_each_further_one_keeps_its_slot() {
    let (node, channel, bank) = node_and_bank(Bucket::in_memory(Duration::from_secs(5)).unwrap(), "");
    let (wake_ups, stop) = (WakeUps::of_sends(100), CancellationToken::new());
    // A worker that ends: no request begins, and each outcome comes at once. Postgres takes none.
    stop.cancel();
    let worker = ChannelWorker::inquiries(node, wake_ups, channel, bank, stop).unwrap();
    let slots = worker.node.slots.of(&worker.channel.name, Purpose::Inquire, 300);
    for (id, slot) in (1..).zip(slots.take(258)) {
        let leased = LeasedInquiry {
            id: RefundId(id),
            state: State::Unknown,
            epoch: 1,
            number: 1,
            uncertain_at_us: None,
            attempts: 1,
            request_id: RequestId(uuid::Uuid::nil()),
            expected: expected(id),
            age: Duration::ZERO,
            uncertain_for: None,
        };
        worker.work.start(attempt_of(&worker), leased, Some(slot), None);
    }
    assert_eq!(slots.free(), 300 - 258, "all have a slot");
    turns().await;
    assert_eq!(slots.free(), 300 - 2);
}
