//! The configuration file (TOML): finding, reading and checking it. Read once, when a [`crate::Ual`] is
//! made.
//!
//! `$WARPLINE_CONFIG`, else `~/.config/warpline/warpline.toml`, else `/etc/warpline/warpline.toml`, else
//! the defaults. Unknown keys are errors with line and column. Providers in libraries are named by
//! `[providers]`, by manifests in `providers.d` beside these files, and by the environment.
//! `$WARPLINE_WRAP` has wrappers, separated by blanks, that come before those of the file. `$WARPLINE_LOCAL`
//! replaces the key `local` of every policy; `$WARPLINE_CLASS` is the class that the program declares for rules.

mod file;
mod providers;
mod rules;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod sample_tests;
pub(crate) mod text;
pub(crate) mod variables;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;
use thiserror::Error;
use ual_cm::policy::{Program, Rules};
use ual_cm::{AdapterRules, LocalStreams, Network, Policies, Policy};
use vp_hooks::Wrapper;

use crate::secure::is_secure;
use file::{File, PolicyKeys, PolicySection};
use text::Places;

/// A configuration file with every key and its default; keys that have none are comments.
pub const SAMPLE: &str = include_str!("config/warpline.toml");

/// Wrappers for every provider.
const WRAP: &str = "WARPLINE_WRAP";
/// Whether connections on one machine have local streams.
const LOCAL: &str = "WARPLINE_LOCAL";
/// What is wrong with a variable that has to be text.
const NO_TEXT: &str = "this is not UTF-8";
/// The class that the program declares for rules.
const CLASS: &str = "WARPLINE_CLASS";

/// Everything that can be configured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// `[providers]`.
    pub providers: Providers,
    /// `[policy]`, and `[softrdma]` for settings of that provider's streams.
    pub policy: Policy,
    /// `[policy.peers]`: replaces `policy` for peers in these ranges; the narrowest applies.
    pub peers: Vec<(Network, Policy)>,
    /// `[[rule]]`, in their order.
    pub rules: Rules,
    /// `[log]`.
    pub log: Log,
    /// `[observe]`.
    pub observe: Observe,
}

/// `[observe]`: what others of the same user may see of this process.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Observe {
    /// The process has a state page and a socket for requests, by which others see what it does. Programs with
    /// more rights than their user have neither.
    pub publish: bool,
}

impl Default for Observe {
    fn default() -> Self {
        Self { publish: true }
    }
}

/// `[providers]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Providers {
    /// Names of providers not to use.
    pub disabled: Vec<String>,
    /// Names of providers, the preferred ones first; others follow.
    pub order: Vec<String>,
    /// Libraries of providers: name and absolute path.
    pub libraries: BTreeMap<String, PathBuf>,
    /// The wrappers of every provider; the first one is next to the application. See [`vp_hooks`] for
    /// the wrappers that exist.
    pub wrap: Vec<Wrapper>,
    /// `[providers.NAME]`: settings of one of them.
    pub own: BTreeMap<String, Own>,
    /// Directories of manifests (`*.toml`), and libraries (`*.so`), to be searched; not a key: the
    /// directories `providers.d` beside the configuration files, and `$WARPLINE_PROVIDER_PATH`.
    pub search: Vec<PathBuf>,
}

/// `[providers.NAME]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Own {
    /// Its wrappers, instead of [`Providers::wrap`].
    pub wrap: Option<Vec<Wrapper>>,
    /// All other keys, which are the provider's own: passed to it when a device is opened.
    pub settings: Vec<(String, String)>,
}

impl Providers {
    /// The wrappers of the provider with this name.
    pub fn wrap_of(&self, name: &str) -> &[Wrapper] {
        self.own.get(name).and_then(|own| own.wrap.as_ref()).unwrap_or(&self.wrap)
    }

    /// Adds wrappers for every provider, next to the application.
    fn put_before(&mut self, wrappers: &[Wrapper]) {
        let own = self.own.values_mut().filter_map(|own| own.wrap.as_mut());
        for wrap in own.chain([&mut self.wrap]) {
            wrap.splice(..0, wrappers.iter().cloned());
        }
    }
}

