/* Queue pairs for datagrams that share a receive queue: each message arrives once, at the right queue pair, and the
 * queue outlives its users. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                          \
    do {                                                                     \
        if (!(what)) {                                                       \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what,           \
                    strerror(errno));                                        \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

enum { PAIRS = 3, ROUNDS = 100, LEN = 64, GRH = 40, QKEY = 0x11111111 };

static char buffer[(1 + PAIRS) * (GRH + LEN)];
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static struct ibv_qp *create(struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .srq = srq,
                                    .cap = {.max_send_wr = 8, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    return qp;
}

static void receive(struct ibv_srq *srq, int at)
{
    struct ibv_sge sge = {(uintptr_t)buffer + (1 + at) * (GRH + LEN), GRH + LEN, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = at, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
}

static struct ibv_wc completion(void)
{
    struct ibv_wc wc;
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        ;
    CHECK(found == 1 && wc.status == IBV_WC_SUCCESS);
    return wc;
}

int main(void)
{
    struct ibv_device **all = ibv_get_device_list(NULL), **first = all;
    CHECK(all);
    /* RNICs have no datagrams. */
    while (*first && (*first)->node_type != IBV_NODE_CA)
        first++;
    CHECK(*first && (context = ibv_open_device(*first)));
    ibv_free_device_list(all);
    CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
    CHECK((mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE)));
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = PAIRS, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    CHECK(srq);
    struct ibv_qp *pairs[PAIRS];
    for (int at = 0; at < PAIRS; at++)
        pairs[at] = create(srq);
    struct ibv_recv_wr none = {.wr_id = 1}, *bad_recv;
    CHECK(ibv_post_recv(pairs[0], &none, &bad_recv) == EINVAL);
    CHECK(ibv_destroy_srq(srq) == EBUSY);

    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
    CHECK(!ibv_query_gid(context, 1, 0, &path.grh.dgid));
    struct ibv_ah *ah = ibv_create_ah(pd, &path);
    CHECK(ah);
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < PAIRS; at++)
            receive(srq, at);
        for (int at = 0; at < PAIRS; at++) {
            snprintf(buffer, LEN, "%d for %u", round, pairs[at]->qp_num);
            struct ibv_sge sge = {(uintptr_t)buffer, LEN, mr->lkey};
            struct ibv_send_wr wr = {.wr_id = 100,
                                     .sg_list = &sge,
                                     .num_sge = 1,
                                     .opcode = IBV_WR_SEND,
                                     .send_flags = IBV_SEND_SIGNALED,
                                     .wr.ud = {ah, pairs[at]->qp_num, QKEY}},
                               *bad;
            CHECK(!ibv_post_send(pairs[(at + 1) % PAIRS], &wr, &bad));
            for (int left = 2; left; left--) {
                struct ibv_wc wc = completion();
                if (wc.wr_id == 100)
                    continue;
                /* The queue's receives are used in order, whoever needs one. */
                CHECK((int)wc.wr_id == at && wc.qp_num == pairs[at]->qp_num);
                CHECK(wc.src_qp == pairs[(at + 1) % PAIRS]->qp_num && wc.byte_len == GRH + LEN);
                CHECK(!memcmp(buffer, buffer + (1 + at) * (GRH + LEN) + GRH, LEN));
            }
        }
    }
    CHECK(!ibv_destroy_ah(ah));
    for (int at = 0; at < PAIRS; at++)
        CHECK(!ibv_destroy_qp(pairs[at]));
    CHECK(!ibv_destroy_srq(srq));
    CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    puts("verified");
    return 0;
}
