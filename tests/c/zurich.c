/*
 * Tests of the Zurich layout: cookies of 24 octets, private data at the front, the six additional calls.
 */
#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t big_endian(const unsigned char *octets, int count)
{
    uint64_t value = 0;
    int i;
    for (i = 0; i < count; i++)
        value = value << 8 | octets[i];
    return value;
}

/* Each side sends the other the address of its memory, in the private data. */
static void regions_in_private_data(const struct side *active, const struct side *passive)
{
    uint16_t port;
    it_listen_handle_t listener = side_listen(passive, &port);
    it_conn_qual_t qualifier = check_port(port);
    it_path_t path = check_loopback();
    it_lmr_triplet_t mine = piece(active, 0, 1000), theirs = piece(passive, 512, 2000);
    it_rmr_context_t context = 0, answer = 0;
    it_event_t event;
    const unsigned char *data;
    static const unsigned char long_name[65];
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           it_ep_connect(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, long_name,
                         IT_MAX_PRIV_DATA + 1));
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           itx_ep_connect_with_rmr(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY,
                                   long_name, IT_MAX_PRIV_DATA - 19, &mine, &context));
    EXPECT(IT_ERR_INVALID_EP, itx_ep_connect_with_rmr(NULL, &path, NULL, &qualifier,
                                                      IT_CONNECT_FLAG_TWO_WAY, NULL, 0, &mine,
                                                      &context));
    MUST(itx_ep_connect_with_rmr(active->ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY,
                                 (const unsigned char *)"name", 4, &mine, &context));
    event = check_event(passive->request, IT_CM_REQ_CONN_REQUEST_EVENT);
    data = event.conn_req.private_data;
    CHECK(event.cm_any.private_data == data && event.cm_any.private_data_present == IT_TRUE);
    CHECK(memcmp(data, "name", 4) == 0 && big_endian(data + 4, 4) == 1000);
    CHECK(big_endian(data + 8, 8) == context && context == active->rmr_context);
    CHECK(big_endian(data + 16, 8) == address(active, 0));
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           it_ep_accept(passive->ep, event.conn_req.cn_est_id, long_name, IT_MAX_PRIV_DATA + 1));
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           it_reject(event.conn_req.cn_est_id, long_name, IT_MAX_PRIV_DATA + 1));
    EXPECT(IT_ERR_INVALID_CN_EST_ID, it_reject(0, long_name, IT_MAX_PRIV_DATA));
    EXPECT(IT_ERR_INVALID_EP, it_ep_accept(NULL, event.conn_req.cn_est_id, NULL, 0));
    EXPECT(IT_SUCCESS, itx_bind_ep_to_device(passive->ep, event.conn_req.cn_est_id));
    EXPECT(IT_ERR_INVALID_EP, itx_bind_ep_to_device(NULL, event.conn_req.cn_est_id));
    EXPECT(IT_ERR_INVALID_EP,
           itx_ep_accept_with_rmr(NULL, event.conn_req.cn_est_id, &theirs, &answer));
    MUST(itx_ep_accept_with_rmr(passive->ep, event.conn_req.cn_est_id, &theirs, &answer));
    check_event(passive->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    event = check_event(active->conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    data = event.conn.private_data;
    CHECK(event.conn.private_data_present == IT_TRUE && answer == passive->rmr_context);
    CHECK(big_endian(data, 8) == answer && big_endian(data + 8, 8) == address(passive, 512));
    CHECK(big_endian(data + 16, 8) == 2000);
    EXPECT(IT_SUCCESS, itx_get_rmr_context_for_ep(passive->ep, passive->lmr, &answer));
    CHECK(answer == passive->rmr_context);
    EXPECT(IT_ERR_INVALID_EP, itx_get_rmr_context_for_ep(NULL, passive->lmr, &answer));
    EXPECT(IT_ERR_INVALID_LMR, itx_get_rmr_context_for_ep(passive->ep, NULL, &answer));
    EXPECT(IT_ERR_FAULT, itx_get_rmr_context_for_ep(passive->ep, passive->lmr, NULL));
    EXPECT(IT_SUCCESS, it_listen_free(listener));
}

/* All three parts of a cookie are returned, through every kind of request. */
static void cookies(const struct side *from, const struct side *to)
{
    it_lmr_triplet_t in = piece(to, 0, 64), out = piece(from, 0, 8);
    it_rmr_handle_t rmr;
    it_rmr_context_t context;
    it_event_t events[8];
    int got = 0, taken = 0;
    MUST(it_post_recv(to->ep, &in, 1, cookie(1), SIGNALLED));
    MUST(it_post_send(from->ep, &out, 1, cookie(2), SIGNALLED));
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    MUST(it_post_rdma_write(from->ep, &out, 1, cookie(3), SIGNALLED, address(to, 0),
                            to->rmr_context));
    MUST(it_post_rdma_read(from->ep, &out, 1, cookie(4), SIGNALLED, address(to, 0),
                           to->rmr_context));
    MUST(it_post_atomic(from->ep, IT_FETCH_AND_ADD, 1, 0, &out, cookie(5), SIGNALLED,
                        address(to, 8), to->rmr_context));
    while (taken < 3) {
        EXPECT(IT_SUCCESS, it_evd_dequeue_n(from->sends, 8, events, &got));
        for (; got > 0; got--, taken++)
            CHECK(cookie_number(events[got - 1].dto_cmpl.cookie) >= 3);
    }
    MUST(it_rmr_create20(to->pz, IT_RMR_TYPE_NARROW, &rmr));
    MUST(it_rmr_link(rmr, to->lmr, to->memory, 64, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_REMOTE, to->ep,
                     cookie(6), SIGNALLED, &context));
    check_completion(to->sends, IT_RMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 6);
    MUST(it_post_recv(to->ep, &in, 1, cookie(7), SIGNALLED));
    MUST(it_post_send_and_unlink(from->ep, &out, 1, cookie(8), SIGNALLED, context));
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 7);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 8);
    MUST(it_rmr_bind10(rmr, to->lmr, to->memory, 64, IT_PRIV_REMOTE, to->ep, cookie(9), SIGNALLED,
                       &context));
    check_completion(to->sends, IT_RMR_BIND_CMPL_EVENT, IT_DTO_SUCCESS, 9);
    MUST(it_rmr_unlink(rmr, to->ep, cookie(10), SIGNALLED));
    check_completion(to->sends, IT_RMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 10);
    MUST(it_post_recv(to->ep, &in, 1, cookie(11), SIGNALLED));
    MUST(itw_post_immediate(from->ep, 5, cookie(12), SIGNALLED));
    check_completion(to->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 11);
    check_completion(from->sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 12);
    EXPECT(IT_SUCCESS, it_rmr_free(rmr));
}