/// `[log]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// What is logged, in the syntax of `RUST_LOG`: `warn` (the default), `info` for one line per
    /// connection established and ended, `debug`. `WARPLINE_LOG`, for C programs, and `RUST_LOG`, for
    /// the command, override it.
    pub filter: Option<String>,
    /// Lines of text, or of JSON.
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: an object a line.
    Json,
}

/// Why a configuration file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration file {path}: {why}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
    /// It has an invalid value or key.
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
    /// A variable of the environment has an invalid value.
    #[error("${name}: {message}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What is wrong, and what is allowed.
        message: String,
    },
}

impl Config {
    /// The configuration file, or the defaults if there is none, with the places where providers are
    /// searched and their wrappers. A file named by `$WARPLINE_CONFIG` must exist. A setuid program
    /// ignores the environment.
    pub fn load() -> Result<Self, ConfigError> {
        Self::load_with(|name| match is_secure() {
            true => None,
            false => std::env::var_os(name),
        })
    }

    /// The configuration file that [`Config::load`] reads, if there is one.
    pub fn in_force() -> Option<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).filter(|_| !is_secure());
        places(|name| variable(name).filter(|value| !value.is_empty())).1
    }

    /// As [`Config::load`], with the environment that `variable` returns.
    fn load_with(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let trusted = |name: &str| variable(name).filter(|value| !value.is_empty());
        let (places, in_force) = places(trusted);
        let mut config = in_force.map_or_else(|| Ok(Self::default()), |path| Self::read(&path))?;
        if let Some(paths) = trusted("WARPLINE_PROVIDER_PATH") {
            let named = std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty());
            config.providers.search.extend(named);
        }
        config.providers.search.extend(places.iter().map(|p| p.with_file_name("providers.d")));
        if let Some(texts) = trusted(WRAP) {
            config.providers.put_before(&wrappers(&texts)?);
        }
        if let Some(text) = trusted(LOCAL) {
            let local = local(&text)?;
            let peers = config.peers.iter_mut().map(|(_, policy)| policy);
            peers.chain([&mut config.policy]).for_each(|policy| policy.local = local);
        }
        Ok(config)
    }

    /// The policies and rules for an adapter.
    pub fn governing(&self, provider: &str, device: &str) -> (Policies, AdapterRules) {
        let policies = Policies { default: self.policy.clone(), peers: self.peers.clone() };
        let (provider, device) = (provider.to_owned(), device.to_owned());
        (policies, AdapterRules { rules: self.rules.clone(), program: program(), device, provider })
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = text::read(path)
            .map_err(|why| ConfigError::Unreadable { path: path.to_owned(), why })?;
        Self::parse(&text, path)
    }

    /// Parses the text of a file; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let places = Places::new(text);
        let invalid = |offset: usize, message: &str| {
            let (line, column) = places.at(offset);
            let message = text::shortened(message);
            ConfigError::Invalid { path: path.to_owned(), line, column, message }
        };
        let file: File = toml::from_str(text)
            .map_err(|e| invalid(e.span().map_or(0, |s| s.start), e.message()))?;
        let File { providers, policy, softrdma, rule, log, observe } = file;
        let PolicySection { keys, peers } = policy;
        let policy = softrdma.apply(keys.apply(Policy::default()));
        let peer = |(network, keys): (Network, PolicyKeys)| (network, keys.apply(policy.clone()));
        let peers = peers.into_iter().map(peer).collect();
        let place = |offset| format!("{}:{}", path.display(), places.at(offset).0);
        let rules = rule.into_iter().map(|rule| rule.named(place).map(Arc::new));
        let rules = rules.collect::<Result<_, _>>().map_err(|(at, why)| invalid(at, &why))?;
        Ok(Self { providers, policy, peers, rules: Rules(rules), log, observe })
    }
}

