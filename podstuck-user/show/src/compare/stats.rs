//! Tests whether two runs' batches differ: a permutation test against a smallest effect, and Holm's correction for
//! many series.

use super::batches::BATCHES;

/// The share of pairs of equal runs that give a false alarm in any series.
pub(super) const LEVEL: f64 = 0.02;
/// Upper limit of the assumed correlation between a run's batches.
const MOST_DEPENDENT: f64 = 0.6;

/// The probability that batches of two equal runs differ as much as these, where a run may differ from another by
/// `margin` without a reason. Values are logarithms, so that a difference is a ratio.
pub(super) fn chance(before: &[f64; BATCHES], after: &[f64; BATCHES], margin: f64) -> f64 {
    let (before, after) = spread(before, after);
    let up = one_sided(&before, &after.map(|value| value - margin));
    let down = one_sided(&after, &before.map(|value| value - margin));
    (2.0 * up.min(down)).min(1.0)
}

/// The share, of all ways to divide the values between two runs, in which the second is as far above the first.
fn one_sided(lower: &[f64; BATCHES], upper: &[f64; BATCHES]) -> f64 {
    let mut all = [0.0; 2 * BATCHES];
    all[..BATCHES].copy_from_slice(lower);
    all[BATCHES..].copy_from_slice(upper);
    let seen: f64 = upper.iter().sum();
    // Sums that differ only by the order of addition are equal.
    let enough = seen - 1e-9 * (1.0 + seen.abs());
    let (mut ways, mut as_far) = (0_u32, 0_u32);
    for dealt in 0..1_u32 << (2 * BATCHES) {
        if dealt.count_ones() as usize != BATCHES {
            continue;
        }
        let sum: f64 = all
            .iter()
            .enumerate()
            .filter(|(place, _)| dealt >> place & 1 == 1)
            .map(|(_, v)| v)
            .sum();
        ways += 1;
        as_far += u32::from(sum >= enough);
    }
    f64::from(as_far) / f64::from(ways)
}

/// Correlated values carry less information than as many independent ones: they are spread about their mean as far as
/// independent values with the same information.
fn spread(before: &[f64; BATCHES], after: &[f64; BATCHES]) -> ([f64; BATCHES], [f64; BATCHES]) {
    let mean = |values: &[f64; BATCHES]| values.iter().sum::<f64>() / BATCHES as f64;
    let (first, second) = (mean(before), mean(after));
    let off = |values: &[f64; BATCHES], mean: f64| values.map(|value| value - mean);
    let (a, b) = (off(before, first), off(after, second));
    let products = |all: &[f64; BATCHES]| all.windows(2).map(|two| two[0] * two[1]).sum::<f64>();
    let squares = |all: &[f64; BATCHES]| all.iter().map(|one| one * one).sum::<f64>();
    let all = squares(&a) + squares(&b);
    if all <= 0.0 {
        return (*before, *after);
    }
    // About their own mean, even independent values seem negatively correlated.
    let unbiased = (products(&a) + products(&b)) / all + 1.0 / BATCHES as f64;
    let depend = unbiased.clamp(0.0, MOST_DEPENDENT);
    let factor = ((1.0 + depend) / (1.0 - depend)).sqrt();
    (a.map(|value| first + value * factor), b.map(|value| second + value * factor))
}

/// Holm's correction: probabilities that hold for all series together, in the order of `chances`.
pub(super) fn adjusted(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut out = vec![1.0; chances.len()];
    let mut least = 0.0_f64;
    for (rank, place) in order.into_iter().enumerate() {
        least = least.max(chances[place] * (chances.len() - rank) as f64).min(1.0);
        out[place] = least;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_runs_have_the_least_chance_and_equal_ones_the_most() {
        let before = [0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.0];
        let far = before.map(|value| value + 1.0);
        assert!((chance(&before, &far, 0.2) - 2.0 / 12_870.0).abs() < 1e-6);
        assert!((chance(&far, &before, 0.2) - 2.0 / 12_870.0).abs() < 1e-6);
        assert_eq!(chance(&before, &before, 0.2), 1.0);
        assert_eq!(chance(&before, &before.map(|value| value + 0.15), 0.2), 1.0);
    }

    #[test]
    fn correlated_batches_are_weaker_evidence() {
        let jumps = [0.0, 0.5, 0.0, 0.5, 0.0, 0.5, 0.0, 0.5];
        let drifts = [0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5];
        let after = |values: [f64; BATCHES]| values.map(|value| value + 0.55);
        let of = |values: [f64; BATCHES]| chance(&values, &after(values), 0.1);
        assert!(of(drifts) > of(jumps), "{} {}", of(drifts), of(jumps));
    }

    #[test]
    fn many_series_need_more() {
        let adjusted = adjusted(&[0.01, 0.5, 0.001]);
        assert!((adjusted[0] - 0.02).abs() < 1e-9 && (adjusted[2] - 0.003).abs() < 1e-9);
        assert_eq!(adjusted[1], 0.5);
    }
}
