/*
 * Support of the C tests; see check.h.
 */
#include "check.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t MINUTE = 60000000;

const it_dto_flags_t SIGNALLED = (it_dto_flags_t)(IT_COMPLETION_FLAG | IT_NOTIFY_FLAG);

static unsigned long checks, failures;

void check_true(int holds, const char *what, const char *file, int line)
{
    checks++;
    if (holds)
        return;
    failures++;
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
}

void check_status(it_status_t wanted, it_status_t got, const char *what, const char *file,
                  int line)
{
    char why[512];
    checks++;
    if (got == wanted)
        return;
    failures++;
    itw_last_error(why, sizeof why);
    fprintf(stderr, "%s:%d: %s\n    wanted %s\n    got    %s\n    last   %s\n", file, line, what,
            itw_strerror(wanted), itw_strerror(got), why);
}

void check_must(it_status_t got, const char *what, const char *file, int line)
{
    check_status(IT_SUCCESS, got, what, file, line);
    if (got != IT_SUCCESS)
        exit(1);
}

int checked(const char *program)
{
    printf("%s: %lu checks, %lu failures\n", program, checks, failures);
    return failures != 0;
}

it_ep_attributes_t check_attributes(void)
{
    it_ep_attributes_t attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.max_dto_payload_size = MEMORY;
    attributes.max_request_dtos = DEPTH;
    attributes.max_recv_dtos = DEPTH;
    attributes.max_send_segments = 2;
    attributes.max_recv_segments = 2;
    attributes.srv.rc.rdma_read_enable = IT_TRUE;
    attributes.srv.rc.rdma_write_enable = IT_TRUE;
    attributes.srv.rc.max_rdma_read_segments = 1;
    attributes.srv.rc.max_rdma_write_segments = 2;
    attributes.srv.rc.rdma_read_ird = 4;
    attributes.srv.rc.rdma_read_ord = 4;
    attributes.srv.rc.atomics_enable = IT_TRUE;
    attributes.srv.rc.hard_hi_watermark = IT_HARD_HI_WATERMARK_DISABLE;
    return attributes;
}

it_evd_handle_t check_evd(it_ia_handle_t ia, it_event_type_t stream)
{
    it_evd_handle_t evd;
    MUST(it_evd_create(ia, stream, (it_evd_flags_t)0, 4 * DEPTH, 1, NULL, &evd, NULL));
    return evd;
}

it_ep_handle_t check_ep(const struct side *side)
{
    it_ep_attributes_t attributes = check_attributes();
    it_ep_handle_t ep;
    MUST(it_ep_rc_create(side->pz, side->sends, side->receives, side->conn, IT_EP_NO_FLAG,
                         &attributes, &ep));
    return ep;
}

/* The arguments depend on the bindings. */
static it_status_t register_memory(struct side *side)
{
#if defined(ITAPI_ENABLE_V21_BINDINGS)
    return it_lmr_create(side->pz, side->memory, NULL, MEMORY, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL,
                         IT_LMR_FLAG_NONE, 0, &side->lmr, &side->rmr_context);
#elif defined(ITAPI_ENABLE_V20_BINDINGS)
    return it_lmr_create(side->pz, side->memory, MEMORY, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL,
                         IT_LMR_FLAG_NONE, 0, &side->lmr, &side->rmr_context);
#else
    return it_lmr_create(side->pz, side->memory, MEMORY, IT_PRIV_ALL, IT_LMR_FLAG_NONE, 0,
                         &side->lmr, &side->rmr_context);
#endif
}

void side_open(struct side *side)
{
    side_open_on(side, "vp_softrdma");
}

void side_open_on(struct side *side, const char *adapter)
{
    memset(side, 0, sizeof *side);
    MUST(it_ia_create(adapter, 2, 0, &side->ia));
    MUST(it_pz_create(side->ia, &side->pz));
    side->sends = check_evd(side->ia, IT_DTO_EVENT_STREAM);
    side->receives = check_evd(side->ia, IT_DTO_EVENT_STREAM);
    side->conn = check_evd(side->ia, IT_CM_MSG_EVENT_STREAM);
    side->request = check_evd(side->ia, IT_CM_REQ_EVENT_STREAM);
    side->ep = check_ep(side);
    side->memory = (unsigned char *)calloc(1, MEMORY);
    if (side->memory == NULL)
        exit(1);
    MUST(register_memory(side));
}

void side_close(struct side *side)
{
    EXPECT(IT_SUCCESS, it_ep_free(side->ep));
    EXPECT(IT_SUCCESS, it_lmr_free(side->lmr));
    EXPECT(IT_SUCCESS, it_evd_free(side->sends));
    EXPECT(IT_SUCCESS, it_evd_free(side->receives));
    EXPECT(IT_SUCCESS, it_evd_free(side->conn));
    EXPECT(IT_SUCCESS, it_evd_free(side->request));
    EXPECT(IT_SUCCESS, it_pz_free(side->pz));
    EXPECT(IT_SUCCESS, it_ia_free(side->ia));
    free(side->memory);
}

it_path_t check_loopback(void)
{
    it_path_t path;
    memset(&path, 0, sizeof path);
    path.timeout = MINUTE;
    path.remote.iwarp.ip_vers = IT_IP_VERS_IPV4;
    path.remote.iwarp.raddr.ipv4.s_addr = htonl(INADDR_LOOPBACK);
    return path;
}

it_conn_qual_t check_port(uint16_t port_in_network_order)
{
    it_conn_qual_t qualifier;
    memset(&qualifier, 0, sizeof qualifier);
    qualifier.type = IT_IANA_PORT;
    qualifier.conn_qual.port = port_in_network_order;
    return qualifier;
}

