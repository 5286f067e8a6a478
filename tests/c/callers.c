/*
 * Tests of bad callers: handles that are stale, of another kind, invented or freed twice; many threads at one
 * object; a thread with little stack; a cancelled thread; a forked child.
 */
#include "check.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Makes a connection and sends, in a thread with the smallest stack that the header allows. */
static void *modest(void *unused)
{
    struct side active, passive;
    it_lmr_triplet_t all;
    sides_open(&active, &passive);
    all = piece(&passive, 0, MEMORY);
    MUST(it_post_recv(passive.ep, &all, 1, cookie(1), SIGNALLED));
    all = piece(&active, 0, MEMORY);
    MUST(it_post_send(active.ep, &all, 1, cookie(2), SIGNALLED));
    check_completion(passive.receives, IT_DTO_RC_RECV_CMPL_EVENT, IT_DTO_SUCCESS, 1);
    check_completion(active.sends, IT_DTO_SEND_CMPL_EVENT, IT_DTO_SUCCESS, 2);
    side_close(&active);
    side_close(&passive);
    return unused;
}

static void small_stack(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 64 * 1024) == 0);
    CHECK(pthread_create(&thread, &attributes, modest, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

/* Handles of every wrong kind, and numbers near a valid one. */
static void handles(const struct side *side)
{
    it_handle_t wrong[8];
    it_event_t event;
    it_ia_info_t *info;
    it_lmr_param_t lmr;
    it_pz_param_t pz;
    it_handle_type_enum_t kind;
    size_t i;
    wrong[0] = NULL;
    wrong[1] = made_up();
    wrong[2] = (char *)side->ia + 1;
    wrong[3] = (it_handle_t)(uintptr_t)1;
    wrong[4] = (it_handle_t)~(uintptr_t)0;
    wrong[5] = side->memory;
    wrong[6] = (it_handle_t)((uintptr_t)side->ep ^ ((uintptr_t)1 << 63));
    wrong[7] = side->lmr;
    for (i = 0; i < 8; i++) {
        EXPECT(IT_ERR_INVALID_IA, it_ia_query((it_ia_handle_t)wrong[i], &info));
        EXPECT(IT_ERR_INVALID_IA, it_ia_free((it_ia_handle_t)wrong[i]));
        EXPECT(IT_ERR_INVALID_EVD, it_evd_dequeue((it_evd_handle_t)wrong[i], &event));
        EXPECT(IT_ERR_INVALID_EP, it_ep_free((it_ep_handle_t)wrong[i]));
        EXPECT(IT_ERR_INVALID_PZ, it_pz_query((it_pz_handle_t)wrong[i], IT_PZ_PARAM_ALL, &pz));
        EXPECT(IT_ERR_INVALID_RMR, it_rmr_free((it_rmr_handle_t)wrong[i]));
        EXPECT(IT_ERR_INVALID_SRQ, it_srq_free((it_srq_handle_t)wrong[i]));
        EXPECT(IT_ERR_INVALID_LISTEN, it_listen_free((it_listen_handle_t)wrong[i]));
        if (wrong[i] == side->lmr)
            continue;
        EXPECT(IT_ERR_INVALID_LMR, it_lmr_query((it_lmr_handle_t)wrong[i], IT_LMR_PARAM_ALL, &lmr));
        EXPECT(IT_ERR_INVALID_HANDLE, it_get_handle_type(wrong[i], &kind));
    }
    EXPECT(IT_ERR_INVALID_PZ, it_pz_free((it_pz_handle_t)side->ep));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_free((it_evd_handle_t)side->pz));
}

/* A stale handle stays invalid when its slot is reused. */
static void staleness(const struct side *side)
{
    it_pz_handle_t old, again;
    int i;
    MUST(it_pz_create(side->ia, &old));
    EXPECT(IT_SUCCESS, it_pz_free(old));
    for (i = 0; i < 1000; i++) {
        MUST(it_pz_create(side->ia, &again));
        EXPECT(IT_ERR_INVALID_PZ, it_pz_free(old));
        EXPECT(IT_SUCCESS, it_pz_free(again));
    }
}

/* Objects of one adapter or zone do not mix with those of another. */
static void foreigners(const struct side *side, const struct side *other)
{
    it_ep_attributes_t attributes = check_attributes();
    it_ep_handle_t ep;
    it_lmr_triplet_t segment = piece(other, 0, 8);
    it_listen_handle_t listener;
    CHECK(it_ep_rc_create(side->pz, other->sends, side->receives, side->conn, IT_EP_NO_FLAG,
                          &attributes, &ep) != IT_SUCCESS);
    EXPECT(IT_ERR_INVALID_LMR, it_post_recv(side->ep, &segment, 1, cookie(1), SIGNALLED));
    CHECK(it_listen_create(side->ia, side_spigot(side->ia), other->request, IT_LISTEN_NO_FLAG, NULL,
                           &listener) != IT_SUCCESS);
}

/* Unaligned arguments, in and out. */
static void alignment(const struct side *side)
{
    static char room[sizeof(it_ep_param_t) + sizeof(it_path_t) + 1];
    char *odd = room + 1;
    it_ep_param_t params;
    it_pz_handle_t pz;
    it_path_t path = check_loopback();
    it_conn_qual_t qualifier = check_port(0);
    MUST(it_pz_create(side->ia, (it_pz_handle_t *)(void *)odd));
    memcpy(&pz, odd, sizeof pz);
    EXPECT(IT_SUCCESS, it_pz_free(pz));
    EXPECT(IT_SUCCESS, it_ep_query(side->ep, IT_EP_PARAM_ALL, (it_ep_param_t *)(void *)odd));
    memcpy(&params, odd, sizeof params);
    CHECK(params.ia == side->ia && params.pz == side->pz);
    path.remote.iwarp.ip_vers = (it_ip_vers_t)0;
    memcpy(odd, &path, sizeof path);
    EXPECT(IT_ERR_INVALID_ADDRESS,
           it_ep_connect(side->ep, (const it_path_t *)(void *)odd, NULL, &qualifier,
                         IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    EXPECT(IT_ERR_QUEUE_EMPTY, it_evd_dequeue(side->conn, (it_event_t *)(void *)odd));
}

static it_evd_handle_t contended;
static int freed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Many threads use and free the same object: exactly one frees it. */
static void *abuse(void *unused)
{
    it_event_t event;
    it_evd_param_t params;
    it_status_t status;
    int i;
    for (i = 0; i < 200; i++) {
        status = it_evd_dequeue(contended, &event);
        /* Before, during or after the object is freed. */
        CHECK(status == IT_ERR_QUEUE_EMPTY || status == IT_ERR_INVALID_EVD ||
              status == IT_ERR_EVD_WAIT || status == IT_ERR_ABORT ||
              status == IT_ERR_INVALID_EVD_STATE);
        status = it_evd_query(contended, IT_EVD_PARAM_ALL, &params);
        CHECK(status == IT_SUCCESS || status == IT_ERR_INVALID_EVD);
    }
    status = it_evd_free(contended);
    pthread_mutex_lock(&lock);
    if (status == IT_SUCCESS)
        freed++;
    pthread_mutex_unlock(&lock);
    CHECK(status == IT_SUCCESS || status == IT_ERR_INVALID_EVD);
    return unused;
}

static void threads(const struct side *side)
{
    pthread_t thread[4];
    int i;
    contended = check_evd(side->ia, IT_DTO_EVENT_STREAM);
    for (i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, abuse, NULL) == 0);
    for (i = 0; i < 4; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(freed == 1);
}

static it_status_t waited = IT_ERR_ABORT;

static void *wait_once(void *evd)
{
    it_event_t event;
    waited = it_evd_wait((it_evd_handle_t)evd, IT_TIMEOUT_INFINITE, &event, NULL);
    pthread_testcancel();
    return NULL;
}

/* A wait is no cancellation point: it returns its event and holds no lock afterwards. */
static void cancelling(const struct side *side)
{
    it_evd_handle_t evd = check_evd(side->ia, IT_SOFTWARE_EVENT_STREAM);
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, wait_once, evd) == 0);
    CHECK(pthread_cancel(thread) == 0);
    MUST(it_evd_post_se(evd, NULL));
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && waited == IT_SUCCESS);
    check_empty(evd);
    EXPECT(IT_SUCCESS, it_evd_free(evd));
}

