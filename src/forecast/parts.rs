//! Shares what limits can give among those who want it.

/// One who wants something of several limits at the same time.
#[derive(Debug)]
pub(super) struct Claimant<'a> {
    pub limits: &'a [usize],
    pub weight: f64,
    pub wants: f64,
}

const LITTLE: f64 = 1e-9;

/// What each claimant gets. All get more in step with their weights, until a limit of theirs is used up or they have
/// what they want. The others then share the rest.
pub(super) fn parts(capacity: &[f64], claimants: &[Claimant<'_>]) -> Vec<f64> {
    let mut left = capacity.to_vec();
    let mut got = vec![0.0; claimants.len()];
    let is_left = |left: &[f64], limit: usize| left.get(limit).is_none_or(|left| *left > LITTLE);
    let mut open: Vec<usize> = (0..claimants.len())
        .filter(|&nth| {
            let claimant = &claimants[nth];
            claimant.wants > LITTLE && claimant.limits.iter().all(|limit| is_left(&left, *limit))
        })
        .collect();
    // Each round ends at least one claimant or one limit.
    for _ in 0..=claimants.len() + capacity.len() {
        let mut load = vec![0.0; left.len()];
        let mut step = f64::INFINITY;
        for &nth in &open {
            let claimant = &claimants[nth];
            step = step.min((claimant.wants - got[nth]) / claimant.weight);
            for &limit in claimant.limits {
                load[limit] += claimant.weight;
            }
        }
        for (left, load) in left.iter().zip(&load) {
            if *load > 0.0 {
                step = step.min(left / load);
            }
        }
        if open.is_empty() || !step.is_finite() {
            break;
        }
        for &nth in &open {
            let claimant = &claimants[nth];
            got[nth] += step * claimant.weight;
            for &limit in claimant.limits {
                left[limit] -= step * claimant.weight;
            }
        }
        open.retain(|&nth| {
            let claimant = &claimants[nth];
            got[nth] + LITTLE < claimant.wants && claimant.limits.iter().all(|limit| is_left(&left, *limit))
        });
    }
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(limits: &[usize], weight: f64, wants: f64) -> Claimant<'_> {
        Claimant { limits, weight, wants }
    }

    #[test]
    fn two_share_a_limit_equally_and_one_that_wants_little_leaves_the_rest() {
        assert_eq!(parts(&[10.0], &[claimant(&[0], 1.0, 99.0), claimant(&[0], 1.0, 99.0)]), [5.0, 5.0]);
        assert_eq!(parts(&[10.0], &[claimant(&[0], 1.0, 2.0), claimant(&[0], 1.0, 99.0)]), [2.0, 8.0]);
    }

    #[test]
    fn one_that_another_limit_holds_back_leaves_the_rest_of_the_shared_limit() {
        let both = [claimant(&[0, 1], 1.0, f64::INFINITY), claimant(&[0], 1.0, f64::INFINITY)];
        assert_eq!(parts(&[10.0, 1.0], &both), [1.0, 9.0]);
    }

    #[test]
    fn weights_divide_a_limit_nine_to_one() {
        let got = parts(&[10.0], &[claimant(&[0], 9.0, 99.0), claimant(&[0], 1.0, 99.0)]);
        assert!((got[0] - 9.0).abs() < 1e-9 && (got[1] - 1.0).abs() < 1e-9, "{got:?}");
    }
}
