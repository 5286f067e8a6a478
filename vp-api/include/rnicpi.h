/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * rnicpi.h: the interface between Warpline's access layer ("host") and a verbs provider.
 *
 * The Open Group's RNIC-PI 1.0 is not publicly available. This is a reconstruction of it after the
 * RDMAC Verbs Specification 1.0: the verbs, their modifiers and results are those of that document,
 * names and layouts are ours. C99, and clean as C++98.
 *
 * A provider is a shared library that exports two symbols:
 *
 *     const ri_provider_descriptor warpline_provider;              plain data, read first
 *     const ri_provider_ops *warpline_provider_get_ops(uint32_t host_minor);
 *
 * (a layer, which wraps another provider, exports warpline_provider_wrap instead of the second).
 *
 * Rules
 *
 *   Growth     Every struct except the few marked "fixed" begins with its size in octets, set by the
 *              side that fills it. Structs and tables grow only at their end, with the minor version.
 *              A reader uses the members that both sides know; missing ones count as zero [RI-01]. A
 *              missing or NULL table entry means "not supported" (RI_UNSUPPORTED), except for the
 *              entries marked "required" [RI-02]: without them the host refuses the object. Fields
 *              named reserved must be zero, and are checked [RI-03].
 *   Results    In a struct for a result the caller sets size to the room that the struct has. The
 *              callee writes no more octets than that [RI-195], and sets size to the number written.
 *   Versions   The major versions must be equal; the smaller minor version applies. A provider built
 *              with the newer header gets structs and room of the older size: it treats missing
 *              members as zero [RI-196] and writes those that fit [RI-195]; the host never calls
 *              entries that it does not know. get_ops gets the host's minor version.
 *   Status     Functions return an ri_status; on a refusal they may fill the ri_error, one sentence
 *              for a reader without the source. The host treats an undefined status, a count above
 *              the one requested, and a length above the declared limit as defects of the provider.
 *   Lifetime   Pointers in arguments are borrowed until the call returns, those passed to a callback
 *              until the callback returns. A pointer that is to be used longer comes with an ri_keep:
 *              retain it during the call, release it afterwards. Strings are UTF-8, NUL-terminated
 *              only where the type is const char *. Each side frees the memory that it allocated.
 *   Names      Objects have ids, unique within an RNIC and not reused soon [RI-04]: a stale id
 *              is RI_INVALID_HANDLE [RI-05]. CQs, SRQs and QPs also have a handle, a pointer of the
 *              provider's that the host only passes back. A handle is valid until it is released;
 *              once its object is destroyed its functions return RI_INVALID_HANDLE [RI-06].
 *   Threads    Every function may be called from any thread at any time [RI-07]. Callbacks are made
 *              from any thread, without locks held [RI-08], and do not block. retain only counts, and
 *              may be called with locks held; release may free the object, and is called without. A
 *              function that destroys or replaces an object need not wait for a callback in
 *              progress: the callback holds one reference of its keep until it returns.
 *   Promises   A mark such as [RI-41] follows a promise that the provider suite tests; a case that
 *              fails quotes the mark.
 *   Limits     No exception, longjmp or thread cancellation may cross the interface. A library is
 *              never unloaded.
 */
#ifndef WARPLINE_RNICPI_H
#define WARPLINE_RNICPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RI_MAGIC UINT32_C(0x52495650) /* "RIVP" */
#define RI_MAJOR 1
#define RI_MINOR 4

/* ---- Status --------------------------------------------------------------------------------- */

/* Immediate result of a verb. */
typedef uint32_t ri_status;
#define RI_OK 0
#define RI_INSUFFICIENT_RESOURCES 1 /* out of memory or of table entries */
#define RI_INVALID_MODIFIER 2       /* an argument is not allowed */
#define RI_IN_USE 4                 /* the object is still used by others [RI-10] */
#define RI_INVALID_HANDLE 5         /* no such object, or destroyed */
#define RI_INTERRUPTED 6            /* a signal handler ran in the waiting thread */
#define RI_UNSUPPORTED 10           /* the provider does not do this [RI-22] */
#define RI_CQ_TOO_SMALL 11          /* for the entries it holds [RI-20] */
#define RI_INVALID_PD 13            /* does not exist [RI-188] or does not match */
#define RI_INVALID_ADDRESS 15       /* address range not usable */
#define RI_INVALID_STATE 18         /* not in this QP state [RI-12] */
#define RI_TOO_MANY_WRS 19          /* queue full, or a list longer than the queue [RI-13] */
#define RI_INVALID_WR 20            /* operation not allowed here [RI-21] */
#define RI_INVALID_SGL 21           /* too many elements [RI-14], or a sum above 2^32 - 1 */
#define RI_INVALID_IRD_ORD 25       /* out of range [RI-189] */
#define RI_CANNOT_CHANGE 26         /* the attribute cannot change now */
#define RI_INVALID_STAG 27          /* no such STag [RI-16], or the wrong kind */
#define RI_STAG_IN_USE 30           /* memory windows are bound to the region [RI-17] */
#define RI_INVALID_ACCESS 33        /* rights that do not go together [RI-18] */
#define RI_NOT_PRIVILEGED 75        /* needs a privileged QP or process */
#define RI_STILL_FLUSHING 76        /* to Idle while completions are still being flushed */
#define RI_INVALID_STREAM 77        /* the socket is not a connected stream */
#define RI_CQ_OVERRUN 78            /* completions were lost; the CQ is unusable */
#define RI_OS 79                    /* a system call failed; see the detail */
#define RI_DEFECT 80                /* the provider broke one of its own rules */

