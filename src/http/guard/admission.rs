//! Which requests are let in: those of programs, of this node's own pages, and of links to a page.
//!
//! A web page in a browser on this machine can reach a loopback address in two ways. It can use a name of its own that
//! points here; then `Host` has that name. Or it can use the address. Then the browser adds `Origin` to what a script or a form
//! sends. It adds none when the page loads this address as an image, a script or a frame: `Sec-Fetch-Site` tells those.
//! Programs do none of that, so all of it is refused. A link that a person follows from elsewhere, such as a chat, is let in.
//!
//! All that is worth nothing if a proxy reads another `Host` or `Origin` than this node, so each of these headers comes once.
//!
//! Somebody on the network path can give a browser pages of this host in clear text. So over TLS the scheme of `Origin`
//! counts, too.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, Version};

use super::super::Problem;
use super::is_over_tls;

/// The headers that say where a request goes and where it comes from.
const ONCE: [&str; 5] = ["host", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"];

/// Lets a request in.
///
/// # Errors
/// When its head says this twice or not at all, or names another host, or when it comes from a web page of another origin.
pub(super) fn admitted(request: &Request, hosts: &[String]) -> Result<(), Problem> {
    if let Some(detail) = head_problem(request) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "broken-head", "Broken head", detail));
    }
    let header = |name| request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let host = header(HOST);
    // A request may also name a host in its target. Both names must belong to this node.
    for name in [host.as_deref(), request.uri().authority().map(Authority::as_str)].into_iter().flatten() {
        if !is_ours(without_port(name), hosts) {
            let detail = "this node answers to localhost, to plain addresses and to the names in [http] hosts, not to the name in `Host`";
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong-host", "Wrong host", detail));
        }
    }
    // Behind a proxy that speaks TLS for this node, the page's scheme is another than ours.
    let is_own = |(scheme, place): (&str, &str)| {
        Some(place) == host.as_deref() && (scheme == "https" || !is_over_tls(request))
    };
    let has_foreign_origin =
        header(ORIGIN).is_some_and(|origin| !origin.split_once("://").is_some_and(is_own));
    let fetch = |what| header(HeaderName::from_static(what));
    // Another port of this host is the same site.
    let is_of_another_page = matches!(fetch("sec-fetch-site").as_deref(), Some("cross-site" | "same-site"));
    let is_followed_link = request.method() == Method::GET
        && fetch("sec-fetch-mode").as_deref() == Some("navigate")
        && fetch("sec-fetch-dest").as_deref() == Some("document");
    if has_foreign_origin || (is_of_another_page && !is_followed_link) {
        let detail = "requests from web pages of another origin are refused";
        return Err(Problem::new(StatusCode::FORBIDDEN, "foreign-origin", "Foreign origin", detail));
    }
    Ok(())
}

/// The fault of a head that two programs could read in two ways; `None` if there is none.
fn head_problem(request: &Request) -> Option<String> {
    let headers = request.headers();
    if let Some(name) = ONCE.into_iter().find(|name| headers.get_all(*name).iter().nth(1).is_some()) {
        return Some(format!("the request has the header `{name}` more than once"));
    }
    // HTTP/1.0 knows no `Host`, and some load balancers ask for the health that way. No browser does.
    let lacks_host = request.version() == Version::HTTP_11 && !headers.contains_key(HOST);
    lacks_host.then(|| "the request has no `Host`, which HTTP/1.1 demands".to_owned())
}

