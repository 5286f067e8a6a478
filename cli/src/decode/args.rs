//! Arguments of `warpline decode`. No state.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::values::Switch;

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").required(true).args(["hex", "pcap"])))]
pub(crate) struct DecodeArgs {
    /// Octets as hexadecimal digits; blanks, colons and commas are skipped; `-` reads standard input
    #[arg(long, value_name = "STRING")]
    pub(crate) hex: Option<String>,
    /// Capture file, pcap or pcapng; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Print JSON, one object per frame
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one line per frame and not its fields
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) brief: bool,
    /// With --hex: whether the FPDUs carry a CRC [default: on, or as an MPA start-up frame says]
    #[arg(long, value_enum, conflicts_with = "pcap")]
    pub(crate) crc: Option<Switch>,
    /// With --hex: the FPDUs carry markers, the first at the first octet
    #[arg(long, conflicts_with = "pcap")]
    pub(crate) markers: bool,
    /// With --hex: the octets are a packet of RoCE v2, the payload of a UDP datagram
    #[arg(long, conflicts_with_all = ["pcap", "crc", "markers"])]
    pub(crate) roce: bool,
}