/* Filled on a refusal: NUL-terminated UTF-8, cut to fit. The host sets size and clears the rest. */
typedef struct ri_error {
    uint32_t size;
    uint32_t reserved;
    char detail[504]; /* what was wrong, where, limit and value */
    char remedy[256]; /* the remedy; may be empty */
} ri_error;

/* ---- Small fixed types ---------------------------------------------------------------------- */

/* Borrowed text. Fixed. */
typedef struct ri_string {
    const char *data;
    size_t len;
} ri_string;

/* A reference that may be kept beyond a call: retain adds a reference to context, release drops one. Both
 * are NULL if there is nothing to count. Fixed. */
typedef struct ri_keep {
    void *context;
    void (*retain)(void *context);
    void (*release)(void *context);
} ri_keep;

/* Socket address. Fixed. */
typedef struct ri_address {
    uint16_t family; /* 4, 6, or 0: none */
    uint16_t port;   /* host order; 0 where only the address counts */
    uint32_t scope;  /* IPv6 scope id */
    uint8_t octets[16]; /* network order; IPv4: the first four */
} ri_address;

/* Terminate message (RFC 5040 section 4.8). Fixed. */
typedef struct ri_terminate {
    uint8_t sent;  /* 1 if this end sent it */
    uint8_t layer; /* 0 RDMAP, 1 DDP, 2 LLP (MPA) */
    uint8_t etype;
    uint8_t code;
} ri_terminate;

/* Local scatter/gather element: len octets at tagged offset to of region stag. A list is gathered in
 * its order, whatever the lengths are [RI-141], and filled in its order, each element before the next
 * one [RI-142]. Of an element of no octets nothing is checked [RI-250]. Fixed. */
typedef struct ri_sge {
    uint32_t stag, len;
    uint64_t to;
} ri_sge;

/* Memory of the host's process. While a region covers it, and until deregistration returns, the
 * provider holds one use of owner [RI-24]. If owner is empty the host guarantees its lifetime. Fixed. */
typedef struct ri_range {
    void *addr;
    uint64_t len;
    ri_keep owner;
} ri_range;

typedef struct ri_rnic ri_rnic;
typedef struct ri_cq ri_cq;
typedef struct ri_srq ri_srq;
typedef struct ri_qp ri_qp;
typedef struct ri_cm ri_cm;
typedef struct ri_ud ri_ud;
typedef struct ri_paths ri_paths;

/* ---- Host services -------------------------------------------------------------------------- */

#define RI_LOG_ERROR 1
#define RI_LOG_WARN 2
#define RI_LOG_INFO 3
#define RI_LOG_DEBUG 4
#define RI_LOG_TRACE 5

/* A key of the provider's own table in the configuration, and its value as text. Fixed. */
typedef struct ri_setting {
    ri_string key, value;
} ri_setting;

/* Services that all parts of the process share. Given to open; the provider copies the struct and retains
 * keep while it uses it [RI-26]. */
typedef struct ri_services {
    uint32_t size;
    uint32_t reserved;
    ri_keep keep;
    void (*log)(void *context, uint32_t level, ri_string target, ri_string message);
    uint64_t (*now_ns)(void *context); /* monotonic clock */
    /* Pins memory, accounted against the process's limit. */
    ri_status (*pin)(void *context, void *addr, uint64_t len, ri_error *error);
    void (*unpin)(void *context, void *addr, uint64_t len); /* undoes one pin of the same range [RI-27] */
    /* Since 1.4: settings for this provider, good until open returns. One that it does not know:
     * RI_INVALID_MODIFIER [RI-201]. */
    const ri_setting *settings;
    uint32_t setting_count, reserved_settings;
} ri_services;

/* ---- Devices -------------------------------------------------------------------------------- */

/* A port (IT-API: spigot). */
typedef struct ri_port {
    uint32_t size;
    uint32_t online; /* 1: the link is up and it has an address */
    uint32_t mtu;    /* octets */
    uint32_t address_count;
    const ri_address *addresses;
    ri_string interface_name;
} ri_port;

/* Transport of a device. */
#define RI_TRANSPORT_OTHER 0 /* the vendor's own */
#define RI_TRANSPORT_IWARP 1
#define RI_TRANSPORT_INFINIBAND 2 /* over its own links or over Ethernet (RoCE) */

/* A device as listed before it is opened: at least one port [RI-28]. The name is printable, and no other
 * device of the provider has it; else the host refuses the listing. */
typedef struct ri_device {
    uint32_t size;
    uint32_t port_count;
    const ri_port *const *ports; /* pointers, so that ports can grow */
    ri_string name;
    uint32_t transport; /* RI_TRANSPORT_*; since 1.3 */
    uint32_t reserved;
} ri_device;