/// Whether a host belongs to this node. Addresses do: a foreign page can make a name of its own point here, but no
/// address. Of the names, `localhost` and the configured ones do.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const HERE: (&str, &str) = ("host", "localhost:8080");

    /// 200 if the request is let in.
    fn answer_to(method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let admitted = admitted(&request.body(Body::empty()).unwrap(), &["node-a".to_owned()]);
        admitted.map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    #[test]
    fn a_name_that_anyone_could_own_is_refused() {
        for ours in
            ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]", "10.0.0.7", "Node-A:1"]
        {
            assert_eq!(answer_to("GET", "/here", &[("host", ours)]), 200, "{ours}");
        }
        for foreign in
            ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""]
        {
            assert_eq!(answer_to("GET", "/here", &[("host", foreign)]), 421, "{foreign}");
        }
        assert_eq!(answer_to("GET", "http://evil.example/here", &[("host", "localhost")]), 421);
    }

    #[test]
    fn a_head_that_two_programs_could_read_in_two_ways_is_refused() {
        for (name, own, foreign) in [
            ("host", "localhost:8080", "evil.example"),
            ("origin", "http://localhost:8080", "https://evil.example"),
            ("sec-fetch-site", "same-origin", "cross-site"),
            ("sec-fetch-mode", "navigate", "no-cors"),
            ("sec-fetch-dest", "document", "image"),
        ] {
            for (first, second) in [(own, foreign), (foreign, own), (own, own)] {
                let mut headers = vec![(name, first), (name, second)];
                if name != "host" {
                    headers.push(HERE);
                }
                assert_eq!(answer_to("GET", "/here", &headers), 400, "{headers:?}");
            }
        }
        assert_eq!(answer_to("GET", "/here", &[]), 400);
        assert_eq!(answer_to("GET", "http://localhost/here", &[]), 400);
    }

    #[test]
    fn a_load_balancer_may_ask_by_http_1_0_without_a_host_and_a_web_page_may_not() {
        let answer_to = |target: &str, origin: Option<&str>| {
            let mut request = Request::builder().version(Version::HTTP_10).uri(target);
            if let Some(origin) = origin {
                request = request.header(ORIGIN, origin);
            }
            let admitted = admitted(&request.body(Body::empty()).unwrap(), &[]);
            admitted.map_or_else(|problem| problem.status().as_u16(), |()| 200)
        };
        assert_eq!(answer_to("/health/live", None), 200);
        assert_eq!(answer_to("/health/live", Some("http://localhost")), 403);
        assert_eq!(answer_to("http://evil.example/health/live", None), 421);
    }

    #[test]
    fn a_web_page_of_another_origin_is_refused() {
        for foreign in ["https://evil.example", "null", "http://localhost:3000"] {
            assert_eq!(answer_to("GET", "/here", &[HERE, ("origin", foreign)]), 403, "{foreign}");
        }
        assert_eq!(answer_to("GET", "/here", &[HERE, ("origin", "http://localhost:8080")]), 200);
    }

    #[test]
    fn what_a_foreign_page_loads_is_refused_and_a_link_to_a_page_is_not() {
        for (method, site, mode, kind, answer) in [
            ("GET", "cross-site", "no-cors", "image", 403),
            ("GET", "same-site", "no-cors", "script", 403),
            ("GET", "cross-site", "navigate", "iframe", 403),
            ("GET", "cross-site", "no-cors", "document", 403),
            ("POST", "cross-site", "navigate", "document", 403),
            ("GET", "cross-site", "navigate", "document", 200),
            ("GET", "same-site", "navigate", "document", 200),
            ("GET", "same-origin", "cors", "empty", 200),
            ("POST", "same-origin", "navigate", "document", 200),
            ("GET", "none", "navigate", "document", 200),
        ] {
            let fetch = [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", kind)];
            let [of_site, of_mode, of_kind] = fetch;
            let headers = [HERE, of_site, of_mode, of_kind];
            assert_eq!(answer_to(method, "/here", &headers), answer, "{method} {fetch:?}");
        }
        // A browser that says no more than the site.
        assert_eq!(answer_to("GET", "/here", &[HERE, ("sec-fetch-site", "cross-site")]), 403);
        let link_with_foreign_origin = [
            HERE,
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert_eq!(answer_to("GET", "/here", &link_with_foreign_origin), 403);
    }

    #[test]
    fn a_proxy_may_speak_tls_for_a_node_that_does_not() {
        assert_eq!(answer_to("GET", "/here", &[("host", "node-a"), ("origin", "https://node-a")]), 200);
    }
}
