/*
 * Scalars, handles, addresses, paths, memory segments.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_TYPES_H
#define ITAPI_TYPES_H

/** The caller gives a value to the function. */
#define IN
/** The function gives a value to the caller. */
#define OUT

/** Names registered memory to the peer (STag). A number: the application picks its byte order. */
typedef uint64_t it_rmr_context_t;
/** An address or offset in the peer's memory. */
typedef uint64_t it_rdma_addr_t;
/** A length or offset in octets. */
#ifdef IT_32BIT
typedef uint32_t it_length_t;
#else
typedef uint64_t it_length_t;
#endif
/** Names a connection request until it is accepted, rejected or handed off. */
typedef uint64_t it_cn_est_identifier_t;
/** Names a UD service request until it is replied to. */
typedef uint64_t it_ud_svc_req_identifier_t;
/** An InfiniBand service, network byte order. */
typedef uint64_t it_ib_serviceid_t;
/** Number of an unreliable datagram endpoint. */
typedef uint32_t it_ud_ep_id_t;
/** Key of an unreliable datagram endpoint. */
typedef uint32_t it_ud_ep_key_t;
/** An InfiniBand port address. */
typedef struct in6_addr it_ib_gid_t;

/*
 * How the application names a request; returned in its completion. Passed by value.
 */
#ifdef ITAPI_ZRL_EXTENSIONS
struct it_Bit128_t {
    uint64_t mFirst;
    uint64_t mSecond;
};
struct it_Bit192_t {
    uint64_t mFirst;
    uint64_t mSecond;
    uint64_t mExtend;
};
#ifndef __cplusplus
typedef struct it_Bit128_t it_Bit128_t;
typedef struct it_Bit192_t it_Bit192_t;
#endif
typedef it_Bit192_t it_dto_cookie_t;

/** Copies a cookie. */
static inline void CookieAssign(it_dto_cookie_t *out, const it_dto_cookie_t *in)
{
    *out = *in;
}
#else
typedef uint64_t it_dto_cookie_t;
#endif

/** Any handle. A handle of a particular kind converts to it. */
typedef void *it_handle_t;
/** Names no object. */
#define IT_NULL_HANDLE ((it_handle_t)NULL)

/** Address handle. */
typedef struct it_addr_handle_s *it_addr_handle_t;
/** Endpoint (EP). */
typedef struct it_ep_handle_s *it_ep_handle_t;
/** Event dispatcher: simple (SEVD) or aggregate (AEVD). */
typedef struct it_evd_handle_s *it_evd_handle_t;
/** Interface adapter (IA). */
typedef struct it_ia_handle_s *it_ia_handle_t;
/** Listener. */
typedef struct it_listen_handle_s *it_listen_handle_t;
/** Local memory region (LMR). */
typedef struct it_lmr_handle_s *it_lmr_handle_t;
/** Protection zone (PZ): objects work together only inside one. */
typedef struct it_pz_handle_s *it_pz_handle_t;
/** Remote memory region (RMR): a window into an LMR. */
typedef struct it_rmr_handle_s *it_rmr_handle_t;
/** UD service request. */
typedef struct it_ud_svc_req_handle_s *it_ud_svc_req_handle_t;
/** Shared receive queue (SRQ). */
typedef struct it_srq_handle_s *it_srq_handle_t;
/** An address on the I/O bus. */
typedef struct it_io_addr_s *it_io_addr_t;

/** Runs when an EVD's notification criteria are met, in a thread of the library: do not block. */
typedef void (*it_evd_callback_rtn_t)(IN it_evd_handle_t evd_handle, IN void *arg);

/** Wait without a time-out. */
#define IT_TIMEOUT_INFINITE ((uint64_t)(-1))
/** An SEVD with this threshold does not notify. */
#define IT_THRESHOLD_DISABLE 0
/** No hard high watermark. 0 means the same here. */
#define IT_HARD_HI_WATERMARK_DISABLE ((size_t)-1)
/**
 * Octets of private data in an event, and the most that a call takes. An event does not tell how many the peer sent: octets
 * behind them are 0, so that data whose length varies has to contain it. A peer with another interface may send up to 512
 * octets; what does not fit is cut, and a warning names both numbers (itw_log_callback(), or standard error).
 */
#ifdef ITAPI_ZRL_EXTENSIONS
#define IT_MAX_PRIV_DATA 64
#else
#define IT_MAX_PRIV_DATA 256
#endif
#define IT_MAX_VIA_DISC_LEN 64
#define IT_MAX_VIA_ADDR_LEN 64

/** What an application attaches to an object. */
typedef union {
    void *ptr;
    uint64_t index;
} it_context_t;

/** A VIA connection discriminator. */
typedef struct {
    uint16_t len;
    unsigned char discriminator[IT_MAX_VIA_DISC_LEN];
} it_via_discriminator_t;

/** A local and a remote TCP port, network byte order. Local 0: any. */
typedef struct {
    uint16_t local;
    uint16_t remote;
} it_iana_lr_port_t;

/** Where to listen or connect. */
typedef struct {
    it_conn_qual_type_t type;
    union {
        uint16_t port; /**< network byte order */
        it_ib_serviceid_t serviceid;
        it_via_discriminator_t discriminator;
        it_iana_lr_port_t lr_port;
    } conn_qual;
} it_conn_qual_t;

