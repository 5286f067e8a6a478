/*
 * Tests of listening, connecting, accepting, rejecting, handing off, disconnecting.
 */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char *text(const char *letters)
{
    return (const unsigned char *)letters;
}

static void listening(const struct side *side)
{
    it_conn_qual_t qualifier = check_port(0);
    it_listen_handle_t first, second;
    it_listen_param_t params;
    size_t spigot = side_spigot(side->ia);
    EXPECT(IT_ERR_INVALID_IA, it_listen_create(NULL, spigot, side->request, IT_LISTEN_NO_FLAG,
                                               &qualifier, &first));
    EXPECT(IT_ERR_INVALID_SPIGOT, it_listen_create(side->ia, 4711, side->request, IT_LISTEN_NO_FLAG,
                                                   &qualifier, &first));
    EXPECT(IT_ERR_INVALID_CONN_EVD, it_listen_create(side->ia, spigot, NULL, IT_LISTEN_NO_FLAG,
                                                     &qualifier, &first));
    EXPECT(IT_ERR_INVALID_EVD_TYPE, it_listen_create(side->ia, spigot, side->sends,
                                                     IT_LISTEN_NO_FLAG, &qualifier, &first));
    EXPECT(IT_ERR_INVALID_FLAGS, it_listen_create(side->ia, spigot, side->request,
                                                  (it_listen_flags_t)0x100, &qualifier, &first));
    EXPECT(IT_ERR_FAULT, it_listen_create(side->ia, spigot, side->request, IT_LISTEN_NO_FLAG,
                                          &qualifier, NULL));
    EXPECT(IT_ERR_FAULT, it_listen_create(side->ia, spigot, side->request,
                                          IT_LISTEN_CONN_QUAL_INPUT, NULL, &first));
    MUST(it_listen_create(side->ia, spigot, side->request, IT_LISTEN_NO_FLAG, &qualifier, &first));
    CHECK(qualifier.conn_qual.port != 0);
    EXPECT(IT_ERR_CONN_QUAL_BUSY, it_listen_create(side->ia, spigot, side->request,
                                                   IT_LISTEN_CONN_QUAL_INPUT, &qualifier, &second));
    EXPECT(IT_SUCCESS, it_listen_query(first, IT_LISTEN_PARAM_ALL, &params));
    CHECK(params.ia_handle == side->ia && params.spigot_id == spigot);
    CHECK(params.connect_evd == side->request);
    CHECK(params.connect_qual.conn_qual.port == qualifier.conn_qual.port);
    EXPECT(IT_ERR_INVALID_MASK, it_listen_query(first, (it_listen_param_mask_t)0x400, &params));
    EXPECT(IT_ERR_FAULT, it_listen_query(first, IT_LISTEN_PARAM_ALL, NULL));
    EXPECT(IT_ERR_INVALID_LISTEN, it_listen_query(NULL, IT_LISTEN_PARAM_ALL, &params));
    EXPECT(IT_ERR_EVD_BUSY, it_evd_free(side->request));
    EXPECT(IT_SUCCESS, it_listen_free(first));
    EXPECT(IT_ERR_INVALID_LISTEN, it_listen_free(first));
    EXPECT(IT_ERR_INVALID_LISTEN, it_listen_free(NULL));
    qualifier.type = IT_IB_SERVICEID;
    EXPECT(IT_ERR_INVALID_CONN_QUAL, it_listen_create(side->ia, spigot, side->request,
                                                      IT_LISTEN_CONN_QUAL_INPUT, &qualifier,
                                                      &first));
}

