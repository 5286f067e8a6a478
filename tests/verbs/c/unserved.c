/* Test program: every call of libibverbs and librdmacm that iWARP does not support is refused as its man page
 * says: by its result and errno EOPNOTSUPP, and changes nothing. Prints "verified". */

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;

static void judge(const char *call, int refused, int error)
{
    if (refused && error == EOPNOTSUPP)
        return;
    printf("%s: %s, errno %s\n", call, refused ? "refused" : "not refused", strerror(error));
    wrong++;
}

/* Checks of calls that return NULL, an error number, or -1 when refused. */
#define REFUSED(refusal, call)                                                                               \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        int refused_ = (call) == refusal;                                                                    \
        judge(#call, refused_, errno);                                                                       \
    } while (0)
#define NONE(call) REFUSED(NULL, call)
#define MINUS(call) REFUSED(-1, call)
#define CODE(call)                                                                                           \
    do {                                                                                                     \
        int code_ = (call);                                                                                  \
        judge(#call, code_ != 0, code_);                                                                     \
    } while (0)

static void *some(void *made, const char *what)
{
    if (!made) {
        perror(what);
        exit(1);
    }
    return made;
}

static void of_context(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_alloc_dm_attr dm = { .length = 64 };
    struct ibv_td_init_attr td = { 0 };
    struct ibv_parent_domain_init_attr parent = { .pd = pd };
    struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq };
    struct ibv_rwq_ind_table_init_attr table = { 0 };
    struct ibv_counters_init_attr counters = { 0 };
    struct ibv_xrcd_init_attr xrcd = { .fd = -1, .oflags = 0100, .comp_mask = IBV_XRCD_INIT_ATTR_FD |
                                       IBV_XRCD_INIT_ATTR_OFLAGS };
    struct ibv_qp_open_attr open = { 0 };
    struct ibv_ah_attr path = { .port_num = 1 };
    struct ibv_wc wc = { 0 };
    struct ibv_grh grh = { 0 };
    struct ibv_sge sge = { 0 };

    NONE(ibv_alloc_dm(context, &dm));
    NONE(ibv_alloc_td(context, &td));
    NONE(ibv_alloc_parent_domain(context, &parent));
    NONE(ibv_alloc_null_mr(pd));
    NONE(ibv_create_wq(context, &wq));
    NONE(ibv_create_rwq_ind_table(context, &table));
    NONE(ibv_create_counters(context, &counters));
    NONE(ibv_open_xrcd(context, &xrcd));
    NONE(ibv_open_qp(context, &open));
    NONE(ibv_create_ah(pd, &path));
    NONE(ibv_create_ah_from_wc(pd, &wc, &grh, 1));
    NONE(ibv_import_device(0));
    NONE(ibv_import_pd(context, 0));
    NONE(ibv_import_mr(pd, 0));
    NONE(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0));
    CODE(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
}

static void of_queues(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
    struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
    struct ibv_qp *qp = some(ibv_create_qp(pd, &init), "a queue pair");
    struct ibv_srq *srq = some(ibv_create_srq(pd, &srq_init), "a shared receive queue");
    struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1 };
    struct ibv_flow_attr flow = { .size = sizeof flow };
    struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 16, 100 } };
    struct ibv_ops_wr ops = { 0 }, *bad;
    struct ibv_ece ece = { 0 };
    union ibv_gid gid = { { 0xff } };
    uint32_t number;

    NONE(ibv_create_flow(qp, &flow));
    CODE(ibv_modify_cq(cq, &moderate));
    CODE(ibv_modify_qp_rate_limit(qp, &rate));
    CODE(ibv_attach_mcast(qp, &gid, 0));
    CODE(ibv_detach_mcast(qp, &gid, 0));
    CODE(ibv_query_ece(qp, &ece));
    CODE(ibv_set_ece(qp, &ece));
    CODE(ibv_get_srq_num(srq, &number));
    CODE(ibv_post_srq_ops(srq, &ops, &bad));
    for (init.qp_type = IBV_QPT_UD; init.qp_type <= IBV_QPT_RAW_PACKET; init.qp_type++)
        NONE(ibv_create_qp(pd, &init));
    ibv_destroy_srq(srq);
    ibv_destroy_qp(qp);
}

static void of_identifiers(void)
{
    struct rdma_event_channel *channel = some(rdma_create_event_channel(), "an event channel");
    struct sockaddr_in group = { .sin_family = AF_INET };
    struct rdma_cm_join_mc_attr_ex join = { .comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS |
                                            RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
                                            .join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER };
    struct rdma_cm_id *id;
    struct ibv_ece ece = { 0 };

    join.addr = (struct sockaddr *)&group;
    MINUS(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    MINUS(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB));
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
        perror("an identifier");
        exit(1);
    }
    MINUS(rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
    MINUS(rdma_join_multicast_ex(id, &join, NULL));
    MINUS(rdma_leave_multicast(id, (struct sockaddr *)&group));
    MINUS(rdma_set_local_ece(id, &ece));
    MINUS(rdma_get_remote_ece(id, &ece));
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    struct ibv_device **list = some(ibv_get_device_list(NULL), "a list of devices");
    struct ibv_context *context = some(ibv_open_device(list[0]), "a device");
    struct ibv_pd *pd = some(ibv_alloc_pd(context), "a protection domain");
    struct ibv_cq *cq = some(ibv_create_cq(context, 4, NULL, NULL, 0), "a completion queue");

    of_context(context, pd, cq);
    of_queues(pd, cq);
    of_identifiers();
    if (ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context)) {
        puts("something is in use");
        wrong++;
    }
    ibv_free_device_list(list);
    puts(wrong ? "not verified" : "verified");
    return wrong != 0;
}
