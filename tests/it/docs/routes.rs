//! The table of routes in docs/http.md.

use std::collections::BTreeSet;
use std::path::Path;

use refundd::http::access::Audience;
use refundd::http::routes::Route;

use super::ROOT;

#[test]
fn the_table_of_routes_in_the_docs_has_exactly_the_routes_of_a_node() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/http.md")).unwrap();
    let table = page.split("| route | what it does |").nth(1).unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.is_empty() || line.starts_with('|'));
    let cells: Vec<&str> =
        rows.filter_map(|row| row.split('|').nth(1)).filter(|cell| !cell.starts_with("---")).collect();
    let mut documented = BTreeSet::new();
    for cell in cells {
        // A second path without a method has the method of the first.
        let names = cell.split('`').skip(1).step_by(2).flat_map(|span| span.split(", "));
        let mut method = "";
        for name in names {
            let path = match name.split_once(' ') {
                Some((named, path)) => {
                    method = named;
                    path
                }
                None => name,
            };
            documented.insert(format!("{method} {path}"));
        }
    }
    let routes = refundd::http::routes::table();
    // The pages for people begin at `/` and link each other.
    let for_programs = |route: &&Route| route.audience == Audience::Programs || route.path == "/";
    let served: BTreeSet<String> =
        routes.iter().filter(for_programs).map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(documented, served);
}
