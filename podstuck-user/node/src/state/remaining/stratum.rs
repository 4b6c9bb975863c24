//! Directories that look alike, of which some are drawn.

use fastrand::Rng;

/// Draws that suffice to estimate a stratum's variance.
const ENOUGH: f64 = 4.0;
/// How much draws differ at the least, as a part of their mean: few may be alike by chance.
const LEAST_DEVIATION: f64 = 0.3;

/// One of the strata. What is drawn is not put back.
#[derive(Debug)]
pub(super) struct Stratum<D> {
    /// Not drawn yet, with how many directories each stands for.
    left: Vec<(D, f64)>,
    all: f64,
    drawn: f64,
    mean: f64,
    /// Sum of the squared differences from the mean (Welford's algorithm).
    squares: f64,
    largest: f64,
}

impl<D> Default for Stratum<D> {
    fn default() -> Self {
        let left = Vec::new();
        Self { left, all: 0.0, drawn: 0.0, mean: 0.0, squares: 0.0, largest: 0.0 }
    }
}

impl<D> Stratum<D> {
    pub(super) fn add(&mut self, directory: D, scale: f64) {
        self.left.push((directory, scale));
        self.all += 1.0;
    }

    pub(super) fn draw(&mut self, rng: &mut Rng) -> Option<(D, f64)> {
        (!self.left.is_empty()).then(|| self.left.swap_remove(rng.usize(..self.left.len())))
    }

    /// Notes what was in and below one that was drawn.
    pub(super) fn note(&mut self, value: f64) {
        self.drawn += 1.0;
        let difference = value - self.mean;
        self.mean += difference / self.drawn;
        self.squares += difference * (value - self.mean);
        self.largest = self.largest.max(value);
    }

    /// Notes one that was drawn and not counted to its end: no draw, since draws that end early are those of large
    /// directories, but what is known of the largest.
    pub(super) fn note_part(&mut self, at_least: f64) {
        self.largest = self.largest.max(at_least);
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.left.is_empty()
    }

    /// How many there are for each that was drawn.
    pub(super) fn undrawn(&self) -> f64 {
        self.all / (self.drawn + 1.0)
    }

    /// By how much one draw more makes the variance of the sum smaller.
    pub(super) fn gain(&self) -> f64 {
        if self.drawn < ENOUGH {
            return f64::MAX / (1.0 + self.drawn);
        }
        self.all.powi(2) * self.variance() / (self.drawn * (self.drawn + 1.0))
    }

    /// The sum over all directories and its variance, which without any draw is infinite: directories of
    /// another stratum look different and say nothing about it.
    pub(super) fn total(&self) -> (f64, f64) {
        if self.all == 0.0 {
            return (0.0, 0.0);
        }
        if self.drawn == 0.0 {
            return (0.0, f64::INFINITY);
        }
        let rest = 1.0 - self.drawn / self.all;
        let of_sum = self.all.powi(2) * rest * self.variance() / self.drawn;
        // Sizes are skewed: one like the largest may have been missed.
        let missed = rest * (self.all / self.drawn) * (self.largest - self.mean);
        (self.all * self.mean, of_sum + missed.powi(2))
    }

    fn variance(&self) -> f64 {
        let of_draws =
            if self.drawn < 2.0 { self.mean.powi(2) } else { self.squares / (self.drawn - 1.0) };
        of_draws.max((LEAST_DEVIATION * self.mean).powi(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_whole_has_no_error() {
        let mut stratum = Stratum::default();
        for value in [3.0, 5.0] {
            stratum.add((), 1.0);
            stratum.note(value);
        }
        assert_eq!(stratum.total(), (8.0, 0.0));
    }

    #[test]
    fn the_error_follows_from_how_much_draws_differ() {
        let of = |values: [f64; 4]| {
            let mut stratum = Stratum::default();
            (0..100).for_each(|_| stratum.add((), 1.0));
            values.into_iter().for_each(|value| stratum.note(value));
            stratum.total()
        };
        let (sum, alike) = of([10.0; 4]);
        let (same_sum, different) = of([0.0, 0.0, 0.0, 40.0]);
        assert_eq!((sum, same_sum), (1000.0, 1000.0));
        // Four that are alike may be so by chance; one large of four may be missed elsewhere.
        assert!(alike.sqrt() > 100.0 && alike.sqrt() < 200.0, "{alike}");
        assert!(different.sqrt() > 1000.0, "{different}");
    }

    #[test]
    fn a_draw_that_was_not_counted_to_its_end_says_nothing_about_the_mean() {
        let mut stratum = Stratum::default();
        (0..10).for_each(|_| stratum.add((), 1.0));
        stratum.note_part(7.0);
        assert_eq!(stratum.total(), (0.0, f64::INFINITY));
        stratum.note(2.0);
        let (sum, variance) = stratum.total();
        assert!(sum == 20.0 && variance.sqrt() > 9.0 * (7.0 - 2.0), "{sum} {variance}");
    }

    #[test]
    fn one_that_was_never_drawn_from_is_drawn_from_first() {
        let mut stratum = Stratum::default();
        (0..10).for_each(|_| stratum.add((), 1.0));
        assert!(stratum.gain() > 1e300 && stratum.undrawn() == 10.0);
    }
}
