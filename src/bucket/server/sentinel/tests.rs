//! Addresses of sentinels, good and bad.

use super::*;

#[test]
fn an_address_of_sentinels_is_taken_apart() {
    let url = "rediss+sentinel://app:p@ss@one,two:5000,[::1]/main/3?sentinel_password=s";
    let parts = parts(url).unwrap().unwrap();
    assert_eq!(parts.scheme, "rediss");
    assert_eq!(parts.login, "app:p@ss@");
    assert_eq!(parts.hosts, ["one:26379", "two:5000", "[::1]:26379"]);
    assert_eq!((parts.master, parts.db), ("main", 3));
    assert_eq!(parts.sentinel_login, ":s@");
    assert!(ServerOrigin::of("redis-sentinel://one/main").unwrap().is_watched());
    assert!(!ServerOrigin::of("redis://one/1").unwrap().is_watched());
}

#[test]
fn a_bad_address_is_refused_by_what_is_wrong_with_it() {
    for (url, why) in [
        ("redis+sentinel://one,two", "must name the master"),
        ("redis+sentinel://one,two/", "must name the master"),
        ("redis+sentinel://one,,two/main", "an empty host"),
        ("redis+sentinel:///main", "an empty host"),
        ("redis+sentinel://one:x/main", "a port that is no number"),
        ("redis+sentinel://one:0/main", "a port that is no number"),
        ("redis+sentinel://[::1/main", "a `[` without its `]`"),
        ("redis+sentinel://one/main/x", "the database as a number"),
        ("redis+sentinel://one/ma in", "other characters"),
        ("redis-sentinel://one/0?sentinelMasterId=main", "may have only the options"),
    ] {
        let trouble = trouble_of(url).unwrap_or_else(|| panic!("{url} was accepted"));
        assert!(trouble.contains(why), "{url}: {trouble}");
    }
    assert_eq!(trouble_of("redis://one"), None);
}
