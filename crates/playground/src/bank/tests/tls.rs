//! The pretend bank over TLS.

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;

/// A bank that speaks TLS, and the settings of a caller that trusts it.
fn secure_bank() -> (PretendBank, Arc<ClientConfig>) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let identity = Identity { certificates: vec![own.cert.der().clone()], key };
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let bank = PretendBank::start_secure(SocketAddr::from(([127, 0, 0, 1], 0)), identity).unwrap();
    (bank, Arc::new(config))
}

fn shake_hands(bank: &PretendBank, config: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream =
        StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), connect(bank));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    stream
}

#[test]
fn over_tls_an_arrival_is_dated_by_the_first_sealed_byte_of_its_request() {
    let (bank, config) = secure_bank();
    let mut stream = shake_hands(&bank, &config);
    // The handshake belongs to no request.
    std::thread::park_timeout(Duration::from_millis(150));
    for refund_ref in ["R-1", "R-2"] {
        let mut sealed = Vec::new();
        stream.conn.writer().write_all(request(refund_ref, refund_ref).as_bytes()).unwrap();
        stream.conn.write_tls(&mut sealed).unwrap();
        let before = now_us();
        stream.sock.write_all(&sealed[..1]).unwrap();
        let after = now_us();
        std::thread::park_timeout(Duration::from_millis(150));
        stream.sock.write_all(&sealed[1..]).unwrap();
        assert!(answer(&mut stream).starts_with("HTTP/1.1 200"));
        let at_us = bank.look(|ledger| ledger.all().last().unwrap().at_us);
        assert!((before..=after).contains(&at_us), "{} after {}", at_us - before, after - before);
    }
}

#[test]
fn a_bank_with_a_certificate_speaks_plainly_with_who_begins_plainly() {
    let (bank, config) = secure_bank();
    assert!(post(&mut connect(&bank), "R-1").starts_with("HTTP/1.1 200"));
    let mut stream = shake_hands(&bank, &config);
    stream.write_all(request("R-2", "key-2").as_bytes()).unwrap();
    answer(&mut stream);
    assert!(bank.endpoint("acme").starts_with("https://127.0.0.1:"));
    let refs: Vec<_> = bank.ledger().all().iter().map(|arrival| arrival.refund_ref.to_string()).collect();
    assert_eq!(refs, ["R-1", "R-2"]);
}

#[test]
fn over_tls_an_answer_is_cut_and_a_connection_reset_as_the_script_says() {
    let (bank, config) = secure_bank();
    let said = |step: Step| {
        bank.next("acme", [step]);
        let mut stream = shake_hands(&bank, &config);
        stream.write_all(request("R-1", "key").as_bytes()).unwrap();
        let mut read = Vec::new();
        let result = stream.read_to_end(&mut read);
        (String::from_utf8_lossy(&read).into_owned(), result.map_err(|error| error.kind()))
    };
    let (cut, end) = said(Step::pays().cut_after(17));
    assert_eq!((cut.as_str(), end), ("HTTP/1.1 200 OK\r\n", Err(ErrorKind::UnexpectedEof)));
    assert_eq!(said(Step::resets().and_pays()), (String::new(), Err(ErrorKind::ConnectionReset)));
    let (hung_up, _) = said(Step::pays().and_hangs_up());
    assert!(hung_up.contains("connection: close") && hung_up.ends_with('}'), "{hung_up}");
}
