/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * rnicpi_path.h: the part of rnicpi.h about queue pairs that the consumer connects itself, since 1.4.
 * Include rnicpi.h, which includes this; its rules hold here, too.
 *
 * Both ends exchange numbers, GIDs and first packet sequence numbers (PSN) in a way of their own. An end first
 * receives (InfiniBand's Ready to Receive), and then also sends (Ready to Send). There is no orderly close.
 * InfiniBand and RoCE have this; iWARP does not.
 */
#ifndef WARPLINE_RNICPI_PATH_H
#define WARPLINE_RNICPI_PATH_H

#ifndef WARPLINE_RNICPI_H
#error "include rnicpi.h"
#endif

/* The peer of a queue pair, and how its requests are served. A number out of its range is
 * RI_INVALID_MODIFIER [RI-235]. */
typedef struct ri_peer_path {
    uint32_t size;
    uint32_t qpn;           /* of the peer's queue pair; 24 bits */
    uint8_t local_gid[16];  /* of the local port */
    uint8_t remote_gid[16]; /* of the peer's port */
    uint32_t psn;           /* of the peer's first request; 24 bits */
    uint32_t mtu_code;      /* largest packet, in InfiniBand's code: 1: 256 octets, 5: 4096; alike at both ends */
    uint32_t ird;           /* reads and atomics of the peer at a time; more than ri_qp_init.ird is
                             * RI_INVALID_IRD_ORD [RI-234] */
    uint32_t min_rnr_timer; /* 0 to 31: code of the time after which the peer repeats a Send without a receive */
} ri_peer_path;

/* How a queue pair sends its own requests. A number out of its range is RI_INVALID_MODIFIER. */
typedef struct ri_path_sender {
    uint32_t size;
    uint32_t psn;         /* of the first request; 24 bits */
    uint32_t ack_timeout; /* 0 to 31: code of the least time before a repetition; 0: never */
    uint32_t retry_count; /* 0 to 7: repetitions without progress */
    uint32_t rnr_retry;   /* 0 to 7: repetitions of a Send without a receive; 7: as many as the provider allows */
    uint32_t ord;         /* own reads and atomics at a time; more than ri_qp_init.ord is RI_INVALID_IRD_ORD */
} ri_path_sender;

/* All entries required. A queue pair that was destroyed is RI_INVALID_HANDLE [RI-236]. */
typedef struct ri_path_ops {
    uint32_t size;
    uint32_t reserved;
    void (*release)(ri_paths *paths);
    /* The number by which peers address a queue pair, 24 bits: the same from the first call until the queue pair
     * is destroyed [RI-230]. */
    ri_status (*number)(ri_paths *paths, uint32_t qp, uint32_t *number, ri_error *error);
    /* In Idle: from now on serves the requests of this peer [RI-233]. The queue pair stays Idle [RI-231]. A second
     * call, or one while the connection manager connects the queue pair, is RI_INVALID_STATE. */
    ri_status (*receive)(ri_paths *paths, uint32_t qp, const ri_peer_path *peer, ri_error *error);
    /* After receive, else RI_INVALID_STATE [RI-232]: to RTS. No event follows. */
    ri_status (*send)(ri_paths *paths, uint32_t qp, const ri_path_sender *sender, ri_error *error);
} ri_path_ops;

typedef struct ri_paths_made {
    uint32_t size;
    uint32_t reserved;
    ri_paths *paths;
    const ri_path_ops *ops;
} ri_paths_made;

#endif
