//! Keys of the provider's own: `[providers.vp_roce]` of the configuration.
//!
//! Read when the device is opened, and constant from then on.

use vp_api::{Services, VpError, VpResult, VpStatus};

use crate::tuning::{RNR_RETRIES, RNR_SECONDS};

/// The values of an RNIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// `rnr_retry`: how often a peer repeats a Send that finds no receive at this end, 0 to 7; 7 is unlimited. Each
    /// end tells it to the other when they connect.
    pub(crate) rnr_retry: u8,
    /// `rnr_seconds`: how long this end repeats a Send that finds no receive at the peer, 1 to 3600, also if the
    /// peer asks for unlimited repetitions.
    pub(crate) rnr_seconds: u16,
}

impl Settings {
    /// Reads the settings of an RNIC that is opened.
    pub(crate) fn read(provider: &str, services: &dyn Services) -> VpResult<Self> {
        let mut all = Self { rnr_retry: RNR_RETRIES, rnr_seconds: RNR_SECONDS };
        for (key, value) in services.settings() {
            let range = match key.as_str() {
                "rnr_retry" => 0..=7,
                "rnr_seconds" => 1..=3600,
                _ => {
                    let known = "it has `rnr_retry` and `rnr_seconds`";
                    return Err(wrong(format!("{provider} has no setting `{key}`; {known}")));
                }
            };
            let number = value.parse().ok().filter(|number| range.contains(number));
            let number: u16 = number.ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                wrong(format!(
                    "{provider}: `{key}` is {value}, not a number from {least} to {most}"
                ))
            })?;
            match key.as_str() {
                "rnr_retry" => all.rnr_retry = number as u8,
                _ => all.rnr_seconds = number,
            }
        }
        Ok(all)
    }

    /// The longest time of RNR repetitions, in microseconds.
    pub(crate) fn rnr_limit(&self) -> u64 {
        u64::from(self.rnr_seconds) * 1_000_000
    }
}

fn wrong(detail: String) -> VpError {
    VpError::new(VpStatus::InvalidModifier, detail)
}