/* Receivers of lists: called once per element [RI-29], before the listing function returns. */
typedef void (*ri_device_fn)(void *receiver, const ri_device *device);
typedef void (*ri_port_fn)(void *receiver, const ri_port *port);

#define RI_CAP_SRQ (UINT64_C(1) << 0)
#define RI_CAP_SRQ_RESIZE (UINT64_C(1) << 1)
#define RI_CAP_MW (UINT64_C(1) << 2)
#define RI_CAP_INVALIDATE (UINT64_C(1) << 3)     /* Send with Invalidate, Invalidate Local */
#define RI_CAP_FAST_REGISTER (UINT64_C(1) << 4)
#define RI_CAP_SHARED_MR (UINT64_C(1) << 5)
#define RI_CAP_ZERO_BASED (UINT64_C(1) << 6)
#define RI_CAP_PRIVILEGED_STAG (UINT64_C(1) << 7)
#define RI_CAP_ATOMICS (UINT64_C(1) << 8)
#define RI_CAP_MASKED_ATOMICS (UINT64_C(1) << 9)
#define RI_CAP_IMMEDIATE (UINT64_C(1) << 10)
#define RI_CAP_CQ_OVERRUN_EVENT (UINT64_C(1) << 11)
#define RI_CAP_CQ_RESIZE (UINT64_C(1) << 12)
#define RI_CAP_QP_RESIZE (UINT64_C(1) << 13)
#define RI_CAP_READ_SINK_LOCAL_WRITE (UINT64_C(1) << 14) /* read sinks need no remote right */
#define RI_CAP_UD (UINT64_C(1) << 15) /* since 1.3: ri_rnic_ops.datagrams */
/* Since 1.2; before, RI_CAP_MW meant both kinds of window, and with RI_CAP_INVALIDATE the third. */
#define RI_CAP_NARROW_MW (UINT64_C(1) << 16) /* windows of RI_MW_NARROW */
#define RI_CAP_WIDE_MW (UINT64_C(1) << 17)   /* windows of RI_MW_WIDE */
#define RI_CAP_READ_SINK_STAG (UINT64_C(1) << 18) /* sinks of reads: windows, invalidated after */
#define RI_CAP_RECV_LIMIT (UINT64_C(1) << 19)     /* ri_qp_init.recv_limit */
#define RI_CAP_PICKS_WIDE_KEY (UINT64_C(1) << 20) /* query_mw returns the key once a bind is posted */
#define RI_CAP_BASED (UINT64_C(1) << 21)          /* since 1.4: RI_ADDRESSING_BASED */
#define RI_CAP_HOLD (UINT64_C(1) << 22)           /* since 1.4: RI_QP_HOLD */
#define RI_CAP_SEND_IMMEDIATE (UINT64_C(1) << 23) /* since 1.4: RI_OP_SEND_IMMEDIATE */
/* 1 << 24 was local streams whose doorbells were written to; not used any more. */
#define RI_CAP_ALLOW (UINT64_C(1) << 25)          /* since 1.4: RI_QP_ALLOW */
#define RI_CAP_DISCARD (UINT64_C(1) << 26)        /* since 1.4: RI_QP_DISCARD */
#define RI_CAP_LOCAL_STREAM (UINT64_C(1) << 27)   /* since 1.4: RI_STREAM_LOCAL */

#define RI_MODEL_LLP_STREAM 1 /* takes over a connected TCP stream: ri_qp_change.stream */
#define RI_MODEL_NATIVE 2     /* has its own connection manager: ri_rnic_ops.native_cm */

/* Limits and capabilities (Query RNIC), all true: the maximum works, memory permitting [RI-31].
 * The host copies the strings as soon as the call has returned. */
typedef struct ri_rnic_attrs {
    uint32_t size;
    uint32_t connection_model;
    uint64_t capabilities;
    ri_string vendor;
    ri_string model;
    ri_string firmware;
    uint64_t max_mr_octets;
    uint32_t max_qp, max_wr_per_qp, max_wr_per_srq, max_sge_send;
    uint32_t max_sge_recv, max_sge_write, max_sge_read, max_inline;
    uint32_t max_cq, max_cqe, max_srq, max_pd;
    uint32_t max_mr, max_mw, max_ird, max_ord;
    uint32_t max_message; /* octets */
    uint32_t reserved;
    /* Since 1.2: octets of private data that the connection manager takes [RI-32]; 0: as MPA. */
    uint32_t max_private_connect, max_private_accept, max_private_reject;
    uint32_t reserved_private;
} ri_rnic_attrs;

/* ---- Asynchronous events -------------------------------------------------------------------- */

/* Which are due: CQ_OVERRUN, SRQ_LIMIT and RECV_LIMIT with the capability of that name; PORT_STATE
 * and CATASTROPHIC whenever they happen. With RI_MODEL_LLP_STREAM ESTABLISHED, and then one of
 * CLOSE_COMPLETE, TERMINATE_RECEIVED, TERMINATE_SENT, CONNECTION_RESET, CONNECTION_LOST and BAD_CLOSE
 * as the end of each stream. With RI_MODEL_NATIVE the connection manager's events report all
 * of connections; a device that knows the cause of an end may report it by one of these before
 * RI_CM_DISCONNECTED. */