/// Where configuration files may be, and the one in force.
fn places(trusted: impl Fn(&str) -> Option<OsString>) -> (Vec<PathBuf>, Option<PathBuf>) {
    let home = trusted("HOME").map(PathBuf::from);
    let user = home.map(|home| home.join(".config/warpline/warpline.toml"));
    let system = PathBuf::from("/etc/warpline/warpline.toml");
    let named = trusted("WARPLINE_CONFIG").map(PathBuf::from);
    let places: Vec<PathBuf> = match &named {
        Some(path) => vec![path.clone()],
        None => user.into_iter().chain([system]).collect(),
    };
    let in_force = named.or_else(|| places.iter().find(|path| path.exists()).cloned());
    (places, in_force)
}

/// This program, as rules see it. A setuid program has no class.
pub fn program() -> Program {
    let exe = std::env::current_exe().unwrap_or_default();
    let class = if is_secure() { None } else { std::env::var_os(CLASS) };
    Program {
        uid: kal_shim::state_file::user(),
        exe: exe.to_string_lossy().into_owned(),
        class: class.and_then(|class| class.into_string().ok()).unwrap_or_default(),
    }
}

/// Wrappers separated by blanks.
fn wrappers(texts: &OsStr) -> Result<Vec<Wrapper>, ConfigError> {
    let wrong = |message: &str| wrong_variable(WRAP, message);
    let texts = texts.to_str().ok_or_else(|| wrong(NO_TEXT))?;
    let all = texts.split_whitespace().map(|text| text.parse::<Wrapper>());
    all.collect::<Result<_, _>>().map_err(|error| wrong(&error.to_string()))
}

/// `auto`, `off` or `require`.
fn local(text: &OsStr) -> Result<LocalStreams, ConfigError> {
    let text = text.to_str().ok_or_else(|| wrong_variable(LOCAL, NO_TEXT))?;
    let text: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    LocalStreams::deserialize(text).map_err(|error| wrong_variable(LOCAL, &error.to_string()))
}

