//! Whether a loop fails at present: its log shows the first failure and the recovery, and no failure between them.
//!
//! The lines stand in the loops, so that each has its own words and its own target.

/// The state of one loop. `K` tells kinds of failures apart; a failure of another kind is a first one again.
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

    /// Whether the last result was a failure.
    pub fn is_failing(&self) -> bool {
        self.0.is_some()
    }
}

impl Failing {
    /// The same for failures of one kind.
    pub fn failed(&mut self, first: impl FnOnce()) {
        self.failed_by((), first);
    }

    /// Notes a result.
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
    fn the_first_failure_and_the_recovery_are_said_and_nothing_between() {
        let (mut failing, mut said) = (Failing::default(), Vec::new());
        for result in [Ok(()), Err("a"), Err("b"), Ok(()), Ok(()), Err("c")] {
            let mut recovered = false;
            failing.note(&result, |error| said.push(*error), || recovered = true);
            if recovered {
                said.push("recovered");
            }
            assert_eq!(failing.is_failing(), result.is_err());
        }
        assert_eq!(said, ["a", "recovered", "c"]);
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
