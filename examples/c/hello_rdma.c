/*
 * A complete RDMA connection: connect, exchange keys, one RDMA Write, one Send, close.
 *
 * "hello_rdma" serves one client and prints its address; "hello_rdma HOST:PORT" is that client;
 * both take "--ia NAME". One thread owns all objects. When the peer dies, the wait returns an event
 * that says so.
 */
#include "example.h"

/* The server's memory: for the client's RDMA Write, and for its Send. */
#define ROOM 64
#define WRITTEN "hello by RDMA Write"
#define SENT "hello by Send"

static const char *name;
static it_ia_handle_t ia;
static it_pz_handle_t pz;
static it_evd_handle_t work, events;
static it_ep_handle_t ep;
static it_lmr_handle_t lmr;
static it_rmr_context_t key;
static unsigned char memory[2 * ROOM];

/* Memory that the peer may write, and an endpoint. */
static bool prepare(void)
{
    it_ep_attributes_t attr;
    memset(&attr, 0, sizeof attr);
    attr.max_dto_payload_size = ROOM;
    attr.max_request_dtos = 2;
    attr.max_recv_dtos = attr.max_send_segments = attr.max_recv_segments = 1;
    attr.srv.rc.rdma_write_enable = IT_TRUE;
    attr.srv.rc.max_rdma_write_segments = 1;
    TRY(it_ia_create(name, 2, 1, &ia));
    TRY(it_pz_create(ia, &pz));
    TRY(it_evd_create(ia, IT_DTO_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &work, NULL));
    TRY(it_evd_create(ia, IT_CM_MSG_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &events, NULL));
    TRY(it_ep_rc_create(pz, work, work, events, IT_EP_NO_FLAG, &attr, &ep));
    TRY(it_lmr_create(pz, memory, NULL, sizeof memory, IT_ADDR_MODE_ABSOLUTE,
                      (it_mem_priv_t)(IT_PRIV_LOCAL | IT_PRIV_REMOTE_WRITE), IT_LMR_FLAG_NONE, 0,
                      &lmr, &key));
    return true;
}

/* Connection handling: serves one client; the private data is the server's key. */
static bool accept_one(void)
{
    unsigned char range[RANGE_OCTETS];
    it_event_t event;
    it_evd_handle_t requests;
    if (!listen_at(ia, "127.0.0.1:0", &requests))
        return false;
    TRY(it_evd_wait(requests, IT_TIMEOUT_INFINITE, &event, NULL));
    put_range(range, key, memory, ROOM);
    TRY(it_ep_accept(ep, event.conn_req.cn_est_id, range, sizeof range));
    return expect(events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event);
}

/* Connection handling: connects; returns the server's key. */
static bool connect_to(const char *server, unsigned char *range)
{
    it_event_t event;
    TRY(itw_connect(ep, server, NULL, 0));
    if (!expect(events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event))
        return false;
    memcpy(range, event.conn.private_data, RANGE_OCTETS);
    return true;
}

/* Waits until a posted request has completed. */
static bool done(it_event_t *event)
{
    TRY(it_evd_wait(work, PATIENCE, event, NULL));
    return event->dto_cmpl.dto_status == IT_DTO_SUCCESS || complain(event);
}

static bool serve(void)
{
    it_event_t event;
    it_lmr_triplet_t room = { 0 };
    if (!prepare())
        return false;
    room.lmr = lmr;
    room.addr.abs = memory + ROOM;
    room.length = ROOM;
    TRY(it_post_recv(ep, &room, 1, 0, SIGNALLED));
    if (!accept_one() || !done(&event))
        return false;
    /* The Send arrived after the RDMA Write, which is complete, too. */
    printf("%.*s, %.*s\n", (int)strlen(WRITTEN), (char *)memory,
           (int)event.dto_cmpl.transferred_length, (char *)memory + ROOM);
    return expect(events, IT_CM_MSG_CONN_DISCONNECT_EVENT, &event);
}

static bool greet(const char *server)
{
    it_event_t event;
    unsigned char board[RANGE_OCTETS];
    it_lmr_triplet_t text = { 0 };
    if (!prepare() || !connect_to(server, board))
        return false;
    memcpy(memory, WRITTEN SENT, strlen(WRITTEN SENT));
    text.lmr = lmr;
    text.addr.abs = memory;
    text.length = strlen(WRITTEN);
    TRY(it_post_rdma_write(ep, &text, 1, 1, 0, get64(board + 4), get32(board)));
    text.addr.abs = memory + strlen(WRITTEN);
    text.length = strlen(SENT);
    TRY(it_post_send(ep, &text, 1, 2, SIGNALLED));
    if (!done(&event))
        return false;
    TRY(it_ep_disconnect(ep, NULL, 0));
    return expect(events, IT_CM_MSG_CONN_DISCONNECT_EVENT, &event);
}

int main(int argc, char **argv)
{
    name = option(&argc, argv, "--ia", "vp_softrdma");
    bool well = argc > 1 ? greet(argv[1]) : serve();
    /* Frees everything that was made from it, too. */
    it_ia_free(ia);
    return well ? 0 : 1;
}
