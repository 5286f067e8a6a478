/*
 * Tests of memory regions and windows: registration, rights, links, queries, coherence, addresses.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

static void registering(const struct side *side)
{
    static unsigned char memory[5000];
    it_lmr_handle_t lmr, unaligned;
    it_rmr_context_t context = 0;
    it_lmr_param_t params;
    it_lmr_flag_t none = IT_LMR_FLAG_NONE;
    EXPECT(IT_ERR_INVALID_PZ, it_lmr_create21(NULL, memory, NULL, 5000, IT_ADDR_MODE_ABSOLUTE,
                                              IT_PRIV_ALL, none, 0, &lmr, &context));
    EXPECT(IT_ERR_FAULT, it_lmr_create21(side->pz, NULL, NULL, 5000, IT_ADDR_MODE_ABSOLUTE,
                                         IT_PRIV_ALL, none, 0, &lmr, &context));
    EXPECT(IT_ERR_FAULT, it_lmr_create21(side->pz, memory, NULL, 5000, IT_ADDR_MODE_ABSOLUTE,
                                         IT_PRIV_ALL, none, 0, NULL, &context));
    EXPECT(IT_ERR_INVALID_LENGTH, it_lmr_create21(side->pz, memory, NULL, 0, IT_ADDR_MODE_ABSOLUTE,
                                                  IT_PRIV_ALL, none, 0, &lmr, &context));
    EXPECT(IT_ERR_INVALID_ADDR_MODE, it_lmr_create21(side->pz, memory, NULL, 5000,
                                                     (it_addr_mode_t)5, IT_PRIV_ALL, none, 0, &lmr,
                                                     &context));
    EXPECT(IT_ERR_INVALID_PRIVS, it_lmr_create21(side->pz, memory, NULL, 5000,
                                                 IT_ADDR_MODE_ABSOLUTE, (it_mem_priv_t)0x100, none,
                                                 0, &lmr, &context));
    EXPECT(IT_ERR_INVALID_FLAGS, it_lmr_create21(side->pz, memory, NULL, 5000,
                                                 IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL,
                                                 (it_lmr_flag_t)0x100, 0, &lmr, &context));
    MUST(it_lmr_create21(side->pz, memory, NULL, 5000, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL, none, 0,
                         &lmr, &context));
    CHECK(context != 0);
    EXPECT(IT_SUCCESS, it_lmr_query(lmr, IT_LMR_PARAM_ALL, &params));
    CHECK(params.ia == side->ia && params.pz == side->pz && params.addr == memory);
    CHECK(params.length == 5000 && params.rmr_context == context && params.linked == IT_TRUE);
    CHECK(params.addr_mode == IT_ADDR_MODE_ABSOLUTE && params.actual_length >= 5000);
    CHECK((params.privs & IT_PRIV_ALL) == IT_PRIV_ALL);
    MUST(it_lmr_create20(side->pz, memory + 1, 33, IT_ADDR_MODE_RELATIVE, IT_PRIV_LOCAL, none, 0,
                         &unaligned, NULL));
    EXPECT(IT_SUCCESS, it_lmr_query(unaligned, IT_LMR_PARAM_ADDR_MODE, &params));
    CHECK(params.addr_mode == IT_ADDR_MODE_RELATIVE);
    EXPECT(IT_ERR_INVALID_MASK, it_lmr_query(lmr, (it_lmr_param_mask_t)0x100000, &params));
    EXPECT(IT_ERR_FAULT, it_lmr_query(lmr, IT_LMR_PARAM_ALL, NULL));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_query(NULL, IT_LMR_PARAM_ALL, &params));
    EXPECT(IT_SUCCESS, it_lmr_query(lmr, IT_LMR_PARAM_ALL, &params));
    params.privs = IT_PRIV_LOCAL;
    EXPECT(IT_SUCCESS, it_lmr_modify(lmr, IT_LMR_PARAM_MEM_PRIV, &params));
    EXPECT(IT_SUCCESS, it_lmr_query(lmr, IT_LMR_PARAM_ALL, &params));
    CHECK((params.privs & IT_PRIV_REMOTE) == 0);
    EXPECT(IT_ERR_INVALID_MASK, it_lmr_modify(lmr, IT_LMR_PARAM_IA, &params));
    EXPECT(IT_ERR_FAULT, it_lmr_modify(lmr, IT_LMR_PARAM_MEM_PRIV, NULL));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_modify(NULL, IT_LMR_PARAM_MEM_PRIV, &params));
    EXPECT(IT_SUCCESS, it_lmr_free(unaligned));
    EXPECT(IT_SUCCESS, it_lmr_free(lmr));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_free(lmr));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_free(NULL));
}

static void sharing(const struct side *side)
{
    static unsigned char memory[4096];
    it_lmr_handle_t first, second;
    it_lmr_param_t params;
    MUST(it_lmr_create21(side->pz, memory, NULL, 4096, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL,
                         IT_LMR_FLAG_SHARED, 77, &first, NULL));
    MUST(it_lmr_create21(side->pz, memory, NULL, 4096, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_LOCAL,
                         IT_LMR_FLAG_SHARED, 77, &second, NULL));
    EXPECT(IT_SUCCESS, it_lmr_query(second, IT_LMR_PARAM_ALL, &params));
    CHECK(params.shared_id == 77 && (params.flags & IT_LMR_FLAG_SHARED));
    EXPECT(IT_SUCCESS, it_lmr_free(first));
    EXPECT(IT_SUCCESS, it_lmr_free(second));
}

static void coherence(const struct side *side)
{
    it_lmr_triplet_t segments[2];
    segments[0] = piece(side, 0, 100);
    segments[1] = piece(side, 200, 100);
    EXPECT(IT_SUCCESS, it_lmr_flush_to_mem(segments, 2));
    EXPECT(IT_SUCCESS, it_lmr_refresh_from_mem(segments, 2));
    EXPECT(IT_ERR_FAULT, it_lmr_flush_to_mem(NULL, 2));
    EXPECT(IT_ERR_FAULT, it_lmr_refresh_from_mem(NULL, 1));
    segments[1].length = MEMORY;
    EXPECT(IT_ERR_RANGE, it_lmr_flush_to_mem(segments, 2));
    EXPECT(IT_ERR_RANGE, it_lmr_refresh_from_mem(segments, 2));
    segments[1].lmr = (it_lmr_handle_t)side->ep;
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_flush_to_mem(segments, 2));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_refresh_from_mem(segments, 2));
}

static void windows(const struct side *active, const struct side *passive, it_rmr_type_t type)
{
    it_rmr_handle_t rmr;
    it_rmr_param_t params;
    it_rmr_context_t context = 0;
    it_lmr_triplet_t segment = piece(active, 0, 16);
    it_event_t event;
    MUST(it_rmr_create20(passive->pz, type, &rmr));
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_ALL, &params));
    CHECK(params.ia == passive->ia && params.pz == passive->pz && params.linked == IT_FALSE);
    EXPECT(IT_ERR_INVALID_LMR,
           it_rmr_link(rmr, NULL, passive->memory, 64, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_REMOTE,
                       passive->ep, cookie(1), SIGNALLED, &context));
    EXPECT(IT_ERR_INVALID_EP,
           it_rmr_link(rmr, passive->lmr, passive->memory, 64, IT_ADDR_MODE_ABSOLUTE,
                       IT_PRIV_REMOTE, NULL, cookie(1), SIGNALLED, &context));
    EXPECT(IT_ERR_RANGE,
           it_rmr_link(rmr, passive->lmr, passive->memory, MEMORY + 1, IT_ADDR_MODE_ABSOLUTE,
                       IT_PRIV_REMOTE, passive->ep, cookie(1), SIGNALLED, &context));
    EXPECT(IT_ERR_INVALID_PRIVS,
           it_rmr_link(rmr, passive->lmr, passive->memory, 64, IT_ADDR_MODE_ABSOLUTE,
                       (it_mem_priv_t)0x400, passive->ep, cookie(1), SIGNALLED, &context));
    EXPECT(IT_ERR_INVALID_ADDR_MODE,
           it_rmr_link(rmr, passive->lmr, passive->memory, 64, (it_addr_mode_t)6, IT_PRIV_REMOTE,
                       passive->ep, cookie(1), SIGNALLED, &context));
    EXPECT(IT_ERR_INVALID_DTO_FLAGS,
           it_rmr_link(rmr, passive->lmr, passive->memory, 64, IT_ADDR_MODE_ABSOLUTE,
                       IT_PRIV_REMOTE, passive->ep, cookie(1), (it_dto_flags_t)0x800, &context));
    MUST(it_rmr_link(rmr, passive->lmr, passive->memory + 512, 64, IT_ADDR_MODE_ABSOLUTE,
                     IT_PRIV_REMOTE, passive->ep, cookie(2), SIGNALLED, &context));
    check_completion(passive->sends, IT_RMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    CHECK(context != 0 && context != passive->rmr_context);
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_ALL, &params));
    CHECK(params.linked == IT_TRUE && params.lmr == passive->lmr && params.length == 64);
    CHECK(params.addr == passive->memory + 512 && params.rmr_context == context);
    EXPECT(IT_ERR_LMR_BUSY, it_lmr_free(passive->lmr));
    memset(passive->memory + 512, 0, 64);
    memcpy(active->memory, "through a window", 16);
    MUST(it_post_rdma_write(active->ep, &segment, 1, cookie(3), SIGNALLED, address(passive, 512),
                            context));
    check_completion(active->sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, 3);
    MUST(it_post_rdma_read(active->ep, &segment, 1, cookie(4), SIGNALLED, address(passive, 512),
                           context));
    check_completion(active->sends, IT_DTO_RDMA_READ_CMPL_EVENT, IT_DTO_SUCCESS, 4);
    CHECK(memcmp(passive->memory + 512, "through a window", 16) == 0);
    EXPECT(IT_ERR_INVALID_EP, it_rmr_unlink(rmr, NULL, cookie(5), SIGNALLED));
    EXPECT(IT_ERR_INVALID_RMR, it_rmr_unlink(NULL, passive->ep, cookie(5), SIGNALLED));
    MUST(it_rmr_unlink(rmr, passive->ep, cookie(6), SIGNALLED));
    event = check_event(passive->sends, IT_RMR_LINK_CMPL_EVENT);
    CHECK(event.dto_cmpl.dto_status == IT_DTO_SUCCESS);
    CHECK(cookie_number(event.dto_cmpl.cookie) == 6);
    EXPECT(IT_SUCCESS, it_rmr_query(rmr, IT_RMR_PARAM_LINKED, &params));
    CHECK(params.linked == IT_FALSE);
    EXPECT(IT_ERR_INVALID_MASK, it_rmr_query(rmr, (it_rmr_param_mask_t)0x10000, &params));
    EXPECT(IT_ERR_FAULT, it_rmr_query(rmr, IT_RMR_PARAM_ALL, NULL));
    EXPECT(IT_ERR_INVALID_RMR, it_rmr_query(NULL, IT_RMR_PARAM_ALL, &params));
    EXPECT(IT_SUCCESS, it_rmr_free(rmr));
    EXPECT(IT_ERR_INVALID_RMR, it_rmr_free(rmr));
    EXPECT(IT_ERR_INVALID_RMR, it_rmr_free(NULL));
}

static void unlinked(const struct side *side)
{
    static unsigned char memory[4096];
    it_lmr_handle_t lmr;
    it_lmr_param_t params;
    it_rmr_context_t context = 0;
    it_status_t status;
    EXPECT(IT_ERR_INVALID_PZ, it_lmr_create_unlinked(NULL, 1, IT_LMR_FLAG_NON_SHAREABLE, 0, &lmr));
    EXPECT(IT_ERR_FAULT, it_lmr_create_unlinked(side->pz, 1, IT_LMR_FLAG_NON_SHAREABLE, 0, NULL));
    MUST(it_lmr_create_unlinked(side->pz, 1, IT_LMR_FLAG_NON_SHAREABLE, 0, &lmr));
    EXPECT(IT_SUCCESS, it_lmr_query(lmr, IT_LMR_PARAM_LINKED, &params));
    CHECK(params.linked == IT_FALSE);
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_link(NULL, memory, NULL, 4096, IT_ADDR_MODE_ABSOLUTE,
                                           IT_PRIV_ALL, side->ep, cookie(1), SIGNALLED, &context));
    EXPECT(IT_ERR_INVALID_LMR, it_lmr_unlink(NULL, side->ep, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_INVALID_EP, it_lmr_unlink(lmr, NULL, cookie(1), SIGNALLED));
    EXPECT(IT_ERR_PRIV_OPS_UNAVAILABLE,
           it_lmr_link(lmr, memory, NULL, 4096, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL, side->ep,
                       cookie(1), SIGNALLED, &context));
    status = it_lmr_free(lmr);
    CHECK(status == IT_SUCCESS);
}

/* An endpoint for privileged requests links and unlinks a region. */
static void linking(struct side *active, struct side *passive)
{
    static unsigned char memory[4096];
    it_ep_attributes_t attributes = check_attributes();
    it_lmr_handle_t lmr;
    it_lmr_param_t params;
    it_rmr_context_t context = 0;
    it_lmr_triplet_t segment = piece(active, 0, 6);
    EXPECT(IT_SUCCESS, it_ep_free(passive->ep));
    EXPECT(IT_SUCCESS, it_ep_free(active->ep));
    active->ep = check_ep(active);
    attributes.priv_ops_enable = IT_TRUE;
    MUST(it_ep_rc_create(passive->pz, passive->sends, passive->receives, passive->conn,
                         IT_EP_NO_FLAG, &attributes, &passive->ep));
    sides_connect(active, passive);
    MUST(it_lmr_create_unlinked(passive->pz, 1, IT_LMR_FLAG_NON_SHAREABLE, 0, &lmr));
    MUST(it_lmr_link(lmr, memory, NULL, 4096, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL, passive->ep,
                     cookie(11), SIGNALLED, &context));
    check_completion(passive->sends, IT_LMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 11);
    EXPECT(IT_SUCCESS, it_lmr_query(lmr, IT_LMR_PARAM_LINKED, &params));
    CHECK(params.linked == IT_TRUE);
    memcpy(active->memory, "linked", 6);
    MUST(it_post_rdma_write(active->ep, &segment, 1, cookie(12), SIGNALLED,
                            it_make_rdma_addr_absolute(memory + 10), context));
    check_completion(active->sends, IT_DTO_RDMA_WRITE_CMPL_EVENT, IT_DTO_SUCCESS, 12);
    MUST(it_post_rdma_read(active->ep, &segment, 1, cookie(13), SIGNALLED,
                           it_make_rdma_addr_absolute(memory + 10), context));
    check_completion(active->sends, IT_DTO_RDMA_READ_CMPL_EVENT, IT_DTO_SUCCESS, 13);
    CHECK(memcmp(memory + 10, "linked", 6) == 0);
    MUST(it_lmr_unlink(lmr, passive->ep, cookie(14), SIGNALLED));
    check_completion(passive->sends, IT_LMR_LINK_CMPL_EVENT, IT_DTO_SUCCESS, 14);
    EXPECT(IT_SUCCESS, it_lmr_query(lmr, IT_LMR_PARAM_LINKED, &params));
    CHECK(params.linked == IT_FALSE);
    EXPECT(IT_SUCCESS, it_lmr_free(lmr));
}