#define RI_SOURCE_QP 1
#define RI_SOURCE_CQ 2
#define RI_SOURCE_SRQ 3
#define RI_SOURCE_RNIC 4
#define RI_SOURCE_PORT 5 /* id: index into the ports */

#define RI_EVENT_ESTABLISHED 1        /* both directions of the stream are usable [RI-33] */
#define RI_EVENT_CLOSE_COMPLETE 2     /* graceful close finished; the QP is Idle [RI-34] */
#define RI_EVENT_TERMINATE_RECEIVED 3 /* terminate has the code [RI-35] */
#define RI_EVENT_TERMINATE_SENT 4     /* terminate has the code [RI-36] */
#define RI_EVENT_CONNECTION_RESET 5   /* by the peer [RI-37] */
#define RI_EVENT_CONNECTION_LOST 6 /* peer or path gone */
#define RI_EVENT_BAD_CLOSE 7       /* closed with requests outstanding */
#define RI_EVENT_CQ_OVERRUN 8         /* with RI_CAP_CQ_OVERRUN_EVENT, once per CQ [RI-38] */
#define RI_EVENT_SRQ_LIMIT 9          /* fewer than limit remain [RI-39] */
#define RI_EVENT_RECV_LIMIT 10        /* more than recv_limit are taken and not polled [RI-40] */
#define RI_EVENT_PORT_STATE 11 /* online has the new state */
#define RI_EVENT_CATASTROPHIC 12

typedef struct ri_async_event {
    uint32_t size;
    uint32_t source; /* RI_SOURCE_* */
    uint32_t id;
    uint32_t event; /* RI_EVENT_* */
    ri_terminate terminate;
    uint32_t online;
} ri_async_event;

/* Receiver of asynchronous events; call NULL: none. The provider retains keep while it may call [RI-41].
 */
typedef struct ri_async_handler {
    uint32_t size;
    uint32_t reserved;
    ri_keep keep;
    void (*call)(void *context, const ri_async_event *event);
} ri_async_handler;

/* ---- Memory --------------------------------------------------------------------------------- */

/* A region has a local right at least: neither of both is RI_INVALID_ACCESS [RI-152]. */
#define RI_ACCESS_LOCAL_READ 0x08u
#define RI_ACCESS_LOCAL_WRITE 0x10u
#define RI_ACCESS_REMOTE_READ 0x20u  /* needs LOCAL_READ [RI-149] */
#define RI_ACCESS_REMOTE_WRITE 0x40u /* needs LOCAL_WRITE [RI-43] */
#define RI_ACCESS_BIND 0x80u /* windows may be bound to it [RI-207] */
#define RI_ACCESS_REMOTE_ATOMIC 0x100u /* needs both local rights; for each atomic [RI-148] */

#define RI_ADDRESSING_ABSOLUTE 0   /* tagged offset = virtual address */
#define RI_ADDRESSING_ZERO_BASED 1 /* tagged offset = offset from the first octet [RI-44] */
/* Since 1.4, with RI_CAP_BASED: base is the tagged offset of the first octet [RI-223], in elements
 * [RI-224] and for windows that are bound to the region [RI-225], too. base and octets together stay
 * below 2^64, else it is RI_INVALID_ADDRESS [RI-226]. With other addressing base means nothing. */
#define RI_ADDRESSING_BASED 2

typedef struct ri_mr_init {
    uint32_t size;
    uint32_t pd;
    ri_range range;
    uint32_t addressing, access;
    uint32_t key; /* consumer's octet of the STag, checked whenever the STag is used [RI-45] */
    uint32_t pin; /* 1: pin the pages [RI-46] */
    uint64_t base; /* since 1.4 */
} ri_mr_init;

/* A region of its own over the memory of another, with which only the memory is shared [RI-48]. */
typedef struct ri_shared_mr_init {
    uint32_t size;
    uint32_t original; /* STag */
    uint32_t pd, addressing, access, key;
    uint64_t base; /* since 1.4 */
} ri_shared_mr_init;

/* A region as it is now [RI-47]. */
typedef struct ri_mr_info {
    uint32_t size;
    uint32_t stag; /* with the key if valid */
    /* shared: others have the same memory; both say so, the first region as soon as there is a second [RI-137]. */
    uint32_t pd, valid, shared, addressing;
    uint64_t addr; /* 0 if invalid */
    uint64_t len;
    uint32_t access, bound_windows; /* how many are bound to it [RI-49] */
    uint64_t base; /* since 1.4 */
} ri_mr_info;

#define RI_MW_WIDE 1   /* usable by every QP of the PD (IB type 1) [RI-50] */
#define RI_MW_NARROW 2 /* usable by the QP that bound it (RDMAC, IB type 2) [RI-51] */

typedef struct ri_mw_info {
    uint32_t size;
    uint32_t id, kind, pd;
    uint32_t bound; /* 1: stag and the rest are meaningful [RI-52] */
    uint32_t stag, access, has_region, region;
    uint32_t addressing;
    uint64_t to, len;
    uint64_t base; /* since 1.4 */
} ri_mw_info;

