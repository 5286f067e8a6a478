/* A ping-pong written by the table of docs/verbs-to-it-api.md; comments name the verbs calls that it replaces.
   "from_verbs" listens at a free port and prints it; "from_verbs HOST:PORT" counts round trips. */
#define ITAPI_ENABLE_V21_BINDINGS
#include <it_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 64, ROUNDS = 1000 };

static char memory[2][SIZE]; /* received, sent */
static it_lmr_handle_t mr;
static it_evd_handle_t cq, cm;
static it_ep_handle_t qp;

/* A call that fails ends the program. */
static void must(it_status_t status, const char *call)
{
    char why[512] = "";
    if (status == IT_SUCCESS)
        return;
    itw_last_error(why, sizeof why); /* errno */
    fprintf(stderr, "%s: %s\n", call, why);
    exit(1);
}
#define MUST(call) must((call), #call)

/* rdma_get_cm_event(), or ibv_get_cq_event() and ibv_poll_cq() */
static it_event_t next(it_evd_handle_t evd)
{
    it_event_t event;
    MUST(it_evd_wait(evd, 20 * 1000 * 1000, &event, NULL));
    return event;
}

static void post_recv(void)
{
    it_lmr_triplet_t sge = { mr, { memory[0] }, SIZE }; /* struct ibv_sge */
    MUST(it_post_recv(qp, &sge, 1, 0, IT_COMPLETION_FLAG | IT_NOTIFY_FLAG)); /* ibv_post_recv() */
}

static void post_send(void)
{
    it_lmr_triplet_t sge = { mr, { memory[1] }, SIZE };
    /* ibv_post_send(IBV_WR_SEND, IBV_SEND_SIGNALED) */
    MUST(it_post_send(qp, &sge, 1, 1, IT_COMPLETION_FLAG | IT_NOTIFY_FLAG));
}

/* Waits for that many completions: of a receive and of a Send, in either order. */
static void complete(int number)
{
    while (number-- > 0) {
        it_event_t wc = next(cq);
        if (wc.dto_cmpl.dto_status != IT_DTO_SUCCESS) { /* wc.status */
            fprintf(stderr, "completion with status %d\n", (int)wc.dto_cmpl.dto_status);
            exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    char address[64];
    int rounds, client = argc > 1;
    it_ia_handle_t context;
    it_pz_handle_t pd;
    it_evd_handle_t requests;
    it_listen_handle_t listen;
    it_ep_attributes_t attr;
    it_event_t event;

    MUST(it_ia_create("vp_softrdma", 2, 1, &context)); /* ibv_open_device() */
    MUST(it_pz_create(context, &pd));                  /* ibv_alloc_pd() */
    MUST(it_lmr_create(pd, memory, NULL, sizeof memory, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_LOCAL_READ | IT_PRIV_LOCAL_WRITE,
                       0, 0, &mr, NULL)); /* ibv_reg_mr() */
    /* ibv_create_comp_channel() and ibv_create_cq(); rdma_create_event_channel(); ibv_create_qp() */
    MUST(it_evd_create(context, IT_DTO_EVENT_STREAM, 0, 16, 1, IT_NULL_HANDLE, &cq, NULL));
    MUST(it_evd_create(context, IT_CM_MSG_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &cm, NULL));
    MUST(itw_ep_attributes_init(&attr));
    MUST(it_ep_rc_create(pd, cq, cq, cm, IT_EP_NO_FLAG, &attr, &qp));
    post_recv(); /* before the peer can send */
    if (client) {
        MUST(itw_connect(qp, argv[1], NULL, 0)); /* rdma_resolve_addr(), rdma_resolve_route(), rdma_connect() */
    } else {
        MUST(it_evd_create(context, IT_CM_REQ_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &requests, NULL));
        MUST(itw_listen(context, "127.0.0.1:0", requests, &listen)); /* rdma_bind_addr(), rdma_listen() */
        itw_listen_address(listen, address, sizeof address);         /* rdma_get_src_port() */
        printf("listening at %s\n", address);
        fflush(stdout);
        event = next(requests);                                      /* RDMA_CM_EVENT_CONNECT_REQUEST */
        MUST(it_ep_accept(qp, event.conn_req.cn_est_id, NULL, 0));   /* rdma_accept() */
    }
    if (next(cm).event_number != IT_CM_MSG_CONN_ESTABLISHED_EVENT) /* RDMA_CM_EVENT_ESTABLISHED */
        return 1;
    for (rounds = 0; rounds < ROUNDS; rounds++) {
        if (client)
            post_send();
        complete(client ? 2 : 1); /* the server's Send of the round before is counted below */
        post_recv();
        if (!client) {
            post_send();
            complete(1);
        }
    }
    printf("%d round trips of %d octets\n", rounds, SIZE);
    if (client)
        MUST(it_ep_disconnect(qp, NULL, 0)); /* rdma_disconnect() */
    return next(cm).event_number == IT_CM_MSG_CONN_DISCONNECT_EVENT ? 0 : 1;
}
