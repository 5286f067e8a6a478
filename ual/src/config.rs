//! The configuration file (TOML). Read once, by whoever makes a [`crate::Ual`].
//!
//! `$WARPLINE_CONFIG`, else `~/.config/warpline/warpline.toml`, else `/etc/warpline/warpline.toml`,
//! else the defaults. Unknown keys are errors with line and column.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use vp_api::FpduSize;

use crate::policy::{Crc, Markers, PeerToPeer, Policy};

/// Everything that can be configured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// `[providers]`.
    pub providers: Providers,
    /// `[policy]`, and `[softrdma]` for what concerns the software provider's streams.
    pub policy: Policy,
    /// `[log]`.
    pub log: Log,
}

/// `[providers]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Providers {
    /// Names of providers not to use.
    pub disabled: Vec<String>,
}

/// `[log]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Filter in the syntax of `RUST_LOG`, which wins over it.
    pub filter: Option<String>,
}

/// Why a configuration file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration file {path}: {why}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        why: String,
    },
    /// It says something that cannot be.
    #[error("{path}:{line}:{column}: {message}", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong, and what is allowed.
        message: String,
    },
}

impl Config {
    /// The file in force, or the defaults if there is none. A file named by `$WARPLINE_CONFIG` must
    /// exist.
    pub fn load() -> Result<Self, ConfigError> {
        if let Some(path) = std::env::var_os("WARPLINE_CONFIG").filter(|p| !p.is_empty()) {
            return Self::read(Path::new(&path));
        }
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let user = home.map(|home| home.join(".config/warpline/warpline.toml"));
        let system = PathBuf::from("/etc/warpline/warpline.toml");
        match user.into_iter().chain([system]).find(|path| path.exists()) {
            Some(path) => Self::read(&path),
            None => Ok(Self::default()),
        }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| ConfigError::Unreadable { path: path.to_owned(), why: e.to_string() })?;
        Self::parse(&text, path)
    }

    /// Parses the text of a file; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let invalid = |offset: usize, message: String| {
            let before = text.get(..offset).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
            ConfigError::Invalid { path: path.to_owned(), line, column, message }
        };
        let file: File = toml::from_str(text)
            .map_err(|e| invalid(e.span().map_or(0, |s| s.start), e.message().to_owned()))?;
        let policy = file.policy.apply().map_err(|(key, message)| {
            invalid(text.find(key).unwrap_or(0), format!("`{key}`: {message}"))
        })?;
        Ok(Self { providers: file.providers, policy, log: file.log })
    }
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct File {
    providers: Providers,
    policy: PolicyFile,
    log: Log,
}

/// `[policy]`: every key is optional and changes one field of the profile.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct PolicyFile {
    profile: Option<String>,
    crc: Option<Crc>,
    markers: Option<Markers>,
    revision: Option<u8>,
    negotiate_ird_ord: Option<bool>,
    peer_to_peer: Option<PeerToPeer>,
    fall_back: Option<bool>,
    fpdu_octets: Option<u16>,
    extensions: Option<bool>,
    connect_timeout_ms: Option<u64>,
    request_timeout_ms: Option<u64>,
    answer_timeout_ms: Option<u64>,
    half_open: Option<u32>,
    close_timeout_ms: Option<u64>,
    keep_alive_ms: Option<u64>,
    keep_alive_interval_ms: Option<u64>,
    keep_alive_count: Option<u32>,
    user_timeout_ms: Option<u64>,
    nudge_ms: Option<u64>,
    probe_ms: Option<u64>,
    congestion: Option<String>,
    socket_buffer: Option<u32>,
    dscp: Option<u8>,
    spin_us: Option<u64>,
}