/* Refusals of the other calls of this layout. */
static void refused(const struct side *side)
{
    it_ep_param_t params;
    it_ia_info_t *info;
    it_lmr_triplet_t segment = piece(side, 0, 8);
    it_rmr_triplet_t sink = {NULL, {NULL}, 8};
    it_ud_svc_req_param_t service;
    it_rmr_context_t context;
    EXPECT(IT_SUCCESS, it_ep_query(side->ep, IT_EP_PARAM_ALL, &params));
    CHECK(params.ep_state.rc == IT_EP_STATE_CONNECTED);
    MUST(it_ia_query(side->ia, &info));
    CHECK(info->connect_private_data_len > 0 && info->connect_private_data_len <= 64);
    it_ia_info_free(info);
    EXPECT(IT_ERR_INVALID_RMR, it_post_rdma_read_to_rmr(side->ep, &sink, 1, cookie(1), SIGNALLED, 0,
                                                        0));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_post_sendto(side->ep, &segment, 1, cookie(1), SIGNALLED,
                                                  NULL));
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_post_recvfrom(side->ep, &segment, 1, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_UD_SVC,
           it_ud_service_request_handle_query(NULL, IT_UD_PARAM_ALL, &service));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_link(NULL, side->memory, NULL, 8, IT_ADDR_MODE_ABSOLUTE,
                                           IT_PRIV_ALL, side->ep, cookie(1), SIGNALLED, &context));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_unlink(NULL, side->ep, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_EP,
           itw_post_rdma_write_with_immediate(NULL, &segment, 1, cookie(1), SIGNALLED, 0, 0, 1));
}

