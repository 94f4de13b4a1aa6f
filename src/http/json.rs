//! An answer in JSON whose text commands no terminal: hidden characters are escaped, and mean the same to programs.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Problem;
use crate::refund::text;

#[derive(Debug)]
pub(super) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(json) => {
                let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
                ([kind], text::shown_json(json)).into_response()
            }
            Err(_) => Problem::internal().into_response(),
        }
    }
}