/// Key and message.
type Wrong = (&'static str, String);

impl PolicyFile {
    fn apply(self) -> Result<Policy, Wrong> {
        let profile = self.profile.as_deref().unwrap_or("default");
        let mut policy = Policy::profile(profile).ok_or_else(|| {
            let known = Policy::PROFILES.join("`, `");
            ("profile", format!("there is no profile `{profile}`; there are `{known}`"))
        })?;
        self.check()?;
        self.apply_times(&mut policy);
        let set = &mut policy;
        assign(&mut set.crc, self.crc);
        assign(&mut set.markers, self.markers);
        assign(&mut set.revision, self.revision);
        assign(&mut set.negotiate_ird_ord, self.negotiate_ird_ord);
        assign(&mut set.peer_to_peer, self.peer_to_peer);
        assign(&mut set.fall_back, self.fall_back);
        assign(&mut set.extensions, self.extensions);
        assign(&mut set.half_open, self.half_open);
        assign(&mut set.keep_alive_count, self.keep_alive_count);
        assign(&mut set.dscp, self.dscp);
        assign(&mut set.fpdu, self.fpdu_octets.map(fpdu));
        assign(&mut set.congestion, self.congestion.map(Some));
        assign(&mut set.socket_buffer, self.socket_buffer.map(Some));
        Ok(policy)
    }

    fn apply_times(&self, set: &mut Policy) {
        let ms = Duration::from_millis;
        // 0 switches off what can be off.
        let optional = |time: u64| (time > 0).then(|| ms(time));
        assign(&mut set.connect_timeout, self.connect_timeout_ms.map(ms));
        assign(&mut set.request_timeout, self.request_timeout_ms.map(ms));
        assign(&mut set.answer_timeout, self.answer_timeout_ms.map(ms));
        assign(&mut set.close_timeout, self.close_timeout_ms.map(ms));
        assign(&mut set.keep_alive, self.keep_alive_ms.map(optional));
        assign(&mut set.keep_alive_interval, self.keep_alive_interval_ms.map(ms));
        assign(&mut set.user_timeout, self.user_timeout_ms.map(optional));
        assign(&mut set.nudge_after, self.nudge_ms.map(optional));
        assign(&mut set.probe_after, self.probe_ms.map(optional));
        assign(&mut set.spin, self.spin_us.map(Duration::from_micros));
    }

    fn check(&self) -> Result<(), Wrong> {
        let bounds: [(&'static str, Option<u64>, u64, u64); 9] = [
            ("revision", self.revision.map(u64::from), 1, 2),
            ("fpdu_octets", self.fpdu_octets.map(u64::from), 0, 64_768),
            ("half_open", self.half_open.map(u64::from), 1, 65_536),
            ("dscp", self.dscp.map(u64::from), 0, 63),
            ("keep_alive_count", self.keep_alive_count.map(u64::from), 1, 127),
            ("connect_timeout_ms", self.connect_timeout_ms, 1, 3_600_000),
            ("request_timeout_ms", self.request_timeout_ms, 1, 3_600_000),
            ("answer_timeout_ms", self.answer_timeout_ms, 1, 86_400_000),
            ("close_timeout_ms", self.close_timeout_ms, 1, 3_600_000),
        ];
        for (key, value, low, high) in bounds {
            if let Some(value) = value.filter(|v| !(low..=high).contains(v)) {
                return Err((key, format!("{value} is not between {low} and {high}")));
            }
        }
        Ok(())
    }
}

/// 0: follow the EMSS.
fn fpdu(octets: u16) -> FpduSize {
    if octets == 0 { FpduSize::Emss } else { FpduSize::Octets(octets) }
}

fn assign<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("w.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn keys_change_the_profile() {
        let text = r#"
            [providers]
            disabled = ["vp_verbs"]
            [policy]
            profile = "siw"
            crc = "off"
            peer_to_peer = { read = true }
            fpdu_octets = 16384
            nudge_ms = 0
            connect_timeout_ms = 250
            [log]
            filter = "debug"
        "#;
        let config = parse(text).unwrap();
        assert_eq!(config.providers.disabled, ["vp_verbs"]);
        assert_eq!(config.log.filter.as_deref(), Some("debug"));
        let expected = Policy {
            crc: Crc::Off,
            peer_to_peer: PeerToPeer { read: true, ..PeerToPeer::default() },
            fpdu: FpduSize::Octets(16384),
            nudge_after: None,
            connect_timeout: Duration::from_millis(250),
            ..Policy::profile("siw").unwrap()
        };
        assert_eq!(config.policy, expected);
    }

    #[test]
    fn mistakes_have_line_and_column() {
        for (text, place, what) in [
            ("[policy]\n  crcc = \"off\"\n", "w.toml:2:3: ", "crcc"),
            ("[policy]\ncrc = \"maybe\"\n", "w.toml:2:7: ", "maybe"),
            ("[polcy]\n", "w.toml:1:2: ", "polcy"),
            ("[policy]\nrevision = 3\n", "w.toml:2:1: ", "between 1 and 2"),
            ("[policy]\n\n profile = \"x\"\n", "w.toml:3:2: ", "`siw`"),
            ("[log]\nfilter = 1\n", "w.toml:2:10: ", "integer"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(place) && error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Config::read(Path::new("/nowhere/w.toml")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/w.toml"), "{error}");
    }
}
