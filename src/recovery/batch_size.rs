//! How many rows one statement takes. It takes fewer after a failure, until it fails at one row alone.

/// The size of the next batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchSize {
    now: u32,
    most: u32,
}

impl BatchSize {
    /// Begins with the largest batch.
    pub fn new(most: u32) -> Self {
        BatchSize { now: most, most }
    }

    /// The most rows that the next statement takes.
    pub fn now(self) -> u32 {
        self.now
    }

    /// Whether the next statement takes one row alone. If it fails, it fails at that row.
    pub fn is_alone(self) -> bool {
        self.now == 1
    }

    /// A statement that found so many `rows` failed: the next one takes half of them.
    pub fn failed(&mut self, rows: u32) {
        self.now = (rows.min(self.now) / 2).max(1);
    }

    /// A statement worked: the next one takes twice as many rows.
    pub fn worked(&mut self) {
        self.now = (self.now * 2).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_halves_the_batch_until_one_row_is_alone() {
        let mut batch = BatchSize::new(10);
        let mut sizes = vec![batch.now()];
        while !batch.is_alone() {
            batch.failed(batch.now());
            sizes.push(batch.now());
        }
        assert_eq!(sizes, [10, 5, 2, 1]);
        batch.failed(1);
        assert_eq!(batch.now(), 1, "a batch has a row");
    }

    #[test]
    fn a_failure_halves_what_was_there_and_not_what_was_asked_for() {
        let mut batch = BatchSize::new(500);
        batch.failed(40);
        assert_eq!(batch.now(), 20);
        batch.failed(500);
        assert_eq!(batch.now(), 10);
        batch.failed(0);
        assert!(batch.is_alone());
    }

    #[test]
    fn each_success_doubles_the_batch_up_to_the_largest_one() {
        let mut batch = BatchSize::new(10);
        batch.failed(5);
        let sizes = [(); 4].map(|()| {
            batch.worked();
            batch.now()
        });
        assert_eq!(sizes, [4, 8, 10, 10]);
    }
}