static void refused_calls(const struct side *side)
{
    it_path_t path = check_loopback();
    it_conn_qual_t qualifier = check_port(htons(1));
    it_conn_qual_t wrong = qualifier;
    unsigned char large[IT_MAX_PRIV_DATA + 1000];
    memset(large, 7, sizeof large);
    EXPECT(IT_ERR_INVALID_EP, it_ep_connect(NULL, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY,
                                            NULL, 0));
    EXPECT(IT_ERR_FAULT, it_ep_connect(side->ep, NULL, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY,
                                       NULL, 0));
    EXPECT(IT_ERR_FAULT, it_ep_connect(side->ep, &path, NULL, NULL, IT_CONNECT_FLAG_TWO_WAY, NULL,
                                       0));
    EXPECT(IT_ERR_FAULT, it_ep_connect(side->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY,
                                       NULL, 4));
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           it_ep_connect(side->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, large,
                         sizeof large));
    EXPECT(IT_ERR_INVALID_CN_EST_FLAGS,
           it_ep_connect(side->ep, &path, NULL, &qualifier, (it_cn_est_flags_t)0x80, NULL, 0));
    wrong.type = (it_conn_qual_type_t)0x20;
    EXPECT(IT_ERR_INVALID_CONN_QUAL,
           it_ep_connect(side->ep, &path, NULL, &wrong, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    path.remote.iwarp.ip_vers = (it_ip_vers_t)9;
    EXPECT(IT_ERR_INVALID_ADDRESS,
           it_ep_connect(side->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_ep_accept(side->ep, 0x1234567, NULL, 0));
    EXPECT(IT_ERR_INVALID_EP, it_ep_accept(NULL, 1, NULL, 0));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_reject(0x1234567, NULL, 0));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_handoff(&qualifier, 0, 0x1234567));
    EXPECT(IT_ERR_FAULT, it_handoff(NULL, 0, 0x1234567));
    EXPECT(IT_ERR_INVALID_EP, it_ep_disconnect(NULL, NULL, 0));
    EXPECT(IT_ERR_INVALID_EP_STATE, it_ep_disconnect(side->ep, NULL, 0));
}

/* After all those errors the endpoint still connects. */
static void accepting(const struct side *active, const struct side *passive)
{
    uint16_t port;
    it_listen_handle_t listener = side_listen(passive, &port);
    it_conn_qual_t qualifier;
    it_path_t path = check_loopback();
    it_event_t event;
    it_cn_est_identifier_t request;
    unsigned char large[IT_MAX_PRIV_DATA + 1000];
    memset(large, 7, sizeof large);
    memset(&qualifier, 0, sizeof qualifier);
    qualifier.type = IT_IANA_LR_PORT;
    qualifier.conn_qual.lr_port.remote = port;
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, text("hello"),
                       5));
    EXPECT(IT_ERR_INVALID_EP_STATE, it_ep_connect(active->ep, &path, NULL, &qualifier,
                                                  IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    request = event.conn_req.cn_est_id;
    CHECK(event.conn_req.private_data_present == IT_TRUE);
    CHECK(memcmp(event.conn_req.private_data, "hello", 5) == 0);
    CHECK(event.conn_req.conn_qual.conn_qual.port == port);
    CHECK(event.conn_req.rdma_read_ird == 4 && event.conn_req.rdma_read_ord == 4);
    CHECK(event.conn_req.source_addr.addr_type == IT_IPV4);
    CHECK(event.conn_req.source_addr.addr.ipv4.s_addr == htonl(INADDR_LOOPBACK));
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH, it_ep_accept(passive->ep, request, large, sizeof large));
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH, it_reject(request, large, sizeof large));
    EXPECT(IT_ERR_FAULT, it_ep_accept(passive->ep, request, NULL, 3));
    EXPECT(IT_ERR_INVALID_EP_STATE, it_ep_accept(active->ep, request, NULL, 0));
    MUST(it_ep_accept(passive->ep, request, text("welcome"), 7));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_reject(request, NULL, 0));
    event = check_event(active->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(event.conn.ep == active->ep && event.conn.private_data_present == IT_TRUE);
    CHECK(memcmp(event.conn.private_data, "welcome", 7) == 0);
    CHECK(event.conn.dst_path.remote.iwarp.raddr.ipv4.s_addr == htonl(INADDR_LOOPBACK));
    event = check_event(passive->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(event.conn.ep == passive->ep && event.conn.private_data_present == IT_FALSE);
    EXPECT(IT_SUCCESS, it_listen_free(listener));
}

static void disconnecting(const struct side *active, const struct side *passive)
{
    it_event_t event;
    EXPECT(IT_ERR_PDATA_NOT_SUPPORTED, it_ep_disconnect(active->ep, text("bye"), 3));
    EXPECT(IT_SUCCESS, it_ep_disconnect(active->ep, NULL, 0));
    event = check_event(active->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    CHECK(event.conn.ep == active->ep);
    event = check_event(passive->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    CHECK(event.conn.ep == passive->ep);
    EXPECT(IT_SUCCESS, it_ep_disconnect(active->ep, NULL, 0)); /* has ended already */
    check_reset(active->ep);
    check_reset(passive->ep);
}

static void rejecting(const struct side *active, const struct side *passive)
{
    uint16_t port;
    it_listen_handle_t listener = side_listen(passive, &port);
    it_conn_qual_t qualifier = check_port(port);
    it_path_t path = check_loopback();
    it_event_t event;
    it_cn_est_flags_t flags =
        (it_cn_est_flags_t)(IT_CONNECT_FLAG_TWO_WAY | IT_CONNECT_SUPPRESS_IRD_ORD);
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, flags, NULL, 0));
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(event.conn_req.private_data_present == IT_FALSE);
    CHECK(event.conn_req.rdma_read_ird == 0 && event.conn_req.rdma_read_ord == 0);
    EXPECT(IT_SUCCESS, it_reject(event.conn_req.cn_est_id, text("no"), 2));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_reject(event.conn_req.cn_est_id, NULL, 0));
    event = check_event(active->conn, IT_CM_MSG_CONN_PEER_REJECT_EVENT);
    CHECK(event.conn.private_data_present == IT_TRUE);
    CHECK(memcmp(event.conn.private_data, "no", 2) == 0);
    check_reset(active->ep);
    EXPECT(IT_SUCCESS, it_listen_free(listener));
    /* The listener was freed. */
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    event = check_event(active->conn, IT_CM_MSG_CONN_NONPEER_REJECT_EVENT);
    CHECK(event.conn.ep == active->ep);
    check_reset(active->ep);
}

