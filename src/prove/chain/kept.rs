//! Which months of the journal were dropped, and what that says of their lines.

/// A note that refundd dropped a month of the journal. Times are in us since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedMonth {
    /// `None` if nothing before the end was left.
    pub begins_us: Option<i64>,
    pub ends_us: i64,
    pub dropped_us: i64,
    /// How long the journal was kept then.
    pub kept_us: i64,
    /// Nobody noted when it was dropped: `dropped_us` is later.
    pub noted_later: bool,
}

/// Which lines may be missing because their month was dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptMonths {
    pub dropped: Vec<DroppedMonth>,
    pub now_us: i64,
    /// How long the journal must be kept now.
    pub kept_us: i64,
}

impl KeptMonths {
    /// No owner may keep the journal for less: a constraint of `refundd.retention` says the same.
    const LEAST_US: i64 = 30 * 86_400_000_000;

    /// Whether lines of this month may be missing.
    pub(super) fn allows_absence(&self, month_ends_us: i64) -> bool {
        self.drops_of(month_ends_us).next().is_some()
    }

    /// Whether no line of this month may be there that was sealed at this time or earlier: refundd drops a month whole. A line
    /// that was sealed later came later, when a clock was set back. And where nobody noted when, lines may have come since.
    pub(super) fn forbids_presence(&self, month_ends_us: i64, sealed_us: i64) -> bool {
        let is_later = |month: &DroppedMonth| sealed_us < month.dropped_us && month.dropped_us <= self.now_us;
        self.drops_of(month_ends_us).any(|month| !month.noted_later && is_later(month))
    }

    /// The notes that a month was dropped and was old enough, by the retention of then. If nobody noted when, that of now counts, too.
    fn drops_of(&self, month_ends_us: i64) -> impl Iterator<Item = &DroppedMonth> {
        let now_allows = self.now_us.saturating_sub(self.kept_us);
        self.dropped.iter().filter(move |month| {
            let kept_us = month.kept_us.max(Self::LEAST_US);
            let note_allows = month.dropped_us.min(self.now_us).saturating_sub(kept_us);
            month.begins_us.is_none_or(|begins| begins < month_ends_us)
                && month_ends_us <= month.ends_us
                && (month_ends_us <= note_allows || month.noted_later && month_ends_us <= now_allows)
        })
    }
}