/* ---- Work requests and completions ---------------------------------------------------------- */

#define RI_OP_SEND 1             /* stag with INVALIDATE: the peer's STag to invalidate [RI-53] */
#define RI_OP_WRITE 2            /* stag, to: the peer's memory, at its very octet [RI-54] */
#define RI_OP_WRITE_IMMEDIATE 3  /* and immediate, all of it [RI-55] */
#define RI_OP_IMMEDIATE 4        /* immediate, all of it [RI-56] */
#define RI_OP_READ 5 /* stag, to, with the right [RI-57]; INVALIDATE: the sink's STag after [RI-58] */
#define RI_OP_ATOMIC 6           /* extra: ri_atomic; the one SGE gets the original value [RI-59] */
#define RI_OP_BIND_MW 7          /* extra: ri_bind_mw, with its rights and range only [RI-60] */
#define RI_OP_FAST_REGISTER 8    /* extra: ri_fast_register, likewise [RI-61] */
#define RI_OP_INVALIDATE_LOCAL 9 /* stag [RI-62] */
/* Since 1.4, with RI_CAP_SEND_IMMEDIATE: a Send with immediate, of 32 bits, beside its data. It completes as
 * RI_WC_SEND, and there as RI_WC_RECV with RI_WC_FLAG_IMMEDIATE [RI-227]. With RI_MODEL_LLP_STREAM only on a
 * stream with RI_STREAM_SEND_IMMEDIATES, on others it is RI_UNSUPPORTED [RI-228]; posted in Idle, before the
 * stream is known, it ends the stream when it is due to be sent. */
#define RI_OP_SEND_IMMEDIATE 10

#define RI_SEND_SIGNALED 1u    /* a completion on success too, else none [RI-63] */
#define RI_SEND_READ_FENCE 2u  /* wait for earlier reads [RI-64] */
#define RI_SEND_LOCAL_FENCE 4u /* wait for all earlier requests [RI-65] */
#define RI_SEND_SOLICITED 8u   /* solicited event at the peer [RI-66] */
#define RI_SEND_INVALIDATE 16u
#define RI_SEND_INLINE 32u /* data are octets, to be copied during the call [RI-67] */

/* Send-queue work request. In a list every request has the size of the first [RI-68]. */
typedef struct ri_send_wr {
    uint32_t size;
    uint32_t opcode;
    uint64_t wr_id;
    uint32_t flags;
    uint32_t count;   /* SGEs, or octets with INLINE */
    const void *data; /* ri_sge[count], or octets */
    uint32_t stag;
    uint32_t reserved;
    uint64_t to, immediate;
    const void *extra;
} ri_send_wr;

#define RI_ATOMIC_FETCH_ADD 0
#define RI_ATOMIC_CMP_SWAP 2

/* RFC 7306, with its masks [RI-70]; masks 0 (FetchAdd) and all ones (CmpSwap) are the plain forms, of
 * 64 bits [RI-69]. */
typedef struct ri_atomic {
    uint32_t size;
    uint32_t op;
    uint64_t operand; /* to add, or to swap in */
    uint64_t operand_mask, compare, compare_mask;
} ri_atomic;

/* Bind Memory Window; length 0 unbinds [RI-71]. */
typedef struct ri_bind_mw {
    uint32_t size;
    uint32_t window, key, region;
    uint64_t to, len;
    uint32_t addressing, access;
    uint64_t base; /* since 1.4 */
} ri_bind_mw;

typedef struct ri_fast_register {
    uint32_t size;
    uint32_t stag; /* index as allocated, key as wanted */
    ri_range range;
    uint32_t addressing, access;
    uint64_t base; /* since 1.4 */
} ri_fast_register;

/* Receive work request. In a list every request has the size of the first [RI-72]. */
typedef struct ri_recv_wr {
    uint32_t size;
    uint32_t count;
    uint64_t wr_id;
    const ri_sge *sgl;
} ri_recv_wr;

#define RI_WC_SEND 1
#define RI_WC_WRITE 5
#define RI_WC_READ 6
#define RI_WC_BIND_MW 8
#define RI_WC_FAST_REGISTER 9
#define RI_WC_INVALIDATE_LOCAL 10
#define RI_WC_RECV 11
#define RI_WC_ATOMIC 16
#define RI_WC_IMMEDIATE 17
#define RI_WC_WRITE_IMMEDIATE 18
#define RI_WC_RECV_IMMEDIATE 19

#define RI_WC_SUCCESS 0
#define RI_WC_INVALID_STAG 27
#define RI_WC_FLUSHED 38 /* not done: the QP left RTS before [RI-74] */
#define RI_WC_INVALID_WQE 39
#define RI_WC_LOCAL_CATASTROPHIC 40
#define RI_WC_REMOTE_TERMINATION 41
#define RI_WC_BOUNDS 42 /* a message longer than its receive, or outside of a region [RI-75] */
#define RI_WC_ACCESS_VIOLATION 43
#define RI_WC_INVALID_PD 44
#define RI_WC_WRAP 45
#define RI_WC_CANNOT_INVALIDATE 46
#define RI_WC_ZERO_READ_RESOURCES 47
#define RI_WC_NOT_PRIVILEGED 48 /* needs a QP with RI_QP_PRIVILEGED [RI-19] */
#define RI_WC_STAG_NOT_INVALID 49
#define RI_WC_INVALID_WINDOW 59
#define RI_WC_INVALID_LENGTH 60

