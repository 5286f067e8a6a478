/*
 * Support of the C tests: checks that print what was expected, and two connected sides.
 *
 * A failed check is printed and counted; `checked()` returns the exit status. A failure that makes the rest
 * meaningless ends the program at once. Waits for events have a time-out of a minute.
 */
#ifndef CHECK_H
#define CHECK_H

#include <it_api.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The condition holds. */
#define CHECK(condition) check_true((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
/** The call returns this status. */
#define EXPECT(status, call) check_status((status), (call), #call, __FILE__, __LINE__)
/** The call returns IT_SUCCESS, or the program ends. */
#define MUST(call) check_must((call), #call, __FILE__, __LINE__)

void check_true(int holds, const char *what, const char *file, int line);
void check_status(it_status_t wanted, it_status_t got, const char *what, const char *file,
                  int line);
void check_must(it_status_t got, const char *what, const char *file, int line);
/** Exit status of main(). */
int checked(const char *program);

enum { MEMORY = 8192, DEPTH = 16 };

/** One end: an interface adapter with all that a connection needs. */
struct side {
    it_ia_handle_t ia;
    it_pz_handle_t pz;
    it_evd_handle_t sends;    /* completions of sends, RDMA, links */
    it_evd_handle_t receives; /* completions of receives */
    it_evd_handle_t conn;     /* connection events */
    it_evd_handle_t request;  /* connection requests */
    it_ep_handle_t ep;
    unsigned char *memory; /* MEMORY octets, registered with all rights */
    it_lmr_handle_t lmr;
    it_rmr_context_t rmr_context;
};

/** Attributes that every endpoint can have. */
it_ep_attributes_t check_attributes(void);
it_evd_handle_t check_evd(it_ia_handle_t ia, it_event_type_t stream);
it_ep_handle_t check_ep(const struct side *side);
void side_open(struct side *side);
/** On the adapter of this name. */
void side_open_on(struct side *side, const char *adapter);
/** Frees the objects one by one; each call must succeed. */
void side_close(struct side *side);

/** Paths and ports. */
it_path_t check_loopback(void);
it_conn_qual_t check_port(uint16_t port_in_network_order);
/** The spigot with 127.0.0.1. */
size_t side_spigot(it_ia_handle_t ia);
/** Listens on a free port, and returns it. */
it_listen_handle_t side_listen(const struct side *side, uint16_t *port_in_network_order);
/** Connects `active` to `passive`. */
void sides_connect(const struct side *active, const struct side *passive);
/** Both ends, one process. */
void sides_open(struct side *active, struct side *passive);

/** Connects `passive` to a plain socket, which has sent an MPA request and got the reply. */
int side_connect_plain(const struct side *passive);
/** Closes a socket by a reset. */
void check_abort(int socket);

/** Resets an endpoint whose end of connection was reported; the first call must succeed. */
void check_reset(it_ep_handle_t ep);

/** The next event, which must be of this type. */
it_event_t check_event(it_evd_handle_t evd, it_event_type_t type);
/** The next completion, which must be of this type and status, with this cookie. */
it_event_t check_completion(it_evd_handle_t evd, it_event_type_t type, it_dto_status_t status,
                            unsigned number);
/** No event is queued. */
void check_empty(it_evd_handle_t evd);

it_dto_cookie_t cookie(unsigned number);
unsigned cookie_number(it_dto_cookie_t cookie);
/** Part of the side's memory. */
it_lmr_triplet_t piece(const struct side *side, size_t offset, size_t length);
/** The RDMA address of an octet of the side's memory. */
it_rdma_addr_t address(const struct side *side, size_t offset);

/** IT_COMPLETION_FLAG | IT_NOTIFY_FLAG: a completion that wakes. */
extern const it_dto_flags_t SIGNALLED;

/** A handle that no call returned. */
it_handle_t made_up(void);

#ifdef __cplusplus
}
#endif

#endif