/** A VIA host address. */
typedef struct {
    uint16_t len;
    unsigned char hostaddr[IT_MAX_VIA_ADDR_LEN];
} it_via_net_addr_t;

/** A network address. */
typedef struct {
    it_net_addr_type_t addr_type;
    union {
        struct in_addr ipv4;
        struct in6_addr ipv6;
        it_ib_gid_t gid;
        it_via_net_addr_t via;
    } addr;
} it_net_addr_t;

/** InfiniBand's part of a path. */
typedef struct {
    uint16_t partition_key;
    uint8_t path_mtu : 4;
    uint8_t packet_lifetime : 6;
    uint16_t local_port_lid;
    uint16_t remote_port_lid;
    it_ib_gid_t local_port_gid;
    it_ib_gid_t remote_port_gid;
    uint8_t packet_rate : 6;
    uint8_t sl : 4;
    uint8_t subnet_local : 1;
    uint32_t flow_label : 20;
    uint8_t traffic_class;
    uint8_t hop_limit;
} it_ib_net_endpoint_t;

/** VIA's part of a path. */
typedef it_via_net_addr_t it_via_net_endpoint_t;

/** An IP address whose version stands elsewhere. */
typedef union {
    struct in_addr ipv4;
    struct in6_addr ipv6;
} it_in_addr_t;

/** iWARP's part of a path. A local address that this host does not have means any. */
typedef struct {
    it_ip_vers_t ip_vers;
    it_in_addr_t laddr;
    it_in_addr_t raddr;
} it_iwarp_net_endpoint_t;

/** The part of a path that depends on the transport. */
typedef union {
    it_ib_net_endpoint_t ib;
    it_via_net_endpoint_t via;
    it_iwarp_net_endpoint_t iwarp;
} it_path_remote_t;

/**
 * The way to a peer. Fill it by hand or have it_get_pathinfo() do it. On iWARP only the iwarp part
 * counts, and a spigot_id or timeout that means nothing is ignored.
 */
typedef struct {
    size_t spigot_id;
    uint64_t timeout; /**< microseconds; active side only */
#ifdef __GNUC__
    /* The standard's name and that of the Zurich stack. */
    ITAPI_EXTENSION union {
        it_path_remote_t remote;
        it_path_remote_t u;
    };
#elif defined(ITAPI_ZRL_EXTENSIONS)
    it_path_remote_t u;
#else
    it_path_remote_t remote;
#endif
} it_path_t;

/** A variable-length element of an I/O buffer list. */
typedef struct {
    it_io_addr_t io_addr;
    it_length_t elt_len;
} it_iobl_ve_elt_t;

/** An I/O buffer list: memory by bus addresses, for privileged callers. */
typedef struct {
    it_iobl_type_t iobl_type;
    union {
        /** Elements of one length. */
        struct {
            it_io_addr_t *list_elt;
            it_length_t elt_len;
        } ce_list;
        /** Elements of their own lengths. */
        struct {
            it_iobl_ve_elt_t *list_elt;
        } ve_list;
    } list;
    size_t num_elts;
    it_length_t fbo; /**< offset of the first octet in the first element */
} it_iobl_t;

/** A piece of an LMR: abs or rel by the LMR's addressing mode. */
typedef struct {
    it_lmr_handle_t lmr;
    union {
        void *abs;
        it_length_t rel;
        it_io_addr_t io;
    } addr;
    it_length_t length;
} it_lmr_triplet_t;

/** A piece of an RMR. */
typedef struct {
    it_rmr_handle_t rmr;
    union {
        void *abs;
        it_length_t rel;
    } addr;
    it_length_t length;
} it_rmr_triplet_t;

/** A UD endpoint as its peers name it. */
typedef struct {
    it_ud_ep_id_t ud_ep_id;
    it_ud_ep_key_t ud_ep_key;
} it_remote_ep_info_t;

/** An InfiniBand UD endpoint. */
typedef struct {
    it_addr_handle_t addr;
    it_remote_ep_info_t ep_info;
} it_ib_ud_addr_t;

/** The destination of a datagram. */
typedef struct {
    it_dg_type_t type;
    union {
        it_ib_ud_addr_t ud;
    } addr;
} it_dg_remote_ep_addr_t;

/** Connection attributes of InfiniBand. */
typedef struct {
    uint8_t remote_cm_timeout : 5;
    uint8_t local_cm_timeout : 5;
    uint8_t retry_count : 3;
    uint8_t rnr_retry_count : 3;
    uint8_t max_cm_retries : 4;
    uint8_t local_ack_timeout : 5;
} it_ib_conn_attributes_t;

/** Connection attributes of VIA: none. */
typedef struct {
    void *unused;
} it_via_conn_attributes_t;

/** Connection attributes of iWARP: none. */
typedef struct {
    void *unused;
} it_iwarp_conn_attributes_t;

/** Connection attributes of a transport. */
typedef union {
    it_ib_conn_attributes_t ib;
    it_via_conn_attributes_t via;
    it_iwarp_conn_attributes_t iwarp;
} it_conn_attributes_t;

#endif
