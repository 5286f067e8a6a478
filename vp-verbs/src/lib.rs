//! A verbs provider over rdma-core: every InfiniBand, RoCE and iWARP device that the kernel
//! offers, opened through `libibverbs.so.1`, connected through `librdmacm.so.1`.
//!
//! Both libraries are loaded at run time ([`Verbs`]), so that building needs nothing of rdma-core. If a library, a
//! device, a kernel module or a permission is missing, the provider reports which. It has its own connection
//! manager ([`vp_api::ConnectionModel::Native`]).
//!
//! Visible differences from SoftRDMA: capabilities and limits are the device's. Memory windows need a device that
//! has them. Only the kernel can use registration through the queue, zero-based addresses and privileged STags.
//! Immediate Data has 4 octets.
//!
//! # Differences between InfiniBand and iWARP
//!
//! The bridge hides differences where it can. Others show in capabilities and limits, which IT-API reports in
//! `it_ia_info_t`; [a C program](tests/c/hardware.c) compares these with the results of the calls.
//!
//! | topic | what the bridge does |
//! |---|---|
//! | transport | `IT_IB_TRANSPORT` for InfiniBand and RoCE, `IT_IWARP_TCP_TRANSPORT` for iWARP; the list of devices has it. Connections use IP addresses on all |
//! | sink of a read | needs the remote write right on iWARP, the local one on InfiniBand: `rdma_read_requires_remote_write` |
//! | windows as sinks, sinks that a read invalidates | not available to processes: `rdma_read_local_extensions` is no, the calls return "not supported" |
//! | a request that fails | ends the connection on the wire at once; rdma-core reports it in the completion only, so the event is delivered when a thread polls or waits at that dispatcher. Otherwise queues would have to be armed for solicited completions all the time: an event of the kernel for each solicited message, on siw for each message |
//! | first message | the initiator on iWARP sends a zero-length Write as soon as it is connected; the acceptor gets its connection event when a receive has completed, or after 20 ms, because the kernel does not report the first message |
//! | three-way handshake | the provider performs it; the application sees a two-way one |
//! | private data | 53, 193 and 145 octets on InfiniBand, whose padding is removed; 252 each on iWARP: `*_private_data_len` |
//! | IRD, ORD | the smaller value of both ends; rdma_cm has at most 254 |
//! | windows | type 1 is wide, type 2 narrow: `rmr_types_supported`. For type 1 the device chooses the key, and the link returns it; unlinking is a zero-length bind |
//! | invalidation | of windows only: invalidation of regions is for the kernel only |
//! | registering through the queue, zero-based addresses, STag 0, sockets | for the kernel only, or not available: the capabilities say so, and the calls are refused |
//! | atomics | standard ones where the device has them |
//! | limit of a QP's own receive queue | no device has it: `soft_hi_watermark_support` is no |
//! | datagrams | InfiniBand and RoCE have them, iWARP not. The path back to a sender is taken from the header in its receive. Services are those of rdma_cm (SIDR): a request has 177 octets of private data, a reply 128; ours also carry, behind the data, the key and the reason of a refusal, of which rdma_cm passes on only one. See `supported_service_types` and *Datagrams*; on iWARP the calls return "not supported" |
//! | a device that is removed | the consumer gets an asynchronous event; connections end, and requests complete as flushed, without the device, also if nothing of it completes them. Everything can be closed; nothing else can be made of it. Drivers without `disassociate_ucontext`, as siw and rxe, are removed only once every process has closed the device |
//! | solicited messages | a completion of rdma-core does not say that its message was solicited: only notifications depend on it |
//! | QP states | Error to Idle makes a new QP of the device, under the same id |

mod addr;
mod cm;
mod completed;
mod cq;
mod device;
mod device_objects;
mod dl;
mod events;
mod hardware;
mod lost;
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
