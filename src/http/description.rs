//! The description of the interface for programs, in `OpenAPI` 3.1. A test holds it equal to the table of routes.

use axum::Extension;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::guard::PartOfProgram;

const DESCRIPTION: &str = include_str!("openapi.json");

/// `GET /v1/openapi.json`.
pub(super) async fn openapi() -> impl IntoResponse {
    (Extension(PartOfProgram), [(CONTENT_TYPE, "application/json")], DESCRIPTION)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::super::access::{Audience, Needs};
    use super::super::routes;
    use super::DESCRIPTION;

    fn description() -> Value {
        serde_json::from_str(DESCRIPTION).unwrap()
    }

    #[test]
    fn every_route_for_programs_is_described_with_its_scope_and_its_parameters_and_no_other_route_is() {
        let description = description();
        let mut described = BTreeMap::new();
        for (path, operations) in description["paths"].as_object().unwrap() {
            let in_path: BTreeSet<&str> =
                path.split('{').skip(1).map(|rest| rest.split_once('}').unwrap().0).collect();
            for (method, operation) in operations.as_object().unwrap() {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let named: BTreeSet<&str> = parameters
                    .filter(|parameter| parameter["in"] == "path")
                    .map(|parameter| parameter["name"].as_str().unwrap())
                    .collect();
                assert_eq!(named, in_path, "{method} {path}");
                let scope = operation["x-scope"].as_str().map(str::to_owned);
                assert_eq!(scope.is_none(), operation.get("security").is_some(), "{method} {path}");
                described.insert((path.clone(), method.to_uppercase()), scope);
            }
        }
        let table: BTreeMap<_, _> = routes::table()
            .into_iter()
            .filter(|route| route.audience == Audience::Programs)
            .map(|route| {
                let scope = match route.needs {
                    Needs::Nothing => None,
                    Needs::Scope(scope) => Some(scope.as_str().to_owned()),
                };
                ((route.path.to_owned(), route.method.to_string()), scope)
            })
            .collect();
        assert_eq!(described, table);
    }

    #[test]
    fn every_schema_that_is_named_is_there_and_every_one_that_is_there_is_named() {
        let description = description();
        let schemas: BTreeSet<&str> =
            description["components"]["schemas"].as_object().unwrap().keys().map(String::as_str).collect();
        let named: BTreeSet<&str> = DESCRIPTION
            .split("\"#/components/schemas/")
            .skip(1)
            .map(|rest| rest.split_once('"').unwrap().0)
            .collect();
        assert_eq!(named, schemas);
    }

    /// The schemas of all fields with this name, at any depth.
    fn fields<'v>(value: &'v Value, name: &str) -> Vec<&'v Value> {
        let own = value["properties"].get(name);
        let inner: Vec<&Value> = match value {
            Value::Array(all) => all.iter().collect(),
            Value::Object(all) => all.values().collect(),
            _ => Vec::new(),
        };
        own.into_iter().chain(inner.into_iter().flat_map(|one| fields(one, name))).collect()
    }

    #[test]
    fn the_name_of_a_person_is_described_alike_in_every_body_that_has_one() {
        let description = description();
        let all = fields(&description, "by");
        // Names in answers have no bounds.
        let sent: Vec<&Value> = all.into_iter().filter(|by| by.get("maxLength").is_some()).collect();
        assert_eq!(
            sent.len(),
            8,
            "decisions, approvals, withdrawals, cancellations, moves, pauses, two resumes"
        );
        for by in sent {
            assert_eq!((&by["minLength"], &by["maxLength"]), (&1.into(), &100.into()), "{by}");
            assert_eq!(by["not"]["pattern"], ": | and ", "{by}");
        }
    }
}
