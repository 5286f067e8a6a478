/* Capabilities that the device does not announce, by the functions of rdma-core's headers: each is refused with
 * EOPNOTSUPP. And those of memory regions that need no announcement: addresses of the program's choice. */

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void check(int good, const char *what)
{
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        failures++;
    }
    errno = 0;
}
#define CHECK(good) check(!!(good), #good)
#define UNSUPPORTED(made) check(!(made) && errno == EOPNOTSUPP, #made)
#define REFUSED(result) check((result) == EOPNOTSUPP, #result)

enum { ROOM = 4096, IOVA = 0x100000 };
static const int ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

static struct ibv_context *device;
static struct ibv_pd *domain;
static struct ibv_cq *queue;

static void not_announced(struct ibv_qp *qp)
{
    struct ibv_device_attr_ex attr = {0};
    CHECK(!ibv_query_device_ex(device, NULL, &attr));
    CHECK(!attr.odp_caps.general_caps && !attr.max_dm_size && !attr.tso_caps.max_tso);
    CHECK(!attr.rss_caps.supported_qpts && !attr.max_wq_type_rq && !attr.raw_packet_caps);
    CHECK(!attr.cq_mod_caps.max_cq_count && !attr.packet_pacing_caps.supported_qpts);
    CHECK(!attr.tm_caps.max_num_tags);
    CHECK(!!attr.completion_timestamp_mask == !!attr.hca_core_clock);

    struct ibv_td_init_attr thread = {0};
    UNSUPPORTED(ibv_alloc_td(device, &thread));
    struct ibv_parent_domain_init_attr parent = {.pd = domain};
    UNSUPPORTED(ibv_alloc_parent_domain(device, &parent));
    struct ibv_counters_init_attr counters = {0};
    UNSUPPORTED(ibv_create_counters(device, &counters));
    struct ibv_alloc_dm_attr memory = {.length = 64};
    UNSUPPORTED(ibv_alloc_dm(device, &memory));
    struct ibv_xrcd_init_attr xrc = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    UNSUPPORTED(ibv_open_xrcd(device, &xrc));
    struct ibv_wq_init_attr work = {.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = domain, .cq = queue};
    UNSUPPORTED(ibv_create_wq(device, &work));
    struct ibv_rwq_ind_table_init_attr table = {0};
    UNSUPPORTED(ibv_create_rwq_ind_table(device, &table));
    struct ibv_flow_attr flow = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .port = 1};
    UNSUPPORTED(ibv_create_flow(qp, &flow));
    UNSUPPORTED(ibv_alloc_null_mr(domain));
    UNSUPPORTED(ibv_reg_dmabuf_mr(domain, 0, ROOM, 0, 0, ALL));
    struct ibv_sge element = {0};
    REFUSED(ibv_advise_mr(domain, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &element, 1));
    struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE};
    REFUSED(ibv_modify_cq(queue, &moderation));
    struct ibv_qp_rate_limit_attr rate = {0};
    REFUSED(ibv_modify_qp_rate_limit(qp, &rate));
    union ibv_gid group = {.raw = {0xff, 0x0e}};
    /* Where there are groups, they are for datagrams. */
    int refusal = attr.orig_attr.max_mcast_grp ? EINVAL : EOPNOTSUPP;
    CHECK(ibv_attach_mcast(qp, &group, 0) == refusal);
    CHECK(ibv_detach_mcast(qp, &group, 0) == refusal);
    struct ibv_ece ece = {0};
    REFUSED(ibv_query_ece(qp, &ece));
}

static struct ibv_qp *made(void)
{
    struct ibv_qp_init_attr init = {
        .send_cq = queue, .recv_cq = queue, .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(domain, &init);
    CHECK(qp);
    return qp;
}

static void connected(struct ibv_qp *qp, union ibv_gid gid, uint32_t peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL};
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}}};
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                             | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
                             | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static int moved(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *from, uint64_t at, uint32_t key,
                 uint64_t to)
{
    struct ibv_sge element = {.addr = at, .length = 5, .lkey = from->lkey};
    struct ibv_send_wr *bad, request = {
        .sg_list = &element, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = to, .rkey = key}};
    struct ibv_wc done;
    if (ibv_post_send(qp, &request, &bad))
        return 0;
    int found;
    while (!(found = ibv_poll_cq(queue, 1, &done)))
        ;
    return found == 1 && done.status == IBV_WC_SUCCESS;
}

/* Regions with addresses of the program's choice, or from 0 on, at both ends; a Read tells that a Write has arrived. */
static void addressed(struct ibv_qp *qp)
{
    char *memory = aligned_alloc(ROOM, 2 * ROOM);
    memset(memory, 0, 2 * ROOM);
    struct ibv_mr *chosen = ibv_reg_mr_iova(domain, memory, ROOM, IOVA, ALL);
    struct ibv_mr *based = ibv_reg_mr(domain, memory + ROOM, ROOM, ALL | IBV_ACCESS_ZERO_BASED);
    CHECK(chosen && based);
    strcpy(memory, "iova");
    CHECK(moved(qp, IBV_WR_RDMA_WRITE, chosen, IOVA, based->rkey, 10));
    CHECK(moved(qp, IBV_WR_RDMA_READ, chosen, IOVA + 50, based->rkey, 10));
    CHECK(!strcmp(memory + ROOM + 10, "iova") && !strcmp(memory + 50, "iova"));
    CHECK(moved(qp, IBV_WR_RDMA_WRITE, based, 10, chosen->rkey, IOVA + 100));
    CHECK(moved(qp, IBV_WR_RDMA_READ, based, 30, chosen->rkey, IOVA + 100));
    CHECK(!strcmp(memory + 100, "iova") && !strcmp(memory + ROOM + 30, "iova"));
    CHECK(!ibv_dereg_mr(chosen) && !ibv_dereg_mr(based));
    free(memory);
}

int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    device = list && *list ? ibv_open_device(*list) : NULL;
    domain = device ? ibv_alloc_pd(device) : NULL;
    queue = device ? ibv_create_cq(device, 16, NULL, NULL, 0) : NULL;
    union ibv_gid gid;
    if (!domain || !queue || ibv_query_gid(device, 1, 0, &gid)) {
        printf("no device: %s\n", strerror(errno));
        return 1;
    }
    struct ibv_qp *near = made(), *far = made();
    not_announced(near);
    connected(near, gid, far->qp_num);
    connected(far, gid, near->qp_num);
    addressed(near);
    CHECK(!ibv_destroy_qp(near) && !ibv_destroy_qp(far));
    CHECK(!ibv_destroy_cq(queue) && !ibv_dealloc_pd(domain) && !ibv_close_device(device));
    ibv_free_device_list(list);
    return failures != 0;
}
