//! Converts numbers to positions in a picture, and to labels.

/// Width of every picture, in its own units; it is scaled to its column.
pub(super) const WIDTH: f64 = 400.0;

/// A position in a picture's units, as text.
pub(super) fn n(place: f64) -> String {
    let text = format!("{place:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// A linear map from numbers to positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) from: (f64, f64),
    pub(super) to: (f64, f64),
}

impl Scale {
    pub(super) fn at(self, value: f64) -> f64 {
        let span = self.from.1 - self.from.0;
        let share = if span > 0.0 { (value - self.from.0) / span } else { 0.0 };
        self.to.0 + share.clamp(0.0, 1.0) * (self.to.1 - self.to.0)
    }
}

/// Round numbers of seconds within a span, five or fewer.
pub(super) fn ticks(seconds: f64) -> Vec<f64> {
    const STEPS: [f64; 18] = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0,
        7_200.0, 21_600.0, 86_400.0, 604_800.0,
    ];
    let step = STEPS.into_iter().find(|step| seconds / step <= 4.5);
    let step = step.unwrap_or_else(|| (seconds / 4.0).max(1.0));
    (0..=4).map(|tick| f64::from(tick) * step).filter(|tick| *tick <= seconds).collect()
}

/// As in `0.5 s`, `90 s` or `2 h`, for an axis.
pub(super) fn moment(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 300.0 => (s, "s"),
        s if s < 3_600.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    format!("{} {unit}", n(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0.5, 90.0, 600.0, 7_200.0].map(moment).join(", "), "0.5 s, 90 s, 10 min, 2 h");
        assert_eq!(ticks(12.0), [0.0, 5.0, 10.0]);
        assert_eq!(ticks(0.0), [0.0]);
        assert!(ticks(1e9).len() <= 5);
    }

    #[test]
    fn a_place_is_within_the_picture() {
        let scale = Scale { from: (0.0, 10.0), to: (100.0, 200.0) };
        assert_eq!([-1.0, 0.0, 5.0, 99.0].map(|v| scale.at(v)), [100.0, 100.0, 150.0, 200.0]);
        assert_eq!(Scale { from: (3.0, 3.0), ..scale }.at(3.0), 100.0);
    }
}
