//! The first failure of a round of recovery. A part that fails does not keep the other parts from their work.

use crate::node::restoring::ServerError;

/// The first failure so far.
#[derive(Debug, Default)]
pub(super) struct FirstFailure(Option<ServerError>);

impl FirstFailure {
    /// Takes the result of one part; `None` if it failed.
    ///
    /// # Errors
    /// When Postgres is away. Each further part would only wait for it.
    pub fn go_on<T, E: Into<ServerError>>(&mut self, done: Result<T, E>) -> Result<Option<T>, ServerError> {
        let error: ServerError = match done {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error.into(),
        };
        if error.is_postgres_away() {
            return Err(error);
        }
        self.0.get_or_insert(error);
        Ok(None)
    }

    /// The result of the round.
    pub fn or<T>(self, value: T) -> Result<T, ServerError> {
        self.0.map_or(Ok(value), Err)
    }
}
