//! The configured policy of local streams, for `warpline devices`. Pure text, no state.

use serde_json::{Value, json};
use ual::{Config, LocalStreams, Policy};

fn word(local: LocalStreams) -> &'static str {
    match local {
        LocalStreams::Auto => "auto",
        LocalStreams::Off => "off",
        LocalStreams::Require => "require",
    }
}

/// For people: a line, and one for each range of peers.
pub(super) fn text_of(config: &Config) -> String {
    let directory = |policy: &Policy| match &policy.local_dir {
        Some(directory) => format!(", other network namespaces by {}", directory.display()),
        None => String::new(),
    };
    let Policy { local, local_ring, local_streams, .. } = &config.policy;
    let mut out = format!(
        "local streams   {}: rings of {local_ring} octets, {local_streams} ends at most{}\n",
        word(*local),
        directory(&config.policy)
    );
    for (network, policy) in &config.peers {
        out += &format!("  {network}  {}{}\n", word(policy.local), directory(policy));
    }
    out
}

/// For programs.
pub(super) fn json_of(config: &Config) -> Value {
    let of =
        |policy: &Policy| json!({ "local": word(policy.local), "local_dir": policy.local_dir });
    let mut all = of(&config.policy);
    all["local_ring"] = config.policy.local_ring.into();
    all["local_streams"] = config.policy.local_streams.into();
    let peers = config.peers.iter().map(|(network, policy)| (network.to_string(), of(policy)));
    all["peers"] = Value::Object(peers.collect());
    all
}
