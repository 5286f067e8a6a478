/* Test program: a ring of processes as in collective libraries: libibverbs by dlopen, each function by dlvsym,
 * queue pairs connected by GID and number, RDMA Writes with Immediate whose receives are posted late; then ring
 * all-reduce by unsignalled RDMA Writes and an inline Write with Immediate that reports their arrival. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16, ROUNDS = 20, WRITES = 8, WORDS = 8192, IMM = 1000, CHUNK = 2048 };

/* What the processes exchange, as a collective library's bootstrap does. */
struct shared {
    pthread_barrier_t barrier;
    struct { union ibv_gid gid; uint32_t in, out, rkey, steps_rkey; uint64_t address, steps; } rank[MOST];
};

static struct shared *shared;
static int me, ranks;

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d: %s failed\n", me, what);
        _exit(1);
    }
}

static void *find(void *library, const char *name, const char *node)
{
    void *found = dlvsym(library, name, node);
    must(found != NULL, name);
    return found;
}

#define LOAD(name, node) __typeof__(name) *my_##name = (__typeof__(name) *)find(library, #name, node)

static void connect_to(int (*modify)(struct ibv_qp *, struct ibv_qp_attr *, int), struct ibv_qp *qp,
                       union ibv_gid gid, uint32_t number)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    must(modify(qp, &attr, mask) == 0, "INIT");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
                                .max_dest_rd_atomic = 1, .min_rnr_timer = 12};
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
    attr.ah_attr.grh = (struct ibv_global_route){.dgid = gid, .sgid_index = 1, .hop_limit = 255};
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    must(modify(qp, &attr, mask) == 0, "RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
                                .max_rd_atomic = 1};
    mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC;
    must(modify(qp, &attr, mask) == 0, "RTS");
}

/* Takes a number of completions; each must be a success. */
static void take(struct ibv_cq *cq, int sends, int receives)
{
    struct ibv_wc wc;
    for (int expected = 0; sends + receives > 0;) {
        int found = ibv_poll_cq(cq, 1, &wc);
        must(found >= 0, "ibv_poll_cq");
        if (found == 0)
            continue;
        must(wc.status == IBV_WC_SUCCESS, "a work request");
        if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
            sends--;
            continue;
        }
        must(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == htobe32(IMM + expected), "an immediate");
        expected++;
        receives--;
    }
}

/* One end of the ring, and its memory. */
struct link {
    struct ibv_qp *to, *from;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    uint64_t address;
    uint32_t rkey;
};

/* Buffers of partial sums, one for each step, so that none is overwritten before it is read; the last word of
 * each arrives inline. */
static uint32_t sums[MOST][CHUNK], steps[2 * MOST][CHUNK + 1];

