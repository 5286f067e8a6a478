//! Arguments of `warpline demo`, and of its second process. No state.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use crate::progress::ProgressMode;
use crate::values::Switch;

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// File to move [default: this program's own executable]
    pub(crate) file: Option<PathBuf>,
    /// CRC32c on every FPDU (RFC 5044)
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) crc: Switch,
    /// Octets per chunk, with an optional suffix k or m
    #[arg(long, default_value = "1m", value_parser = parse_chunk)]
    pub(crate) chunk: u32,
    /// Device, or provider, by name [default: the first usable one]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Address of this machine that the connection goes to, for devices that are not on loopback
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) address: IpAddr,
    /// Print JSON: one object with what was moved by which operation
    #[arg(long)]
    pub(crate) json: bool,
    /// How to show progress
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) progress: ProgressMode,
}

#[derive(Args, Debug)]
pub(crate) struct DemoPeerArgs {
    /// CRC policy of the first process
    #[arg(long, value_enum)]
    pub(crate) crc: Switch,
    /// Process id of the other side
    #[arg(long)]
    pub(crate) parent: u32,
    /// Device, or provider, by name
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Where to listen
    #[arg(long)]
    pub(crate) address: IpAddr,
}

/// `64k`, `1m`, `4096`: 1 octet to 64 MiB.
fn parse_chunk(text: &str) -> Result<u32, String> {
    const LARGEST: u64 = 64 << 20;
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1u64 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (lower.as_str(), 1),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number with suffix k or m".to_owned())?;
    match number.checked_mul(factor) {
        Some(octets @ 1..=LARGEST) => Ok(octets as u32),
        _ => Err("a chunk is 1 octet to 64m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks() {
        assert_eq!(parse_chunk("64k"), Ok(65536));
        assert_eq!(parse_chunk("2M"), Ok(2 << 20));
        assert_eq!(parse_chunk("7"), Ok(7));
        for bad in ["0", "", "k", "65m", "-1", "99999999999999999999", "1kk"] {
            assert!(parse_chunk(bad).is_err(), "{bad}");
        }
    }
}