/* A request goes from one adapter's listener to another one's. */
static void handing_off(const struct side *active, const struct side *passive)
{
    struct side other;
    uint16_t port, elsewhere;
    it_listen_handle_t listener, second;
    it_conn_qual_t qualifier, to;
    it_path_t path = check_loopback();
    it_event_t event, again;
    side_open(&other);
    listener = side_listen(passive, &port);
    second = side_listen(&other, &elsewhere);
    qualifier = check_port(port);
    to = check_port(elsewhere);
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, text("who"),
                       3));
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    to.conn_qual.port = htons(1);
    EXPECT(IT_ERR_INVALID_CONN_QUAL,
           it_handoff(&to, side_spigot(other.ia), event.conn_req.cn_est_id));
    to = check_port(elsewhere);
    MUST(it_handoff(&to, side_spigot(other.ia), event.conn_req.cn_est_id));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_reject(event.conn_req.cn_est_id, NULL, 0));
    again = check_event(other.request, IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(memcmp(again.conn_req.private_data, "who", 3) == 0);
    MUST(it_ep_accept(other.ep, again.conn_req.cn_est_id, NULL, 0));
    check_event(other.conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    check_event(active->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    EXPECT(IT_SUCCESS, it_ep_disconnect(other.ep, NULL, 0));
    check_event(active->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    EXPECT(IT_SUCCESS, it_listen_free(listener));
    EXPECT(IT_SUCCESS, it_listen_free(second));
    side_close(&other);
    check_reset(active->ep);
}

/* The same port by the other version of the Internet Protocol, where there is one. */
static void over_ipv6(const struct side *active, const struct side *passive)
{
    struct sockaddr_in6 address;
    uint16_t port;
    it_listen_handle_t listener;
    it_conn_qual_t qualifier;
    it_path_t path = check_loopback();
    it_event_t event;
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    if (probe < 0 || bind(probe, (struct sockaddr *)&address, sizeof address) != 0) {
        fprintf(stderr, "connection: no IPv6 here\n");
        close(probe);
        return;
    }
    close(probe);
    listener = side_listen(passive, &port);
    qualifier = check_port(port);
    path.remote.iwarp.ip_vers = IT_IP_VERS_IPV6;
    path.remote.iwarp.laddr.ipv6 = in6addr_any;
    path.remote.iwarp.raddr.ipv6 = in6addr_loopback;
    MUST(it_ep_connect(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(event.conn_req.source_addr.addr_type == IT_IPV6);
    CHECK(IN6_IS_ADDR_LOOPBACK(&event.conn_req.source_addr.addr.ipv6));
    MUST(it_ep_accept(passive->ep, event.conn_req.cn_est_id, NULL, 0));
    event = check_event(active->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(event.conn.dst_path.remote.iwarp.ip_vers == IT_IP_VERS_IPV6);
    check_event(passive->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    EXPECT(IT_SUCCESS, it_ep_disconnect(active->ep, NULL, 0));
    check_event(active->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_event(passive->conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_reset(active->ep);
    check_reset(passive->ep);
    EXPECT(IT_SUCCESS, it_listen_free(listener));
}

/* A reset by the peer is a broken connection and an affiliated event of the endpoint. */
static void losing(const struct side *passive)
{
    it_evd_handle_t affiliated;
    it_event_t event;
    MUST(it_evd_create(passive->ia, IT_ASYNC_AFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NULL,
                       &affiliated, NULL));
    check_abort(side_connect_plain(passive));
    check_event(passive->conn, IT_CM_MSG_CONN_BROKEN_EVENT);
    event = check_event(affiliated, IT_ASYNC_AFF_EP_L_LLP_ERROR);
    CHECK(event.aff_async.cause.ep == passive->ep);
    EXPECT(IT_SUCCESS, it_evd_free(affiliated));
    check_reset(passive->ep);
}

/* Freeing an endpoint removes its events: the descriptor is readable only if there is an event. */
static void freed_before_its_events(void)
{
    struct side side;
    struct pollfd asked;
    it_evd_handle_t affiliated;
    side_open(&side);
    memset(&asked, 0, sizeof asked);
    asked.events = POLLIN;
    MUST(it_evd_create(side.ia, IT_ASYNC_AFF_EVENT_STREAM, IT_EVD_CREATE_FD, 8, 1, NULL,
                       &affiliated, &asked.fd));
    check_abort(side_connect_plain(&side));
    CHECK(poll(&asked, 1, 60000) == 1);
    EXPECT(IT_SUCCESS, it_ep_free(side.ep));
    CHECK(poll(&asked, 1, 0) == 0);
    check_empty(affiliated);
    check_empty(side.conn);
    EXPECT(IT_SUCCESS, it_evd_free(affiliated));
    side.ep = check_ep(&side);
    side_close(&side);
}

/* Freeing an endpoint ends its connection. */
static void breaking(const struct side *active, const struct side *passive)
{
    it_event_t event;
    memset(&event, 0, sizeof event);
    sides_connect(active, passive);
    EXPECT(IT_SUCCESS, it_ep_free(active->ep));
    MUST(it_evd_wait(passive->conn, 60000000, &event, NULL));
    CHECK(event.event_number == IT_CM_MSG_CONN_BROKEN_EVENT ||
          event.event_number == IT_CM_MSG_CONN_DISCONNECT_EVENT);
}

int main(void)
{
    struct side active, passive;
    side_open(&active);
    side_open(&passive);
    listening(&passive);
    refused_calls(&active);
    accepting(&active, &passive);
    disconnecting(&active, &passive);
    rejecting(&active, &passive);
    handing_off(&active, &passive);
    over_ipv6(&active, &passive);
    losing(&passive);
    freed_before_its_events();
    breaking(&active, &passive);
    active.ep = check_ep(&active);
    side_close(&active);
    side_close(&passive);
    return checked("connection");
}