#define RI_WC_FLAG_SOLICITED 1u
#define RI_WC_FLAG_INVALIDATED 2u /* invalidated is meaningful: what the peer invalidated [RI-76] */
#define RI_WC_FLAG_IMMEDIATE 4u   /* immediate is meaningful: what the peer sent [RI-77] */

/* Work completion: names the request, its kind and its QP [RI-143]. In a list every completion has the size of
 * the first. The completions of a send queue come in the order of its requests [RI-150], and so do those of a
 * receive queue [RI-151]. What happens to a Send without a receive is the transport's, unless the QP has
 * RI_QP_HOLD: hosts post receives before their peers send. octets: of a receive, of a read; of
 * RI_WC_RECV_IMMEDIATE those that the Write directly before it has placed, 0 if there is none [RI-191]. */
typedef struct ri_wc {
    uint32_t size;
    uint32_t opcode;
    uint64_t wr_id;
    uint32_t qp, status, flags, octets; /* octets received, or read [RI-73] */
    uint64_t immediate;
    uint32_t invalidated;
    uint32_t reserved;
} ri_wc;

/* ---- Datagrams (since 1.3) ------------------------------------------------------------------ */

#include "rnicpi_ud.h"

/* ---- Completion queues ---------------------------------------------------------------------- */

typedef struct ri_cq_init {
    uint32_t size;
    uint32_t depth; /* entries wanted; at least so many are given [RI-79] */
    /* Called once per armed notification [RI-80]; call NULL: never. The provider retains keep until
     * the CQ is destroyed and released [RI-82]. */
    ri_keep keep;
    void (*call)(void *context, uint32_t cq); /* with the id of that CQ [RI-144] */
} ri_cq_init;

#define RI_WAIT_FOR_EVER UINT64_MAX

typedef struct ri_cq_ops {
    uint32_t size;
    uint32_t reserved;
    /* Required: the host's last use of the handle. */
    void (*release)(ri_cq *cq);
    uint32_t (*depth)(ri_cq *cq); /* Required: entries that it can hold. */
    /* Required. Moves up to max completions, oldest first [RI-83], to wcs, which lie wc_size octets
     * apart [RI-84], and makes progress if there is none. RI_CQ_OVERRUN once drained after an overrun
     * [RI-86]. */
    ri_status (*poll)(ri_cq *cq, ri_wc *wcs, uint32_t wc_size, uint32_t max, uint32_t *count);
    /* Required. One shot: for the next completion [RI-87], or the next solicited one (errors count)
     * [RI-88]. */
    ri_status (*arm)(ri_cq *cq, uint32_t solicited_only);
    /* Required. Waits until poll may find something [RI-89]: spins for spin_ns, then sleeps until
     * timeout_ns in all. *ready: 1, or 0 after the time-out or an interrupt [RI-90]. */
    ri_status (*wait)(ri_cq *cq, uint64_t spin_ns, uint64_t timeout_ns, uint32_t *ready);
    void (*interrupt)(ri_cq *cq); /* Required: every present wait returns soon [RI-91]. */
    /* What it holds stays; *actual: the new depth [RI-92]. */
    ri_status (*resize)(ri_cq *cq, uint32_t depth, uint32_t *actual, ri_error *error);
    uint64_t (*queued)(ri_cq *cq); /* Since 1.1: completions that wait, about [RI-93]. */
    /* Since 1.3, needed with RI_CAP_UD. As poll; sources, which lie source_size octets apart, get
     * those of received datagrams. */
    ri_status (*poll_from)(ri_cq *cq, ri_wc *wcs, uint32_t wc_size, ri_ud_source *sources,
                           uint32_t source_size, uint32_t max, uint32_t *count);
} ri_cq_ops;

typedef struct ri_cq_made {
    uint32_t size;
    uint32_t id;
    ri_cq *cq;
    const ri_cq_ops *ops;
} ri_cq_made;

/* ---- Shared receive queues ------------------------------------------------------------------ */

typedef struct ri_srq_init {
    uint32_t size;
    uint32_t pd, depth, max_sge; /* query returns the depth granted, the most accepted [RI-145] */
    uint32_t limit; /* one-shot event when fewer remain; 0: not armed [RI-94] */
} ri_srq_init;

typedef struct ri_srq_info {
    uint32_t size;
    uint32_t pd, depth, max_sge, limit;
    uint32_t posted; /* receives that wait [RI-97] */
} ri_srq_info;

#define RI_SRQ_DEPTH 1u
#define RI_SRQ_LIMIT 2u

