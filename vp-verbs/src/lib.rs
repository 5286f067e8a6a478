//! A verbs provider over rdma-core: every InfiniBand, RoCE and iWARP device that the kernel
//! offers, opened through `libibverbs.so.1`, connected through `librdmacm.so.1`.
//!
//! Both libraries are loaded at run time ([`Verbs`]): nothing of rdma-core is needed to build, and
//! where it, a device, a kernel module or a permission is missing, the provider says which. It has
//! its own connection manager ([`vp_api::ConnectionModel::Native`]).
//!
//! What differs from SoftRDMA and is visible: capabilities and limits are the device's. Windows
//! need a device with windows; registering through the queue, zero-based addresses and privileged
//! STags are the kernel's alone; Immediate Data has 4 octets.
//!
//! # Handling of differences
//!
//! `vp-verbs` brings the devices of rdma-core, whose libraries are loaded when they are there. What
//! InfiniBand does otherwise than iWARP is reconciled there or said by capabilities and limits,
//! which IT-API passes on in `it_ia_info_t`; [a C program](tests/c/hardware.c) holds its answers
//! against what the calls do.
//!
//! | topic | handling |
//! |---|---|
//! | transport | `IT_IB_TRANSPORT` for InfiniBand and RoCE, `IT_IWARP_TCP_TRANSPORT` for iWARP; a device says it as it is listed. Connections are addressed by IP everywhere |
//! | sink of a read | a right of its own on iWARP, the local one on InfiniBand: `rdma_read_requires_remote_write` |
//! | windows as sinks, sinks that a read invalidates | processes cannot: `rdma_read_local_extensions` is no, the calls return "not supported" |
//! | a request that fails | ends the connection on the wire at once; rdma-core reports it in the completion only, so the event comes when a thread polls or waits at that dispatcher. An event without a poll would need queues that are always armed for solicited completions: an event of the kernel for each solicited message, on siw for each one |
//! | first message | the initiator on iWARP greets with a Write of no octets as soon as it is connected; the acceptor reports its connection after a completed receive, or after 20 ms, because the kernel does not report a first message |
//! | three-way handshake | made by the provider; the application sees two ways |
//! | private data | 53, 193 and 145 octets on InfiniBand, whose padding is taken off again; 252 each on iWARP: `*_private_data_len` |
//! | IRD, ORD | the least of what both ends want; rdma_cm counts to 254 |
//! | windows | type 1 is wide, type 2 narrow: `rmr_types_supported`. Of type 1 the device picks the key, and the link returns that one; unlinking is a bind of no octets |
//! | invalidation | windows only: regions are invalidated by the kernel alone |
//! | registering through the queue, zero-based addresses, STag 0, sockets | the kernel's alone, or not there: said, and refused |
//! | atomics | plain ones where the device has them |
//! | limit of a QP's own receive queue | no device has it: `soft_hi_watermark_support` is no |
//! | datagrams | InfiniBand and RoCE have them, iWARP not. The address of a sender is read from the header in its receive. Services are rdma_cm's (SIDR): a request has 177 octets of private data, a response 128; ours carry the key and the refusal, of which rdma_cm passes on one each, behind the data. `supported_service_types` says so, see *Datagrams*; on iWARP the calls return "not supported" |
//! | QP states | a QP of the device is made anew for each Error to Idle, under the same id |

mod addr;
mod cm;
mod completed;
mod cq;
mod device;
mod device_objects;
mod dl;
mod events;
mod hardware;
mod machine;
mod map;
mod mr;
mod mw;
mod object_table;
mod owned;
mod ports;
mod provider;
mod qp;
mod queue;
mod ring;
mod rnic;
mod srq;
mod thread;
mod tuning;
mod ud;
mod wire;

pub use dl::Libraries;
pub use machine::Machine;
pub use provider::{NAME, Verbs};