/* The spigot with 127.0.0.1. */
size_t side_spigot(it_ia_handle_t ia)
{
    size_t spigot, address, found = 0;
    it_ia_info_t *info;
    MUST(it_ia_query(ia, &info));
    for (spigot = 0; spigot < info->num_spigots; spigot++) {
        const it_spigot_info_t *one = &info->spigot_info[spigot];
        for (address = 0; address < one->num_net_addr; address++) {
            const it_net_addr_t *net_addr = &one->net_addr[address];
            if (net_addr->addr_type == IT_IPV4 &&
                net_addr->addr.ipv4.s_addr == htonl(INADDR_LOOPBACK))
                found = one->spigot_id;
        }
    }
    it_ia_info_free(info);
    return found;
}

it_listen_handle_t side_listen(const struct side *side, uint16_t *port_in_network_order)
{
    it_conn_qual_t qualifier = check_port(0);
    it_listen_handle_t listener;
    MUST(it_listen_create(side->ia, side_spigot(side->ia), side->request, IT_LISTEN_NO_FLAG,
                          &qualifier, &listener));
    CHECK(qualifier.type == IT_IANA_PORT && qualifier.conn_qual.port != 0);
    *port_in_network_order = qualifier.conn_qual.port;
    return listener;
}

void sides_connect(const struct side *active, const struct side *passive)
{
    uint16_t port;
    it_listen_handle_t listener = side_listen(passive, &port);
    it_conn_qual_t qualifier = check_port(port);
    it_path_t path = check_loopback();
    it_event_t request;
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    request = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    MUST(it_ep_accept(passive->ep, request.conn_req.cn_est_id, NULL, 0));
    check_event(active->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    check_event(passive->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    MUST(it_listen_free(listener));
}

void sides_open(struct side *active, struct side *passive)
{
    side_open(active);
    side_open(passive);
    sides_connect(active, passive);
}

int side_connect_plain(const struct side *passive)
{
    /* RFC 5044 7.1: key, flags (CRC), revision, length of private data. */
    static const unsigned char request[20] = {'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R', 'e', 'q',
                                              ' ', 'F', 'r', 'a', 'm', 'e', 0x40, 1, 0, 0};
    unsigned char reply[20];
    struct sockaddr_in to;
    uint16_t port;
    it_listen_handle_t listener = side_listen(passive, &port);
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    it_event_t event;
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = port;
    CHECK(connect(plain, (struct sockaddr *)&to, sizeof to) == 0);
    CHECK(send(plain, request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request);
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    MUST(it_ep_accept(passive->ep, event.conn_req.cn_est_id, NULL, 0));
    check_event(passive->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(recv(plain, reply, sizeof reply, MSG_WAITALL) == (ssize_t)sizeof reply);
    MUST(it_listen_free(listener));
    return plain;
}

void check_abort(int socket)
{
    struct linger at_once = {1, 0};
    CHECK(setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    CHECK(close(socket) == 0);
}

void check_reset(it_ep_handle_t ep)
{
    EXPECT(IT_SUCCESS, it_ep_reset(ep));
}

it_event_t check_event(it_evd_handle_t evd, it_event_type_t type)
{
    it_event_t event;
    char text[1000];
    memset(&event, 0, sizeof event);
    MUST(it_evd_wait(evd, MINUTE, &event, NULL));
    if (event.event_number != type) {
        itw_event_text(&event, text, sizeof text);
        fprintf(stderr, "wanted event %#x, got %s\n", (unsigned)type, text);
        exit(1);
    }
    CHECK(event.any.evd == evd);
    return event;
}

it_event_t check_completion(it_evd_handle_t evd, it_event_type_t type, it_dto_status_t status,
                            unsigned number)
{
    it_event_t event = check_event(evd, type);
    if (event.dto_cmpl.dto_status != status)
        fprintf(stderr, "completion %u: wanted status %d, got %d\n", number, (int)status,
                (int)event.dto_cmpl.dto_status);
    CHECK(event.dto_cmpl.dto_status == status);
    CHECK(cookie_number(event.dto_cmpl.cookie) == number);
    return event;
}

void check_empty(it_evd_handle_t evd)
{
    it_event_t event;
    EXPECT(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(evd, &event));
}

#ifdef ITAPI_ZRL_EXTENSIONS
it_dto_cookie_t cookie(unsigned number)
{
    it_dto_cookie_t made, copy;
    made.mFirst = number;
    made.mSecond = ~(uint64_t)number;
    made.mExtend = (uint64_t)number << 32;
    CookieAssign(&copy, &made);
    return copy;
}

unsigned cookie_number(it_dto_cookie_t cookie)
{
    CHECK(cookie.mSecond == ~cookie.mFirst && cookie.mExtend == cookie.mFirst << 32);
    return (unsigned)cookie.mFirst;
}
#else
it_dto_cookie_t cookie(unsigned number)
{
    return (it_dto_cookie_t)number << 32 | number;
}

unsigned cookie_number(it_dto_cookie_t cookie)
{
    CHECK(cookie >> 32 == (cookie & 0xffffffff));
    return (unsigned)cookie;
}
#endif

it_lmr_triplet_t piece(const struct side *side, size_t offset, size_t length)
{
    it_lmr_triplet_t triplet;
    triplet.lmr = side->lmr;
    triplet.addr.abs = side->memory + offset;
    triplet.length = length;
    return triplet;
}

it_rdma_addr_t address(const struct side *side, size_t offset)
{
    return it_make_rdma_addr(side->memory + offset);
}

it_handle_t made_up(void)
{
    static int nothing;
    return &nothing;
}
