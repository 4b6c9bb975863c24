//! Whether two runs' batches stand apart: a permutation test against a smallest effect, and Holm's correction for many
//! series.

use super::batches::BATCHES;

/// Of a hundred pairs of runs of the same thing, so many give an alarm in any series.
pub(super) const LEVEL: f64 = 0.02;
/// More than this the batches of a run are never taken to depend on each other.
const MOST_DEPENDENT: f64 = 0.6;

/// The chance that batches of two runs of the same thing are as far apart as these, where a run may differ from
/// another by `margin` without a reason. Values are logarithms, so that a difference is a ratio.
pub(super) fn chance(before: &[f64; BATCHES], after: &[f64; BATCHES], margin: f64) -> f64 {
    let (before, after) = spread(before, after);
    let up = one_sided(&before, &after.map(|value| value - margin));
    let down = one_sided(&after, &before.map(|value| value - margin));
    (2.0 * up.min(down)).min(1.0)
}

/// Of all ways to deal the values out to two runs, the share in which the second is as far above the first.
fn one_sided(lower: &[f64; BATCHES], upper: &[f64; BATCHES]) -> f64 {
    let mut all = [0.0; 2 * BATCHES];
    all[..BATCHES].copy_from_slice(lower);
    all[BATCHES..].copy_from_slice(upper);
    let seen: f64 = upper.iter().sum();
    // What is equal but for the order of its sum is equal.
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

/// Values that depend on the ones before say less than as many that do not: they are spread out about their mean, as
/// far as independent ones would be that say as little.
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
    // About a mean of their own, even independent values seem to repel each other.
    let unbiased = (products(&a) + products(&b)) / all + 1.0 / BATCHES as f64;
    let depend = unbiased.clamp(0.0, MOST_DEPENDENT);
    let factor = ((1.0 + depend) / (1.0 - depend)).sqrt();
    (a.map(|value| first + value * factor), b.map(|value| second + value * factor))
}

/// Holm's: chances that hold for all series together, in the order in which they came.
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
    fn what_stands_apart_has_the_least_chance_and_what_is_equal_the_most() {
        let before = [0.0, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.0];
        let far = before.map(|value| value + 1.0);
        assert!((chance(&before, &far, 0.2) - 2.0 / 12_870.0).abs() < 1e-6);
        assert!((chance(&far, &before, 0.2) - 2.0 / 12_870.0).abs() < 1e-6);
        assert_eq!(chance(&before, &before, 0.2), 1.0);
        assert_eq!(chance(&before, &before.map(|value| value + 0.15), 0.2), 1.0);
    }

    #[test]
    fn what_drifts_is_less_of_a_witness() {
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
