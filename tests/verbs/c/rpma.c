/* Test program on librpma's public functions, both sides: a server that exposes memory, and a client that
 * writes, flushes, reads and compares, sends a message and receives one. */

#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20, MESSAGE = 64, ROUNDS = 50 };

static const int EACH = RPMA_F_COMPLETION_ALWAYS;
static const int USAGE = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
                         RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;

static void must(int result, const char *what)
{
    if (result) {
        fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
        _exit(1);
    }
}

/* Objects of either side. */
struct side {
    struct rpma_peer *peer;
    struct rpma_mr_local *data, *messages;
    char *memory, (*message)[MESSAGE];
};

static struct side begin(const char *address, enum rpma_util_ibv_context_type type)
{
    struct side side;
    struct ibv_context *device;
    must(rpma_utils_get_ibv_context(address, type, &device), "rpma_utils_get_ibv_context");
    must(rpma_peer_new(device, &side.peer), "rpma_peer_new");
    side.memory = aligned_alloc(4096, SIZE);
    side.message = calloc(2, MESSAGE);
    must(!side.memory || !side.message ? RPMA_E_NOMEM : 0, "memory");
    must(rpma_mr_reg(side.peer, side.memory, SIZE, USAGE, &side.data), "rpma_mr_reg");
    must(rpma_mr_reg(side.peer, side.message, 2 * MESSAGE, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV,
                     &side.messages), "rpma_mr_reg");
    return side;
}

static void event(struct rpma_conn *connection, enum rpma_conn_event expected)
{
    enum rpma_conn_event came;
    must(rpma_conn_next_event(connection, &came), "rpma_conn_next_event");
    if (came != expected) {
        fprintf(stderr, "%s\n", rpma_utils_conn_event_2str(came));
        _exit(1);
    }
}

/* Takes one completion as librpma's users do: wait, then poll. */
static void take(struct rpma_conn *connection, enum ibv_wc_opcode expected)
{
    struct rpma_cq *cq;
    struct ibv_wc wc;
    int result;
    must(rpma_conn_get_cq(connection, &cq), "rpma_conn_get_cq");
    while ((result = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
        must(rpma_cq_wait(cq), "rpma_cq_wait");
    must(result, "rpma_cq_get_wc");
    if (wc.status != IBV_WC_SUCCESS || wc.opcode != expected) {
        fprintf(stderr, "completion of %d: %s\n", wc.opcode, ibv_wc_status_str(wc.status));
        _exit(1);
    }
}

static void end(struct side *side, struct rpma_conn *connection)
{
    must(rpma_conn_delete(&connection), "rpma_conn_delete");
    must(rpma_mr_dereg(&side->data), "rpma_mr_dereg");
    must(rpma_mr_dereg(&side->messages), "rpma_mr_dereg");
    must(rpma_peer_delete(&side->peer), "rpma_peer_delete");
    free(side->memory);
    free(side->message);
}

static void serve(const char *address, const char *port)
{
    struct side side = begin(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
    memset(side.memory, 0, SIZE);
    char name[MESSAGE];
    size_t length;
    must(rpma_mr_get_descriptor_size(side.data, &length), "rpma_mr_get_descriptor_size");
    must(length > sizeof name ? RPMA_E_INVAL : 0, "descriptor");
    must(rpma_mr_get_descriptor(side.data, name), "rpma_mr_get_descriptor");
    struct rpma_ep *listening;
    struct rpma_conn_req *request;
    struct rpma_conn *connection;
    must(rpma_ep_listen(side.peer, address, port, &listening), "rpma_ep_listen");
    must(rpma_ep_next_conn_req(listening, NULL, &request), "rpma_ep_next_conn_req");
    must(rpma_conn_req_recv(request, side.messages, 0, MESSAGE, NULL), "rpma_conn_req_recv");
    struct rpma_conn_private_data lent = {name, length};
    must(rpma_conn_req_connect(&request, &lent, &connection), "rpma_conn_req_connect");
    event(connection, RPMA_CONN_ESTABLISHED);
    take(connection, IBV_WC_RECV);
    /* The client has written and flushed before it sent the message. */
    snprintf(side.message[1], MESSAGE, "last %d", side.memory[SIZE - 1]);
    must(rpma_send(connection, side.messages, MESSAGE, MESSAGE, EACH, NULL), "rpma_send");
    take(connection, IBV_WC_SEND);
    event(connection, RPMA_CONN_CLOSED);
    must(rpma_conn_disconnect(connection), "rpma_conn_disconnect");
    must(rpma_ep_shutdown(&listening), "rpma_ep_shutdown");
    end(&side, connection);
}

static void use(const char *address, const char *port)
{
    struct side side = begin(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
    struct rpma_conn_req *request;
    struct rpma_conn *connection;
    struct rpma_conn_private_data lent;
    struct rpma_mr_remote *there;
    must(rpma_conn_req_new(side.peer, address, port, NULL, &request), "rpma_conn_req_new");
    must(rpma_conn_req_recv(request, side.messages, 0, MESSAGE, NULL), "rpma_conn_req_recv");
    must(rpma_conn_req_connect(&request, NULL, &connection), "rpma_conn_req_connect");
    event(connection, RPMA_CONN_ESTABLISHED);
    must(rpma_conn_get_private_data(connection, &lent), "rpma_conn_get_private_data");
    must(rpma_mr_remote_from_descriptor(lent.ptr, lent.len, &there), "rpma_mr_remote_from_descriptor");
    for (int round = 1; round <= ROUNDS; round++) {
        int half = SIZE / 2;
        for (int i = 0; i < half; i++)
            side.memory[i] = i * 7 + round;
        must(rpma_write(connection, there, half, side.data, 0, half, RPMA_F_COMPLETION_ON_ERROR, NULL), "rpma_write");
        must(rpma_flush(connection, there, half, half, RPMA_FLUSH_TYPE_VISIBILITY, EACH, NULL), "rpma_flush");
        take(connection, IBV_WC_RDMA_READ);
        must(rpma_read(connection, side.data, half, there, half, half, EACH, NULL), "rpma_read");
        take(connection, IBV_WC_RDMA_READ);
        must(memcmp(side.memory, side.memory + half, half) ? RPMA_E_UNKNOWN : 0, "the data");
    }
    snprintf(side.message[1], MESSAGE, "last");
    must(rpma_send(connection, side.messages, MESSAGE, MESSAGE, EACH, NULL), "rpma_send");
    char expected[MESSAGE];
    snprintf(expected, sizeof expected, "last %d", side.memory[SIZE / 2 - 1]);
    take(connection, IBV_WC_SEND);
    take(connection, IBV_WC_RECV);
    must(strcmp(side.message[0], expected) ? RPMA_E_UNKNOWN : 0, "the message");
    must(rpma_conn_disconnect(connection), "rpma_conn_disconnect");
    event(connection, RPMA_CONN_CLOSED);
    must(rpma_mr_remote_delete(&there), "rpma_mr_remote_delete");
    end(&side, connection);
    printf("%d rounds verified\n", ROUNDS);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "serve") == 0)
        serve(argv[2], argv[3]);
    else if (argc == 4 && strcmp(argv[1], "use") == 0)
        use(argv[2], argv[3]);
    else
        return 2;
    return 0;
}