/* In a forked child every call is refused; the parent is not affected. */
static void forking(const struct side *side)
{
    /* Report by a pipe: valgrind changes the exit status of a child without the threads. */
    int ends[2], wrong = -1;
    pid_t child;
    CHECK(pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        it_ia_handle_t ia;
        it_event_t event;
        it_lmr_triplet_t segment = piece(side, 0, 8);
        char why[128];
        wrong = 0;
        wrong += it_ia_create("vp_softrdma", 2, 0, &ia) != IT_ERR_IA_CATASTROPHE;
        wrong += it_evd_dequeue(side->conn, &event) != IT_ERR_IA_CATASTROPHE;
        wrong += it_evd_wait(side->conn, IT_TIMEOUT_INFINITE, &event, NULL) !=
                 IT_ERR_IA_CATASTROPHE;
        wrong += it_post_recv(side->ep, &segment, 1, cookie(1), SIGNALLED) != IT_ERR_IA_CATASTROPHE;
        wrong += it_ia_free(side->ia) != IT_ERR_IA_CATASTROPHE;
        wrong += itw_last_error(why, sizeof why) == 0 || strstr(why, "fork") == NULL;
        if (write(ends[1], &wrong, sizeof wrong) != sizeof wrong)
            _exit(1);
        _exit(0);
    }
    CHECK(child > 0 && read(ends[0], &wrong, sizeof wrong) == sizeof wrong && wrong == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    close(ends[0]);
    close(ends[1]);
    check_empty(side->conn);
}

int main(void)
{
    struct side side, other;
    it_evd_handle_t evd;
    small_stack(); /* first, so that initialisation once per process happens there */
    side_open(&side);
    side_open(&other);
    handles(&side);
    staleness(&side);
    foreigners(&side, &other);
    alignment(&side);
    threads(&side);
    cancelling(&side);
    forking(&side);
    sides_connect(&side, &other); /* still works */
    evd = check_evd(side.ia, IT_SOFTWARE_EVENT_STREAM);
    EXPECT(IT_SUCCESS, it_evd_free(evd));
    side_close(&side);
    side_close(&other);
    return checked("callers");
}
