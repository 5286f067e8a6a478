/*
 * Program that connects, transfers and closes, for runs in which memory is refused: every failure ends it in
 * order. It exits with 0 on success, with 3 if a call returned an error, which it prints, and with 4 if a wait
 * timed out.
 *
 * Only the library allocates.
 */
#include "short.h"

#include <stdlib.h>

enum { OCTETS = 4096, DEPTH = 16 };

/* Microseconds that a wait may last; the argument is in seconds. */
static uint64_t longest = 20000000;

struct end {
    it_ia_handle_t ia;
    it_pz_handle_t pz;
    it_evd_handle_t dto, conn, request;
    it_ep_handle_t ep;
    it_lmr_handle_t lmr;
    it_rmr_context_t context;
};

static unsigned char memory[2][OCTETS];
static struct end ends[2];

static int open_end(struct end *end, unsigned char *octets)
{
    it_ep_attributes_t wanted = attributes(OCTETS, DEPTH);
    const it_evd_flags_t none = (it_evd_flags_t)0;
    TRY(it_ia_create(provider(), 2, 0, &end->ia));
    TRY(it_pz_create(end->ia, &end->pz));
    TRY(it_evd_create(end->ia, IT_DTO_EVENT_STREAM, none, 4 * DEPTH, 1, NULL, &end->dto, NULL));
    TRY(it_evd_create(end->ia, IT_CM_MSG_EVENT_STREAM, none, DEPTH, 1, NULL, &end->conn, NULL));
    TRY(it_evd_create(end->ia, IT_CM_REQ_EVENT_STREAM, none, DEPTH, 1, NULL, &end->request, NULL));
    TRY(it_ep_rc_create(end->pz, end->dto, end->dto, end->conn, IT_EP_NO_FLAG, &wanted, &end->ep));
    TRY(it_lmr_create(end->pz, octets, NULL, OCTETS, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL,
                      IT_LMR_FLAG_NONE, 0, &end->lmr, &end->context));
    return 0;
}

/* Waits for an event of this type; another one is a failure. */
static int expect(it_evd_handle_t evd, it_event_type_t type, it_event_t *event)
{
    char text[600];
    TRY(it_evd_wait(evd, longest, event, NULL));
    if (event->event_number == type)
        return 0;
    itw_event_text(event, text, sizeof text);
    print("an event that reports a failure: ");
    print(text);
    print("\n");
    return 3;
}

static int complete(const struct end *end, it_event_type_t type)
{
    it_event_t event;
    int status = expect(end->dto, type, &event);
    if (status == 0 && event.dto_cmpl.dto_status != IT_DTO_SUCCESS) {
        print("a completion without success\n");
        status = 3;
    }
    return status;
}

static int connect_ends(it_listen_handle_t *listener)
{
    it_conn_qual_t port;
    const it_path_t path = path_here(longest);
    it_event_t event;
    int status;
    memset(&port, 0, sizeof port);
    port.type = IT_IANA_PORT;
    TRY(it_listen_create(ends[1].ia, 0, ends[1].request, IT_LISTEN_NO_FLAG, &port, listener));
    TRY(it_ep_connect(ends[0].ep, &path, NULL, &port, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    if ((status = expect(ends[1].request, IT_CM_REQ_CONN_REQUEST_EVENT, &event)) != 0)
        return status;
    TRY(it_ep_accept(ends[1].ep, event.conn_req.cn_est_id, NULL, 0));
    if ((status = expect(ends[0].conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event)) != 0)
        return status;
    return expect(ends[1].conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event);
}

static int transfer(void)
{
    const it_dto_flags_t flags = (it_dto_flags_t)(IT_COMPLETION_FLAG | IT_NOTIFY_FLAG);
    it_lmr_triplet_t out, in;
    it_rdma_addr_t there = it_make_rdma_addr(memory[1]);
    int status;
    memset(&out, 0, sizeof out);
    out.lmr = ends[0].lmr;
    out.addr.abs = memory[0];
    out.length = OCTETS;
    in = out;
    in.lmr = ends[1].lmr;
    in.addr.abs = memory[1];
    memset(memory[0], 7, OCTETS);
    TRY(it_post_recv(ends[1].ep, &in, 1, 1, flags));
    TRY(it_post_send(ends[0].ep, &out, 1, 2, flags));
    if ((status = complete(&ends[1], IT_DTO_RC_RECV_CMPL_EVENT)) != 0 ||
        (status = complete(&ends[0], IT_DTO_SEND_CMPL_EVENT)) != 0)
        return status;
    if (memcmp(memory[0], memory[1], OCTETS) != 0) {
        print("other octets than were sent\n");
        return 6;
    }
    TRY(it_post_rdma_write(ends[0].ep, &out, 1, 3, flags, there, ends[1].context));
    if ((status = complete(&ends[0], IT_DTO_RDMA_WRITE_CMPL_EVENT)) != 0)
        return status;
    TRY(it_post_rdma_read(ends[0].ep, &out, 1, 4, flags, there, ends[1].context));
    return complete(&ends[0], IT_DTO_RDMA_READ_CMPL_EVENT);
}

static int close_end(const struct end *end)
{
    TRY(it_ep_free(end->ep));
    TRY(it_lmr_free(end->lmr));
    TRY(it_evd_free(end->dto));
    TRY(it_evd_free(end->conn));
    TRY(it_evd_free(end->request));
    TRY(it_pz_free(end->pz));
    TRY(it_ia_free(end->ia));
    return 0;
}

static int run(void)
{
    it_listen_handle_t listener;
    int status;
    if ((status = open_end(&ends[0], memory[0])) != 0 ||
        (status = open_end(&ends[1], memory[1])) != 0 ||
        (status = connect_ends(&listener)) != 0 || (status = transfer()) != 0)
        return status;
    TRY(it_listen_free(listener));
    if ((status = close_end(&ends[0])) != 0)
        return status;
    return close_end(&ends[1]);
}

int main(int count, char **arguments)
{
    int status, end;
    if (count == 2)
        longest = strtoul(arguments[1], NULL, 10) * 1000000;
    status = run();
    /* Closes all open objects, also while memory is refused. */
    for (end = 0; status != 0 && end < 2; end++)
        if (ends[end].ia != NULL)
            it_ia_free(ends[end].ia);
    return status;
}