static void aggregate_wait(it_ia_handle_t ia)
{
    it_evd_handle_t aevd, sevd;
    it_event_t events[4];
    size_t count = 77;
    MUST(it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0, 1, NULL, &aevd,
                       NULL));
    MUST(it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, aevd, &sevd, NULL));
    EXPECT(IT_SUCCESS, itx_aevd_wait(aevd, 0, 4, events, &count));
    CHECK(count == 0);
    EXPECT(IT_SUCCESS, itx_aevd_wait(aevd, 2, 4, events, &count));
    CHECK(count == 0);
    MUST(it_evd_post_se(sevd, events));
    EXPECT(IT_SUCCESS, it_evd_wait(sevd, IT_TIMEOUT_INFINITE, &events[0], NULL));
    CHECK(events[0].event_number == IT_SOFTWARE_EVENT && events[0].sw.data == events);
    MUST(it_evd_post_se(sevd, events));
    MUST(it_evd_post_se(sevd, NULL));
    EXPECT(IT_SUCCESS, itx_aevd_wait(aevd, IT_TIMEOUT_INFINITE, 4, events, &count));
    CHECK(count == 2 && events[0].sw.data == events && events[1].sw.evd == sevd);
    EXPECT(IT_ERR_INVALID_EVD, itx_aevd_wait(NULL, 0, 4, events, &count));
    EXPECT(IT_ERR_INVALID_AEVD, itx_aevd_wait(sevd, 0, 4, events, &count));
    EXPECT(IT_ERR_FAULT, itx_aevd_wait(aevd, 0, 4, NULL, &count));
    EXPECT(IT_ERR_FAULT, itx_aevd_wait(aevd, 0, 4, events, NULL));
    EXPECT(IT_SUCCESS, it_evd_free(sevd));
    EXPECT(IT_SUCCESS, it_evd_free(aevd));
}

static void feed(it_evd_handle_t sevd, it_evd_handle_t aevd)
{
    it_evd_param_t params;
    memset(&params, 0, sizeof params);
    params.aevd = aevd;
    MUST(it_evd_modify(sevd, IT_EVD_PARAM_AEVD_HANDLE, &params));
}