/* Sends a chunk to the next rank and waits for one of the previous rank, whose receive is posted late. */
static uint32_t *pass(struct link *link, const uint32_t *chunk, int step)
{
    uint64_t there = link->address + step * sizeof steps[0];
    uint32_t mark = me * 100 + step;
    struct ibv_sge data = {(uintptr_t)chunk, CHUNK * sizeof *chunk, link->mr->lkey};
    struct ibv_sge small = {(uintptr_t)&mark, sizeof mark, 0};
    struct ibv_send_wr last = {.sg_list = &small, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                               .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED, .imm_data = htobe32(IMM)};
    struct ibv_send_wr first = {.next = &last, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    first.wr.rdma.remote_addr = there;
    last.wr.rdma.remote_addr = there + data.length;
    first.wr.rdma.rkey = last.wr.rdma.rkey = link->rkey;
    must(ibv_post_send(link->to, &first, &bad) == 0, "ibv_post_send");
    /* Inline data is copied when posted. */
    mark = 0;
    struct ibv_recv_wr receive = {.wr_id = step}, *refused;
    must(ibv_post_recv(link->from, &receive, &refused) == 0, "ibv_post_recv");
    take(link->cq, 1, 1);
    must(steps[step][CHUNK] == (uint32_t)((me + ranks - 1) % ranks * 100 + step), "inline data");
    return steps[step];
}

/* Ring all-reduce: partial sums go round once, then the sums. */
static void all_reduce(struct link *link, int round)
{
    for (int chunk = 0; chunk < ranks; chunk++)
        for (int word = 0; word < CHUNK; word++)
            sums[chunk][word] = (me + 1) * (round + 3) + chunk * 7 + word;
    for (int step = 0; step < 2 * (ranks - 1); step++) {
        int out = (me - step + 2 * ranks) % ranks, in = (out + ranks - 1) % ranks;
        uint32_t *came = pass(link, sums[out], step);
        for (int word = 0; word < CHUNK; word++)
            sums[in][word] = came[word] + (step < ranks - 1 ? sums[in][word] : 0);
    }
    for (int chunk = 0; chunk < ranks; chunk++)
        for (int word = 0; word < CHUNK; word++)
            must(sums[chunk][word] == (uint32_t)(ranks * (ranks + 1) / 2 * (round + 3) +
                                                 ranks * (chunk * 7 + word)), "the sum");
    pthread_barrier_wait(&shared->barrier);
}

static void rank(void)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    must(library != NULL, "dlopen");
    LOAD(ibv_get_device_list, "IBVERBS_1.1");
    LOAD(ibv_open_device, "IBVERBS_1.1");
    LOAD(ibv_alloc_pd, "IBVERBS_1.1");
    LOAD(ibv_reg_mr_iova2, "IBVERBS_1.8");
    must(dlvsym(library, "ibv_query_ece", "IBVERBS_1.10") != NULL, "ibv_query_ece");
    must(dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12") != NULL, "ibv_reg_dmabuf_mr");
    LOAD(ibv_create_cq, "IBVERBS_1.1");
    LOAD(ibv_create_qp, "IBVERBS_1.1");
    LOAD(ibv_modify_qp, "IBVERBS_1.1");
    LOAD(ibv_query_gid, "IBVERBS_1.1");
    LOAD(ibv_destroy_qp, "IBVERBS_1.1");
    struct ibv_device **list = my_ibv_get_device_list(NULL);
    must(list && list[0], "ibv_get_device_list");
    struct ibv_context *context = my_ibv_open_device(list[0]);
    must(context != NULL, "ibv_open_device");
    struct ibv_pd *pd = my_ibv_alloc_pd(context);
    static uint32_t out[WRITES][WORDS], in[WRITES][WORDS];
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    struct ibv_mr *mr_out = my_ibv_reg_mr_iova2(pd, out, sizeof out, (uintptr_t)out, access);
    struct ibv_mr *mr_in = my_ibv_reg_mr_iova2(pd, in, sizeof in, (uintptr_t)in, access);
    struct ibv_mr *mr_sums = my_ibv_reg_mr_iova2(pd, sums, sizeof sums, (uintptr_t)sums, access);
    struct ibv_mr *mr_steps = my_ibv_reg_mr_iova2(pd, steps, sizeof steps, (uintptr_t)steps, access);
    struct ibv_cq *cq = my_ibv_create_cq(context, 4 * WRITES, NULL, NULL, 0);
    must(mr_out && mr_in && mr_sums && mr_steps && cq, "registration or a completion queue");
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .cap = {WRITES, WRITES, 1, 1, sizeof(uint32_t)}};
    struct ibv_qp *to = my_ibv_create_qp(pd, &init), *from = my_ibv_create_qp(pd, &init);
    must(to && from, "ibv_create_qp");
    must(my_ibv_query_gid(context, 1, 1, &shared->rank[me].gid) == 0, "ibv_query_gid");
    shared->rank[me].out = to->qp_num;
    shared->rank[me].in = from->qp_num;
    shared->rank[me].rkey = mr_in->rkey;
    shared->rank[me].address = (uintptr_t)in;
    shared->rank[me].steps_rkey = mr_steps->rkey;
    shared->rank[me].steps = (uintptr_t)steps;
    pthread_barrier_wait(&shared->barrier);
    int next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
    connect_to(my_ibv_modify_qp, to, shared->rank[next].gid, shared->rank[next].in);
    connect_to(my_ibv_modify_qp, from, shared->rank[last].gid, shared->rank[last].out);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WRITES; i++) {
            for (int word = 0; word < WORDS; word++)
                out[i][word] = me * 1000003 + round * 1009 + i * 17 + word;
            struct ibv_sge sge = {(uintptr_t)out[i], sizeof out[i], mr_out->lkey};
            struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                     .send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(IMM + i)}, *bad;
            wr.wr.rdma.remote_addr = shared->rank[next].address + i * sizeof in[i];
            wr.wr.rdma.rkey = shared->rank[next].rkey;
            must(ibv_post_send(to, &wr, &bad) == 0, "ibv_post_send");
        }
        /* All ranks have sent, and none has posted a receive. */
        pthread_barrier_wait(&shared->barrier);
        for (int i = 0; i < WRITES; i++) {
            struct ibv_recv_wr wr = {.wr_id = i}, *bad;
            must(ibv_post_recv(from, &wr, &bad) == 0, "ibv_post_recv");
        }
        take(cq, WRITES, WRITES);
        for (int i = 0; i < WRITES; i++)
            for (int word = 0; word < WORDS; word++)
                must(in[i][word] == (uint32_t)(last * 1000003 + round * 1009 + i * 17 + word), "the data");
        pthread_barrier_wait(&shared->barrier);
    }
    struct link link = {to, from, cq, mr_sums, shared->rank[next].steps, shared->rank[next].steps_rkey};
    for (int round = 0; round < ROUNDS; round++)
        all_reduce(&link, round);
    must(my_ibv_destroy_qp(to) == 0 && my_ibv_destroy_qp(from) == 0, "ibv_destroy_qp");
}

int main(int argc, char **argv)
{
    ranks = argc > 1 ? atoi(argv[1]) : 4;
    must(ranks > 0 && ranks <= MOST, "the number of ranks");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, ranks);
    for (me = 0; me < ranks; me++)
        if (fork() == 0) {
            rank();
            _exit(0);
        }
    int failed = 0, status;
    while (wait(&status) > 0)
        if (status != 0 && !failed++)
            /* The others wait for it at the barrier. */
            kill(0, SIGTERM);
    if (!failed)
        printf("%d ranks: %d rounds verified\n", ranks, ROUNDS);
    return failed != 0;
}