typedef struct ri_srq_ops {
    uint32_t size;
    uint32_t reserved;
    void (*release)(ri_srq *srq); /* Required. */
    /* Required. The first *posted requests are queued, whatever the status [RI-95]; refusals are those of a
     * queue pair's post_send. A slot is free when its completion was polled, from whichever CQ it came to, and
     * not before [RI-193]. When destroy_qp removes that completion, or ends a receive that a message had begun to
     * fill, the slot is free as well [RI-240]. Hosts do not count on those whose completions an overrun lost. */
    ri_status (*post_recv)(ri_srq *srq, const ri_recv_wr *wrs, uint32_t count, uint32_t *posted);
    /* which: RI_SRQ_DEPTH and RI_SRQ_LIMIT select what changes [RI-96]. */
    ri_status (*modify)(ri_srq *srq, uint32_t which, uint32_t depth, uint32_t limit,
                        ri_srq_info *info, ri_error *error);
    ri_status (*query)(ri_srq *srq, ri_srq_info *info, ri_error *error);
} ri_srq_ops;

typedef struct ri_srq_made {
    uint32_t size;
    uint32_t id;
    ri_srq *srq;
    const ri_srq_ops *ops;
} ri_srq_made;

/* ---- Queue pairs ---------------------------------------------------------------------------- */

#include "rnicpi_qp.h"

/* ---- Native connection manager -------------------------------------------------------------- */

#include "rnicpi_cm.h"

/* ---- Bring-up by path (since 1.4) ----------------------------------------------------------- */

#include "rnicpi_path.h"

/* ---- Vendor calls (since 1.4) --------------------------------------------------------------- */

/* Functions of the provider's own, which an application gets from its adapter by name. The vendor's header
 * describes table. Its functions take context first, and may be called from any thread, until the RNIC is
 * closed: every call with that name gets the same two pointers, whichever objects come and go [RI-197]. */
typedef struct ri_vendor_calls {
    uint32_t size;
    uint32_t reserved;
    const void *table;
    void *context;
} ri_vendor_calls;

/* ---- RNIC ----------------------------------------------------------------------------------- */

typedef struct ri_rnic_ops {
    uint32_t size;
    uint32_t reserved;
    /* Required. The host has released every handle of this RNIC before; everything is freed [RI-122].
     */
    void (*close)(ri_rnic *rnic);
    void (*attrs)(ri_rnic *rnic, ri_rnic_attrs *attrs); /* Required. */
    void (*ports)(ri_rnic *rnic, void *receiver, ri_port_fn fn); /* Required. */
    /* Replaces the handler [RI-42]; events before the first one are lost. */
    void (*set_async_handler)(ri_rnic *rnic, const ri_async_handler *handler);
    ri_status (*alloc_pd)(ri_rnic *rnic, uint32_t *pd, ri_error *error);  /* Required. */
    ri_status (*dealloc_pd)(ri_rnic *rnic, uint32_t pd, ri_error *error); /* Required. */
    ri_status (*create_cq)(ri_rnic *rnic, const ri_cq_init *init, ri_cq_made *made,
                           ri_error *error); /* Required. */
    /* Required. Does not wait for a notification that is under way in another thread [RI-200]. */
    ri_status (*destroy_cq)(ri_rnic *rnic, uint32_t cq, ri_error *error);
    ri_status (*create_srq)(ri_rnic *rnic, const ri_srq_init *init, ri_srq_made *made,
                            ri_error *error);
    ri_status (*destroy_srq)(ri_rnic *rnic, uint32_t srq, ri_error *error);
    ri_status (*create_qp)(ri_rnic *rnic, const ri_qp_init *init, ri_qp_made *made,
                           ri_error *error); /* Required. */
    /* Required. In any state. No completion of it is queued afterwards, and no memory of the
     * consumer's is touched. Its completions leave its CQs: a poll that begins afterwards finds none
     * [RI-155], they take no room, and those of other QPs stay, in their order [RI-154]. What
     * completed with success before still arrives at a peer that takes it, for as long as
     * close_timeout_ns allows [RI-190]; the call does not wait for it. In RTS with nothing under way
     * the stream is closed after that [RI-202]; if work requests or the peer's reads are lost by it, it
     * is reset after that [RI-203]. */
    ri_status (*destroy_qp)(ri_rnic *rnic, uint32_t qp, ri_error *error);
    ri_status (*register_mr)(ri_rnic *rnic, const ri_mr_init *init, uint32_t *stag,
                             ri_error *error); /* Required. */
    /* The old STag ends; init has the new attributes [RI-138]. Any refusal but RI_STAG_IN_USE and
     * RI_INVALID_STAG destroys the region (RDMAC 9.2.6) [RI-123]. */
    ri_status (*reregister_mr)(ri_rnic *rnic, uint32_t stag, const ri_mr_init *init,
                               uint32_t *actual, ri_error *error);
    ri_status (*register_shared_mr)(ri_rnic *rnic, const ri_shared_mr_init *init, uint32_t *stag,
                                    ri_error *error);
    /* In state Invalid [RI-47], for fast registration. */
    ri_status (*alloc_stag)(ri_rnic *rnic, uint32_t pd, uint32_t remote, uint32_t *stag,
                            ri_error *error);
    ri_status (*query_mr)(ri_rnic *rnic, uint32_t stag, ri_mr_info *info, ri_error *error);
    /* Required. When it returns, nothing of the region is touched [RI-124] and its owner is released
     * [RI-25]. */
    ri_status (*dealloc_stag)(ri_rnic *rnic, uint32_t stag, ri_error *error);
    ri_status (*alloc_mw)(ri_rnic *rnic, uint32_t pd, uint32_t kind, uint32_t *mw,
                          ri_error *error);
    ri_status (*query_mw)(ri_rnic *rnic, uint32_t mw, ri_mw_info *info, ri_error *error);
    /* A bound window is unbound [RI-139]. */
    ri_status (*dealloc_mw)(ri_rnic *rnic, uint32_t mw, ri_error *error);
    /* Required with RI_MODEL_NATIVE. Called once, while the host opens the device. */
    ri_status (*native_cm)(ri_rnic *rnic, ri_cm_made *made, ri_error *error);
    /* Since 1.3, required with RI_CAP_UD. Called once, while the host opens the device. */
    ri_status (*datagrams)(ri_rnic *rnic, ri_ud_made *made, ri_error *error);
    /* Since 1.4. By a name with its version, e.g. "acme.telemetry/1": another layout has another name.
     * None of that name: RI_UNSUPPORTED, and the error lists the names [RI-160]. */
    ri_status (*vendor_calls)(ri_rnic *rnic, ri_string name, ri_vendor_calls *calls,
                              ri_error *error);
    /* Since 1.4. Serves the connections in the calling thread until the descriptor `until` is readable
     * (*ready: 1) [RI-213] or timeout_ns have passed (UINT64_MAX: never; *ready: 0) [RI-214]. Handlers of
     * armed CQs, of any number, are called meanwhile [RI-215]. The descriptor is not kept. RI_INTERRUPTED
     * after a signal handler. NULL: the host's thread sleeps on the descriptor alone. */
    ri_status (*lead)(ri_rnic *rnic, int32_t until, uint64_t timeout_ns, uint32_t *ready);
    /* Since 1.4. Bring-up of queue pairs by path, without a connection manager. NULL or RI_UNSUPPORTED: there is
     * none. Called once, while the host opens the device. */
    ri_status (*paths)(ri_rnic *rnic, ri_paths_made *made, ri_error *error);
} ri_rnic_ops;