static void mapping(it_ia_handle_t ia)
{
    unsigned char *memory = (unsigned char *)malloc(10000);
    it_io_addr_t io = NULL;
    size_t mapped = 0;
    EXPECT(IT_ERR_INVALID_IA, it_mem_map(NULL, memory, 0, 10000, &io, &mapped));
    EXPECT(IT_ERR_FAULT, it_mem_map(ia, memory, 0, 10000, NULL, &mapped));
    EXPECT(IT_SUCCESS, it_mem_map(ia, memory, 0, 10000, &io, &mapped));
    CHECK(io != NULL && mapped > 0 && mapped <= 10000);
    EXPECT(IT_ERR_INVALID_IA, it_mem_unmap(NULL, io, mapped));
    EXPECT(IT_SUCCESS, it_mem_unmap(ia, io, mapped));
    EXPECT(IT_ERR_INVALID_ADDRESS, it_mem_unmap(ia, io, mapped));
    free(memory);
}

int main(void)
{
    struct side active, passive;
    it_rmr_handle_t rmr;
    sides_open(&active, &passive);
    registering(&active);
    sharing(&active);
    coherence(&active);
    windows(&active, &passive, IT_RMR_TYPE_NARROW);
    windows(&active, &passive, IT_RMR_TYPE_WIDE);
    windows(&active, &passive, IT_RMR_TYPE_DEFAULT);
    unlinked(&active);
    linking(&active, &passive);
    mapping(active.ia);
    CHECK(it_make_rdma_addr_absolute(active.memory) == (uintptr_t)active.memory);
    CHECK(it_make_rdma_addr_relative(100) == 100);
    EXPECT(IT_ERR_INVALID_RMR_TYPE, it_rmr_create20(active.pz, (it_rmr_type_t)9, &rmr));
    EXPECT(IT_ERR_INVALID_PZ, it_rmr_create20(NULL, IT_RMR_TYPE_WIDE, &rmr));
    EXPECT(IT_ERR_FAULT, it_rmr_create20(active.pz, IT_RMR_TYPE_WIDE, NULL));
    side_close(&active);
    side_close(&passive);
    return checked("memory");
}
