//! Round-trip statistics in the manner of ping. Plain numbers, one owner.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// Counts and times of the round trips so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) sent: u64,
    pub(crate) returned: u64,
    pub(crate) different: u64,
    shortest: f64,
    longest: f64,
    sum: f64,
    squares: f64,
}

impl Stats {
    /// Counts a completed round trip.
    pub(crate) fn add(&mut self, time: Duration) {
        let us = time.as_secs_f64() * 1e6;
        self.shortest = if self.returned == 0 { us } else { self.shortest.min(us) };
        self.longest = self.longest.max(us);
        self.sum += us;
        self.squares += us * us;
        self.returned += 1;
    }

    /// True if nothing was lost and nothing differed.
    pub(crate) fn flawless(&self) -> bool {
        self.returned == self.sent && self.different == 0
    }

    /// The JSON; times in microseconds.
    pub(crate) fn json(&self) -> Value {
        let Self { sent, returned, different, .. } = self;
        let mut all = json!({ "sent": sent, "returned": returned, "different": different });
        if *returned > 0 {
            let (mean, deviation) = self.mean();
            all["rtt_us"] = json!({ "min": self.shortest, "avg": mean, "max": self.longest, "mdev": deviation });
        }
        all
    }

    /// Mean and deviation of the completed round trips.
    fn mean(&self) -> (f64, f64) {
        let n = self.returned as f64;
        let mean = self.sum / n;
        (mean, (self.squares / n - mean * mean).max(0.0).sqrt())
    }

    fn loss_percent(&self) -> u64 {
        ((self.sent - self.returned) * 100).checked_div(self.sent).unwrap_or(0)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, returned, different, .. } = self;
        let loss = self.loss_percent();
        write!(f, "{sent} round trips started, {returned} completed, {loss} % lost")?;
        if *different > 0 {
            write!(f, ", {different} with wrong octets")?;
        }
        if *returned > 0 {
            let (mean, deviation) = self.mean();
            let (min, max) = (self.shortest, self.longest);
            write!(f, "\nrtt min/avg/max/mdev = {min:.1}/{mean:.1}/{max:.1}/{deviation:.1} us")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary() {
        let mut stats = Stats { sent: 4, ..Stats::default() };
        assert_eq!(stats.to_string(), "4 round trips started, 0 completed, 100 % lost");
        for us in [100, 200, 300] {
            stats.add(Duration::from_micros(us));
        }
        let text = stats.to_string();
        assert!(text.contains("3 completed, 25 % lost"), "{text}");
        assert!(text.ends_with("100.0/200.0/300.0/81.6 us"), "{text}");
        assert!(!stats.flawless());
    }
}