typedef struct ri_rnic_made {
    uint32_t size;
    uint32_t reserved;
    ri_rnic *rnic;
    const ri_rnic_ops *ops;
} ri_rnic_made;

/* ---- Provider ------------------------------------------------------------------------------- */

typedef struct ri_provider_ops {
    uint32_t size;
    uint32_t reserved;
    void *context; /* first argument of each function; may be NULL */
    /* Required. Lists usable devices; RI_UNSUPPORTED with detail and remedy if there is none. */
    ri_status (*devices)(void *context, void *receiver, ri_device_fn fn, ri_error *error);
    /* Required. Opens a device by name, that one or none [RI-128]. */
    ri_status (*open)(void *context, ri_string device, const ri_services *services,
                      ri_rnic_made *made, ri_error *error);
} ri_provider_ops;

/* Readable before any code of the provider runs. */
typedef struct ri_provider_descriptor {
    uint32_t size;
    uint32_t magic; /* RI_MAGIC */
    uint16_t major; /* RI_MAJOR */
    uint16_t minor; /* RI_MINOR of the header it was built with */
    uint32_t reserved;
    const char *name;      /* stable, e.g. "vp_softrdma": a-z, 0-9, _ and - */
    const char *version;   /* version or build id, for listings */
    uint64_t capabilities; /* the most that its devices may offer; RI_CAP_* */
} ri_provider_descriptor;

/* NULL: it cannot serve a host of this minor version. Hosts read the table at any time: make it static. */
typedef const ri_provider_ops *(*ri_get_ops_fn)(uint32_t host_minor);

/* A layer is a library that wraps another provider: it exports the descriptor and, instead of
 * get_ops, this, which is called once for every provider that it is to wrap; so the tables that it
 * returns differ at least in their context. inner stays good for ever, and hosts read what it returns
 * at any time; NULL refuses. arguments are those of the configuration. What inner lacks at its end counts as zero. */
typedef const ri_provider_ops *(*ri_wrap_fn)(uint32_t host_minor, const ri_provider_ops *inner,
                                             ri_string arguments, ri_error *error);

#define RI_DESCRIPTOR_SYMBOL "warpline_provider"
#define RI_GET_OPS_SYMBOL "warpline_provider_get_ops"
#define RI_WRAP_SYMBOL "warpline_provider_wrap"

#if defined(__GNUC__)
#define RI_EXPORT __attribute__((visibility("default")))
#else
#define RI_EXPORT
#endif

#ifdef RI_BUILDING_PROVIDER
RI_EXPORT extern const ri_provider_descriptor warpline_provider;
RI_EXPORT const ri_provider_ops *warpline_provider_get_ops(uint32_t host_minor);
RI_EXPORT const ri_provider_ops *warpline_provider_wrap(uint32_t host_minor,
                                                        const ri_provider_ops *inner,
                                                        ri_string arguments, ri_error *error);
#endif

#ifdef __cplusplus
}
#endif

#endif