/* Connection events first, then sends, then receives, whatever the order of arrival. */
static void order(const struct side *active, const struct side *passive)
{
    it_lmr_triplet_t in = piece(active, 0, 64), out = piece(active, 64, 8);
    it_evd_handle_t sevds[3], notifying, plain;
    it_event_t events[8];
    size_t count, n;
    MUST(it_evd_create(active->ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, IT_EVD_DEQUEUE_NOTIFICATIONS,
                       0, 1, NULL, &notifying, NULL));
    MUST(it_evd_create(active->ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0, 1, NULL,
                       &plain, NULL));
    MUST(it_post_recv(active->ep, &in, 1, cookie(1), SIGNALLED));
    in = piece(passive, 0, 64);
    MUST(it_post_recv(passive->ep, &in, 1, cookie(2), SIGNALLED));
    MUST(it_post_send(active->ep, &out, 1, cookie(3), SIGNALLED));
    check_completion(passive->receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    /* Transport and standard have no private data here; these applications pass some. */
    EXPECT(IT_ERR_INVALID_EP, it_ep_disconnect(NULL, NULL, 0));
    EXPECT(IT_SUCCESS, it_ep_disconnect(passive->ep, (const unsigned char *)"bye", 4));
    sevds[0] = active->receives;
    sevds[1] = active->sends;
    sevds[2] = active->conn;
    for (n = 0; n < 3; n++) {
        feed(sevds[n], notifying);
        MUST(it_evd_wait(notifying, IT_TIMEOUT_INFINITE, &events[0], NULL));
        CHECK(events[0].aevd_notify.sevd == sevds[n]);
        feed(sevds[n], NULL);
    }
    for (n = 0; n < 3; n++)
        feed(sevds[n], plain);
    EXPECT(IT_SUCCESS, itx_aevd_wait(plain, IT_TIMEOUT_INFINITE, 8, events, &count));
    CHECK(count == 3 && events[0].event_number == IT_CM_MSG_CONN_DISCONNECT_EVENT);
    CHECK(events[1].event_number == IT_DTO_SEND_CMPL_EVENT);
    CHECK(cookie_number(events[1].dto_cmpl.cookie) == 3);
    CHECK(events[2].event_number == IT_DTO_RC_RECV_CMPL_EVENT);
    CHECK(cookie_number(events[2].dto_cmpl.cookie) == 1);
    for (n = 0; n < 3; n++)
        feed(sevds[n], NULL);
    EXPECT(IT_SUCCESS, it_evd_free(notifying));
    EXPECT(IT_SUCCESS, it_evd_free(plain));
}

static int readable(int fd)
{
    struct pollfd asked = {fd, POLLIN, 0};
    return poll(&asked, 1, 0);
}

/* A lost stream is only a broken connection: these applications exit at affiliated events. */
static void losses(void)
{
    /* An FPDU of 16 octets with a wrong CRC (RFC 5044 4). */
    static const unsigned char wrong[24] = {0, 16};
    struct side side;
    it_evd_handle_t affiliated, aevd;
    it_event_t events[4];
    size_t count;
    int plain, fd, got = 0;
    side_open(&side);
    MUST(it_evd_create(side.ia, IT_ASYNC_AFF_EVENT_STREAM, IT_EVD_CREATE_FD, 8, 1, NULL,
                       &affiliated, &fd));
    MUST(it_evd_create(side.ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0, 1, NULL,
                       &aevd, NULL));
    /* Polled and waited for. */
    check_abort(side_connect_plain(&side));
    check_event(side.conn, IT_CM_MSG_CONN_BROKEN_EVENT);
    check_empty(affiliated);
    check_reset(side.ep);
    check_abort(side_connect_plain(&side));
    check_event(side.conn, IT_CM_MSG_CONN_BROKEN_EVENT);
    EXPECT(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(affiliated, 0, &events[0], NULL));
    check_reset(side.ep);
    check_abort(side_connect_plain(&side));
    check_event(side.conn, IT_CM_MSG_CONN_BROKEN_EVENT);
    EXPECT(IT_SUCCESS, it_evd_dequeue_n(affiliated, 4, events, &got));
    CHECK(got == 0);
    check_reset(side.ep);
    /* Waits as servers of this profile do: for both streams. */
    plain = side_connect_plain(&side);
    /* The earlier losses woke no thread and were not counted. */
    CHECK(!readable(fd));
    feed(affiliated, aevd);
    feed(side.conn, aevd);
    check_abort(plain);
    MUST(itx_aevd_wait(aevd, IT_TIMEOUT_INFINITE, 4, events, &count));
    CHECK(count == 1 && events[0].event_number == IT_CM_MSG_CONN_BROKEN_EVENT);
    EXPECT(IT_SUCCESS, itx_aevd_wait(aevd, 0, 4, events, &count));
    CHECK(count == 0);
    feed(affiliated, NULL);
    feed(side.conn, NULL);
    check_reset(side.ep);
    /* An error of the peer is still reported. */
    plain = side_connect_plain(&side);
    CHECK(send(plain, wrong, sizeof wrong, MSG_NOSIGNAL) == (ssize_t)sizeof wrong);
    check_event(side.conn, IT_CM_MSG_CONN_BROKEN_EVENT);
    MUST(it_evd_wait(affiliated, IT_TIMEOUT_INFINITE, &events[0], &count));
    CHECK(events[0].event_number == IT_ASYNC_AFF_EP_L_LLP_ERROR);
    CHECK(events[0].aff_async.cause.ep == side.ep && count == 0 && !readable(fd));
    CHECK(close(plain) == 0);
    EXPECT(IT_SUCCESS, it_evd_free(affiliated));
    EXPECT(IT_SUCCESS, it_evd_free(aevd));
    side_close(&side);
}

int main(void)
{
    struct side active, passive;
    it_event_t event;
    uint64_t data;
    EXPECT(IT_SUCCESS, itx_init_tracing("zurich test", 3));
    EXPECT(IT_ERR_FAULT, itx_init_tracing(NULL, 0));
    side_open(&active);
    side_open(&passive);
    regions_in_private_data(&active, &passive);
    cookies(&active, &passive);
    refused(&active);
    aggregate_wait(active.ia);
    order(&active, &passive);
    memset(&event, 0, sizeof event);
    event.event_number = IT_SOFTWARE_EVENT;
    EXPECT(IT_ERR_INVALID_EVD_TYPE, itw_event_immediate(&event, &data));
    CHECK(itw_event_text(&event, NULL, 0) > 0);
    side_close(&active);
    side_close(&passive);
    losses();
    return checked("zurich");
}