fn wrong_variable(name: &'static str, message: &str) -> ConfigError {
    ConfigError::Variable { name, message: text::shortened(message) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vp_api::FpduSize;

    use super::*;
    use ual_cm::{Crc, PeerToPeer};

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
            order = ["acme", "vp_softrdma"]
            libraries = { acme = "/usr/lib/libacme.so" }
            wrap = ["trace:every=100", "fault:post_send@3=QueueFull"]
            [policy]
            profile = "siw"
            crc = "off"
            peer_to_peer = { read = true }
            nudge_ms = 0
            probe_ms = 30
            connect_timeout_ms = 250
            invalid_stag_ends = 5
            local = "off"
            [policy.peers."10.0.0.0/8"]
            crc = "require"
            local = "require"
            [policy.peers."::1"]
            profile = "strict-rfc"
            [softrdma]
            fpdu_octets = 16384
            local_ring = 1048576
            local_streams = 7
            [log]
            filter = "debug"
        "#;
        let config = parse(text).unwrap();
        assert_eq!(config.providers.disabled, ["vp_verbs"]);
        assert_eq!(config.providers.order, ["acme", "vp_softrdma"]);
        assert_eq!(config.providers.libraries["acme"], Path::new("/usr/lib/libacme.so"));
        let wrap: Vec<_> = config.providers.wrap.iter().map(Wrapper::to_string).collect();
        assert_eq!(wrap, ["trace:every=100", "fault:post_send@3=QueueFull"]);
        assert_eq!(config.log.filter.as_deref(), Some("debug"));
        let expected = Policy {
            crc: Crc::Off,
            peer_to_peer: PeerToPeer { read: true, ..PeerToPeer::default() },
            fpdu: FpduSize::Octets(16384),
            kick_after: None,
            probe_after: Some(Duration::from_millis(30)),
            connect_timeout: Duration::from_millis(250),
            invalid_stag_ends: 5,
            local: LocalStreams::Off,
            local_ring: 1 << 20,
            local_streams: 7,
            ..Policy::profile("siw").unwrap()
        };
        assert_eq!(config.policy, expected);
        let peers = [
            (
                "10.0.0.0/8".parse().unwrap(),
                Policy { crc: Crc::Require, local: LocalStreams::Require, ..expected },
            ),
            ("::1".parse().unwrap(), Policy::profile("strict-rfc").unwrap()),
        ];
        assert_eq!(config.peers, peers);
        assert!(
            config.observe.publish && !parse("[observe]\npublish = false").unwrap().observe.publish
        );
    }

    #[test]
    fn a_provider_has_keys_of_its_own() {
        let text = r#"
            [providers]
            wrap = ["trace"]
            [providers.acme]
            wrap = ["stats"]
            port = "left"
            depth = 7
            fast = true
            [providers.bare]
            wrap = []
        "#;
        let providers = parse(text).unwrap().providers;
        let wrap =
            |name| providers.wrap_of(name).iter().map(Wrapper::to_string).collect::<Vec<_>>();
        assert_eq!(
            [wrap("acme"), wrap("bare"), wrap("other")],
            [vec!["stats".to_owned()], vec![], vec!["trace".to_owned()]]
        );
        let settings: Vec<_> =
            providers.own["acme"].settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(settings, ["depth=7", "fast=true", "port=left"]);
    }

    #[test]
    fn mistakes_have_line_and_column() {
        for (text, place, what) in [
            ("[policy]\n  crcc = \"off\"\n", "w.toml:2:3: ", "crcc"),
            ("[policy]\ncrc = \"maybe\"\n", "w.toml:2:7: ", "maybe"),
            ("[providers]\nwrap = [\"tarce\"]\n", "w.toml:2:8: ", "no `tarce`"),
            ("[polcy]\n", "w.toml:1:2: ", "polcy"),
            ("[policy]\nrevision = 3\n", "w.toml:2:12: ", "between 1 and 2"),
            ("[policy]\n\n profile = \"x\"\n", "w.toml:3:12: ", "`siw`"),
            ("[policy]\nrevision = 2\n[policy.peers.x]\n", "w.toml:3:15: ", "`ADDRESS/BITS`"),
            ("[policy.peers.\"::1\"]\nx = 2\n", "w.toml:2:1: ", "`x`"),
            ("[softrdma]\ndscp = 64\n", "w.toml:2:8: ", "between 0 and 63"),
            ("[policy]\nlocal = \"on\"\n", "w.toml:2:9: ", "`auto`, `off`, `require`"),
            ("[policy]\nlocal_dir = \"/proc/version\"\n", "w.toml:2:13: ", "not a directory"),
            ("[policy]\nlocal_dir = \"/tmp\"\n", "w.toml:2:13: ", "that others cannot write to"),
            ("[policy.peers.\"::1\"]\nlocal_dir = \"x\"\n", "w.toml:2:13: ", "absolute path"),
            ("[softrdma]\nlocal_ring = 100000\n", "w.toml:2:14: ", "65536, 131072, 262144"),
            ("[softrdma]\nlocal_ring = 8388608\n", "w.toml:2:14: ", "4194304"),
            ("[softrdma]\nlocal_streams = -1\n", "w.toml:2:17: ", "between 0 and 1000000"),
            ("[softrdma]\nlocal_streams = \"x\"\n", "w.toml:2:17: ", "between 0 and 1000000"),
            ("[softrdma]\nlocal_streams = 2000000\n", "w.toml:2:17: ", "between 0 and 1000000"),
            ("[policy]\ninvalid_stag_ends = 0\n", "w.toml:2:21: ", "between 1 and 1000000"),
            ("[providers]\ndisabeld = []\n", "w.toml:2:12: ", "a provider's table"),
            ("[providers.acme]\nwrap = [\"tarce\"]\n", "w.toml:2:8: ", "no `tarce`"),
            ("[providers.acme]\nports = [1]\n", "w.toml:2:9: ", "text, a number or a truth value"),
            ("providers = 1\n", "w.toml:1:13: ", "expected the table of providers"),
            ("[observe]\npublsh = true\n", "w.toml:2:1: ", "`publish`"),
            ("[log]\nfilter = 1\n", "w.toml:2:10: ", "integer"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(place) && error.contains(what), "{error}");
        }
    }

    #[test]
    fn variables_name_the_file_and_where_providers_are() {
        let dir = std::env::temp_dir().join(format!("ual-config-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("w.toml");
        std::fs::write(&file, "[log]\nfilter = \"debug\"\n").unwrap();
        let load = |named: &Path, paths: &str| {
            Config::load_with(|name| match name {
                "WARPLINE_CONFIG" => Some(named.into()),
                "WARPLINE_PROVIDER_PATH" => Some(paths.into()),
                _ => None,
            })
        };
        let config = load(&file, "/one::/two").unwrap();
        assert_eq!(config.log.filter.as_deref(), Some("debug"));
        let beside = dir.join("providers.d");
        assert_eq!(config.providers.search, [Path::new("/one"), Path::new("/two"), &beside]);
        // An empty variable has no effect.
        assert_eq!(load(&file, "").unwrap().providers.search, [beside]);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(load(&file, "").is_err(), "a file that is named must exist");
        // Without `$WARPLINE_CONFIG` the user's file is searched in the home directory.
        let home = Config::load_with(|name| (name == "HOME").then(|| dir.clone().into())).unwrap();
        assert_eq!(home.providers.search[0], dir.join(".config/warpline/providers.d"));
    }

    #[test]
    fn a_variable_wraps_every_provider_next_to_the_application() {
        let path = std::env::temp_dir().join(format!("ual-wrap-{}.toml", std::process::id()));
        std::fs::write(&path, "[providers]\nwrap = [\"trace\"]\n[providers.bare]\nwrap = []\n")
            .unwrap();
        let load = |wrap: &str| {
            Config::load_with(|name| match name {
                "WARPLINE_CONFIG" => Some(path.clone().into()),
                "WARPLINE_WRAP" => Some(wrap.into()),
                _ => None,
            })
        };
        let providers = load(" stats  fault:post_send@3=QueueFull ").unwrap().providers;
        let wrap =
            |name| providers.wrap_of(name).iter().map(Wrapper::to_string).collect::<Vec<_>>();
        assert_eq!(wrap("other"), ["stats", "fault:post_send@3=QueueFull", "trace"]);
        assert_eq!(wrap("bare"), ["stats", "fault:post_send@3=QueueFull"]);
        let error = load("tarce").unwrap_err().to_string();
        assert!(error.starts_with("$WARPLINE_WRAP: ") && error.contains("no `tarce`"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_variable_says_whether_there_are_local_streams() {
        let path = std::env::temp_dir().join(format!("ual-local-{}.toml", std::process::id()));
        let text = "[policy]\nlocal = \"require\"\n[policy.peers.\"::1\"]\nlocal = \"auto\"\n";
        std::fs::write(&path, text).unwrap();
        let load = |local: &str| {
            Config::load_with(|name| match name {
                "WARPLINE_CONFIG" => Some(path.clone().into()),
                "WARPLINE_LOCAL" => Some(local.into()),
                _ => None,
            })
        };
        let of = |text: &str| {
            let config = load(text).unwrap();
            (config.policy.local, config.peers[0].1.local)
        };
        assert_eq!(of(""), (LocalStreams::Require, LocalStreams::Auto));
        assert_eq!(of("off"), (LocalStreams::Off, LocalStreams::Off));
        let error = load("on").unwrap_err().to_string();
        assert!(error.starts_with("$WARPLINE_LOCAL: ") && error.contains("`require`"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Config::read(Path::new("/nowhere/w.toml")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/w.toml"), "{error}");
    }

    #[test]
    fn a_remedy_names_only_what_the_configuration_takes() {
        for got in [1, 2] {
            let remedy = crate::FailReason::Revision { got }.remedy();
            let line = remedy.split('`').nth(1).unwrap_or_default();
            let config = format!("[policy]\n{line}\n");
            assert!(Config::parse(&config, Path::new("test")).is_ok(), "{remedy}");
        }
        for got in [0, 3, 255] {
            let remedy = crate::FailReason::Revision { got }.remedy();
            assert!(!remedy.contains("policy") && remedy.contains("RFC 6581"), "{remedy}");
        }
    }
}
