//! Whether a loop fails at present: its log shows the first failure and the recovery, and no failure between them.
//!
//! It does not write the log lines. Each loop does, with its own text and target.

/// Whether one loop fails at present. `K` is the kind of failure; a failure of another kind counts as a first one.
#[derive(Debug, Default)]
pub struct Failing<K = ()>(Option<K>);

impl<K: PartialEq> Failing<K> {
    /// Notes a failure; calls `first` unless the last result was a failure of the same kind.
    pub fn failed_by(&mut self, kind: K, first: impl FnOnce()) {
        if self.0.as_ref() != Some(&kind) {
            self.0 = Some(kind);
            first();
        }
    }

    /// Notes a success; calls `recovered` if the last result was a failure.
    pub fn worked(&mut self, recovered: impl FnOnce()) {
        if self.0.take().is_some() {
            recovered();
        }
    }

    /// Whether the last result was a failure of this kind.
    pub fn is_failing_by(&self, kind: K) -> bool {
        self.0 == Some(kind)
    }

    /// Whether the last result was a failure.
    pub fn is_failing(&self) -> bool {
        self.0.is_some()
    }
}

impl Failing {
    /// Notes a failure of a loop that knows one kind only; calls `first` unless the last result was a failure.
    pub fn failed(&mut self, first: impl FnOnce()) {
        self.failed_by((), first);
    }

    /// Notes a result; calls `first` for a first failure and `recovered` for a success after a failure.
    pub fn note<T, E>(&mut self, result: &Result<T, E>, first: impl FnOnce(&E), recovered: impl FnOnce()) {
        match result {
            Ok(_) => self.worked(recovered),
            Err(error) => self.failed(|| first(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_and_the_recovery_are_logged_and_nothing_between() {
        let (mut failing, mut logged) = (Failing::default(), Vec::new());
        for result in [Ok(()), Err("a"), Err("b"), Ok(()), Ok(()), Err("c")] {
            let mut recovered = false;
            failing.note(&result, |error| logged.push(*error), || recovered = true);
            if recovered {
                logged.push("recovered");
            }
            assert_eq!(failing.is_failing(), result.is_err());
        }
        assert_eq!(logged, ["a", "recovered", "c"]);
    }

    #[test]
    fn a_failure_of_another_kind_is_a_first_one() {
        let (mut failing, mut said) = (Failing::default(), Vec::new());
        for kind in ["redis", "redis", "postgres", "redis"] {
            failing.failed_by(kind, || said.push(kind));
        }
        failing.worked(|| said.push("recovered"));
        failing.worked(|| said.push("recovered"));
        assert_eq!(said, ["redis", "postgres", "redis", "recovered"]);
    }
}
