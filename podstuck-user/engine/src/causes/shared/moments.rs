//! Times in sentences, by the calendar.

use jiff::SignedDuration;

use crate::{model::time::Monotonic, tracker::Context};

/// `14:03:10Z`, with the date if it is not today.
pub(crate) fn moment(context: &Context<'_>, at: Monotonic) -> String {
    let now = context.calendar;
    let ago = SignedDuration::try_from(context.now.since(at)).unwrap_or_default();
    let then = now.checked_sub(ago).unwrap_or(now);
    let same_day = then.strftime("%F").to_string() == now.strftime("%F").to_string();
    then.strftime(if same_day { "%TZ" } else { "%F %TZ" }).to_string()
}

/// `14:03:10Z, when the observation began`
pub(crate) fn began(context: &Context<'_>) -> String {
    format!("{}, when the observation began", moment(context, context.begun))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{kubelet_steps::KubeletSteps, testing, unmounts::Unmounts};

    #[test]
    fn the_date_is_given_on_another_day() {
        let (unmounts, steps) = (Unmounts::default(), KubeletSteps::default());
        let mut context = testing::context(Monotonic(90_000_000_000), &unmounts, &steps, &[]);
        context.calendar = Timestamp::from_second(86_400).unwrap();
        assert_eq!(moment(&context, context.now), "00:00:00Z");
        assert_eq!(began(&context), "1970-01-01 23:58:30Z, when the observation began");
        context.calendar = Timestamp::from_second(90_000).unwrap();
        assert_eq!(began(&context), "00:58:30Z, when the observation began");
    }
}
