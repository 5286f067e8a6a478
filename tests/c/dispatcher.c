/*
 * Tests of event dispatchers: queues, waiting, thresholds, descriptors, callbacks, aggregation, overflow.
 */
#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static it_evd_handle_t software(it_ia_handle_t ia, size_t depth, size_t threshold,
                                it_evd_handle_t aevd)
{
    it_evd_handle_t evd;
    MUST(it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, (it_evd_flags_t)0, depth, threshold, aevd,
                       &evd, NULL));
    return evd;
}

static void creating(it_ia_handle_t ia)
{
    it_evd_handle_t evd, other;
    int fd = -7;
    EXPECT(IT_ERR_INVALID_IA, it_evd_create(NULL, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8, 1,
                                            NULL, &evd, NULL));
    EXPECT(IT_ERR_FAULT, it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NULL,
                                       NULL, NULL));
    EXPECT(IT_ERR_INVALID_EVD_TYPE, it_evd_create(ia, (it_event_type_t)0x5000, (it_evd_flags_t)0, 8,
                                                  1, NULL, &evd, NULL));
    EXPECT(IT_ERR_INVALID_EVD_TYPE, it_evd_create(ia, IT_DTO_SEND_CMPL_EVENT, (it_evd_flags_t)0, 8,
                                                  1, NULL, &evd, NULL));
    EXPECT(IT_ERR_INVALID_FLAGS, it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0x1000, 8,
                                               1, NULL, &evd, NULL));
    EXPECT(IT_ERR_INVALID_AEVD, it_evd_create(ia, IT_DTO_EVENT_STREAM, (it_evd_flags_t)0, 8, 1,
                                              (it_evd_handle_t)made_up(), &evd, NULL));
    EXPECT(IT_ERR_MISMATCH_FD, it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, IT_EVD_CREATE_FD, 8, 1,
                                             NULL, &evd, NULL));
    MUST(it_evd_create(ia, IT_ASYNC_AFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NULL, &evd, NULL));
    EXPECT(IT_ERR_ASYNC_AFF_EVD_EXISTS, it_evd_create(ia, IT_ASYNC_AFF_EVENT_STREAM,
                                                      (it_evd_flags_t)0, 8, 1, NULL, &other, NULL));
    check_empty(evd);
    EXPECT(IT_SUCCESS, it_evd_free(evd));
    MUST(it_evd_create(ia, IT_ASYNC_UNAFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NULL, &evd, &fd));
    EXPECT(IT_ERR_ASYNC_UNAFF_EVD_EXISTS,
           it_evd_create(ia, IT_ASYNC_UNAFF_EVENT_STREAM, (it_evd_flags_t)0, 8, 1, NULL, &other,
                         NULL));
    check_empty(evd);
    EXPECT(IT_SUCCESS, it_evd_free(evd));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_free(evd));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_free(NULL));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_free((it_evd_handle_t)ia));
}

static void queueing(it_ia_handle_t ia)
{
    it_evd_handle_t evd = software(ia, 8, 1, NULL);
    it_evd_handle_t dto = check_evd(ia, IT_DTO_EVENT_STREAM);
    it_event_t event, many[8];
    int data[8], got = -1;
    size_t more = 99, i;
    check_empty(evd);
    check_empty(dto);
    EXPECT(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(evd, 0, &event, &more));
    EXPECT(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(dto, 1000, &event, NULL));
    for (i = 0; i < 4; i++)
        EXPECT(IT_SUCCESS, it_evd_post_se(evd, &data[i]));
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    EXPECT(IT_SUCCESS, it_evd_wait(evd, IT_TIMEOUT_INFINITE, &event, &more));
    CHECK(event.event_number == IT_SOFTWARE_EVENT && event.sw.evd == evd);
    CHECK(event.sw.data == &data[0] && more == 4);
    EXPECT(IT_SUCCESS, it_evd_dequeue(evd, &event));
    CHECK(event.sw.data == &data[1]);
    EXPECT(IT_SUCCESS, it_evd_dequeue_n(evd, 8, many, &got));
    CHECK(got == 3 && many[0].sw.data == &data[2] && many[2].sw.data == NULL);
    EXPECT(IT_SUCCESS, it_evd_dequeue_n(evd, 8, many, &got));
    CHECK(got == 0);
    EXPECT(IT_SUCCESS, it_evd_dequeue_n(evd, 0, NULL, &got));
    EXPECT(IT_ERR_INVALID_SOFT_EVD, it_evd_post_se(dto, NULL));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_post_se(NULL, NULL));
    EXPECT(IT_ERR_FAULT, it_evd_dequeue(evd, NULL));
    EXPECT(IT_ERR_FAULT, it_evd_wait(evd, 0, NULL, NULL));
    EXPECT(IT_ERR_FAULT, it_evd_dequeue_n(evd, 1, NULL, &got));
    EXPECT(IT_ERR_FAULT, it_evd_dequeue_n(evd, 1, many, NULL));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_dequeue(NULL, &event));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_wait(NULL, 0, &event, NULL));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_dequeue_n(NULL, 1, many, &got));
    for (i = 0; it_evd_post_se(evd, NULL) == IT_SUCCESS; i++)
        ;
    CHECK(i >= 8);
    EXPECT(IT_ERR_EVD_QUEUE_FULL, it_evd_post_se(evd, NULL));
    EXPECT(IT_SUCCESS, it_evd_free(evd));
    EXPECT(IT_SUCCESS, it_evd_free(dto));
}

static void attributes(it_ia_handle_t ia)
{
    it_evd_handle_t evd = software(ia, 8, 1, NULL);
    it_evd_param_t params;
    it_event_t event;
    EXPECT(IT_SUCCESS, it_evd_query(evd, IT_EVD_PARAM_ALL, &params));
    CHECK(params.ia == ia && params.event_number == IT_SOFTWARE_EVENT_STREAM);
    CHECK(params.sevd_queue_size >= 8 && params.sevd_threshold == 1 && params.aevd == NULL);
    CHECK(params.evd_enabled == IT_TRUE && params.evd_overflowed == IT_FALSE);
    CHECK(params.evd_callback == IT_FALSE && params.evd_bound == IT_FALSE);
    params.sevd_queue_size = 100;
    params.sevd_threshold = 2;
    EXPECT(IT_SUCCESS, it_evd_modify(evd,
                                     (it_evd_param_mask_t)(IT_EVD_PARAM_QUEUE_SIZE |
                                                           IT_EVD_PARAM_THRESHOLD),
                                     &params));
    EXPECT(IT_SUCCESS, it_evd_query(evd, IT_EVD_PARAM_ALL, &params));
    CHECK(params.sevd_queue_size >= 100 && params.sevd_threshold == 2);
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    EXPECT(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(evd, 1000, &event, NULL));
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    EXPECT(IT_SUCCESS, it_evd_wait(evd, 60000000, &event, NULL));
    EXPECT(IT_SUCCESS, it_evd_dequeue(evd, &event));
    params.evd_enabled = IT_FALSE;
    params.sevd_threshold = 1;
    EXPECT(IT_SUCCESS, it_evd_modify(evd,
                                     (it_evd_param_mask_t)(IT_EVD_PARAM_ENABLED |
                                                           IT_EVD_PARAM_THRESHOLD),
                                     &params));
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    EXPECT(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(evd, 1000, &event, NULL));
    params.evd_enabled = IT_TRUE;
    EXPECT(IT_SUCCESS, it_evd_modify(evd, IT_EVD_PARAM_ENABLED, &params));
    EXPECT(IT_SUCCESS, it_evd_wait(evd, 60000000, &event, NULL));
    EXPECT(IT_ERR_INVALID_MASK, it_evd_query(evd, (it_evd_param_mask_t)0x80000, &params));
    EXPECT(IT_ERR_INVALID_MASK, it_evd_modify(evd, IT_EVD_PARAM_IA, &params));
    EXPECT(IT_ERR_FAULT, it_evd_query(evd, IT_EVD_PARAM_ALL, NULL));
    EXPECT(IT_ERR_FAULT, it_evd_modify(evd, IT_EVD_PARAM_THRESHOLD, NULL));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_query(NULL, IT_EVD_PARAM_ALL, &params));
    EXPECT(IT_ERR_INVALID_EVD, it_evd_modify(NULL, IT_EVD_PARAM_THRESHOLD, &params));
    EXPECT(IT_SUCCESS, it_evd_free(evd));
}

static int readable(int fd, int milliseconds)
{
    struct pollfd one;
    one.fd = fd;
    one.events = POLLIN;
    one.revents = 0;
    return poll(&one, 1, milliseconds) == 1 && (one.revents & POLLIN);
}

static void descriptors(it_ia_handle_t ia)
{
    it_evd_handle_t evd;
    it_event_t event;
    it_evd_param_t params;
    int fd = -1;
    MUST(it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, IT_EVD_CREATE_FD, 8, 1, NULL, &evd, &fd));
    CHECK(fd >= 0 && !readable(fd, 0));
    EXPECT(IT_SUCCESS, it_evd_query(evd, IT_EVD_PARAM_FD, &params));
    CHECK(params.fd == fd);
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    CHECK(readable(fd, 60000));
    CHECK(readable(fd, 0)); /* level-triggered */
    EXPECT(IT_SUCCESS, it_evd_dequeue(evd, &event));
    CHECK(!readable(fd, 0));
    EXPECT(IT_SUCCESS, it_evd_free(evd));
}

struct called {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int times;
    it_evd_handle_t evd;
};

static void callback(it_evd_handle_t evd, void *arg)
{
    struct called *called = (struct called *)arg;
    it_event_t event;
    while (it_evd_dequeue(evd, &event) == IT_SUCCESS) {
        pthread_mutex_lock(&called->lock);
        called->times++;
        called->evd = evd;
        pthread_cond_signal(&called->changed);
        pthread_mutex_unlock(&called->lock);
    }
}

static void callbacks(it_ia_handle_t ia)
{
    struct called called = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, NULL};
    it_evd_handle_t evd = software(ia, 8, 1, NULL);
    it_evd_param_t params;
    it_event_t event;
    EXPECT(IT_ERR_INVALID_EVD, it_evd_callback_attach(NULL, callback, &called));
    EXPECT(IT_ERR_FAULT, it_evd_callback_attach(evd, NULL, &called));
    EXPECT(IT_SUCCESS, it_evd_callback_attach(evd, callback, &called));
    EXPECT(IT_ERR_CALLBACK_EXISTS, it_evd_callback_attach(evd, callback, &called));
    EXPECT(IT_ERR_CALLBACK_EXISTS, it_evd_wait(evd, 0, &event, NULL));
    EXPECT(IT_SUCCESS, it_evd_query(evd, IT_EVD_PARAM_CALLBACK, &params));
    CHECK(params.evd_callback == IT_TRUE);
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    pthread_mutex_lock(&called.lock);
    while (called.times < 2)
        pthread_cond_wait(&called.changed, &called.lock);
    pthread_mutex_unlock(&called.lock);
    CHECK(called.evd == evd);
    EXPECT(IT_SUCCESS, it_evd_callback_detach(evd));
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    EXPECT(IT_SUCCESS, it_evd_wait(evd, 60000000, &event, NULL));
    CHECK(called.times == 2);
    EXPECT(IT_ERR_INVALID_EVD, it_evd_callback_detach(NULL));
    EXPECT(IT_SUCCESS, it_evd_free(evd));
}

static void aggregates(it_ia_handle_t ia)
{
    it_evd_handle_t notifying, plain, first, second;
    it_event_t event;
    MUST(it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, IT_EVD_DEQUEUE_NOTIFICATIONS, 0, 1,
                       NULL, &notifying, NULL));
    MUST(it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0, 1, NULL, &plain,
                       NULL));
    first = software(ia, 8, 1, notifying);
    second = software(ia, 8, 1, plain);
    EXPECT(IT_ERR_AEVD_NOT_ALLOWED,
           it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, (it_evd_flags_t)0, 0, 1, plain,
                         &event.any.evd, NULL));
    EXPECT(IT_ERR_INVALID_AEVD, it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, (it_evd_flags_t)0, 8, 1,
                                              first, &event.any.evd, NULL));
    EXPECT(IT_ERR_TIMEOUT_EXPIRED, it_evd_wait(notifying, 1000, &event, NULL));
    EXPECT(IT_SUCCESS, it_evd_post_se(first, NULL));
    EXPECT(IT_SUCCESS, it_evd_wait(notifying, 60000000, &event, NULL));
    CHECK(event.event_number == IT_AEVD_NOTIFICATION_EVENT);
    CHECK(event.aevd_notify.aevd == notifying && event.aevd_notify.sevd == first);
    EXPECT(IT_SUCCESS, it_evd_dequeue(first, &event));
    EXPECT(IT_SUCCESS, it_evd_post_se(second, &event));
    EXPECT(IT_SUCCESS, it_evd_wait(plain, 60000000, &event, NULL));
    CHECK(event.event_number == IT_SOFTWARE_EVENT && event.sw.evd == second);
    CHECK(event.sw.data == &event);
    check_empty(second);
    check_empty(plain);
    EXPECT(IT_ERR_EVD_BUSY, it_evd_free(plain));
    EXPECT(IT_SUCCESS, it_evd_free(first));
    EXPECT(IT_SUCCESS, it_evd_free(second));
    EXPECT(IT_SUCCESS, it_evd_free(notifying));
    EXPECT(IT_SUCCESS, it_evd_free(plain));
}

static void *wait_for_ever(void *evd)
{
    it_event_t event;
    it_status_t status = it_evd_wait((it_evd_handle_t)evd, IT_TIMEOUT_INFINITE, &event, NULL);
    CHECK(status == IT_ERR_ABORT || status == IT_ERR_INVALID_EVD);
    return NULL;
}

static void *wait_for_event(void *evd)
{
    it_event_t event;
    MUST(it_evd_wait((it_evd_handle_t)evd, 60000000, &event, NULL));
    return NULL;
}

static void waiters(void)
{
    it_ia_handle_t ia;
    it_evd_handle_t evd;
    pthread_t thread;
    MUST(it_ia_create("vp_softrdma", 2, 0, &ia));
    evd = software(ia, 8, 1, NULL);
    CHECK(pthread_create(&thread, NULL, wait_for_event, evd) == 0);
    EXPECT(IT_SUCCESS, it_evd_post_se(evd, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, wait_for_ever, evd) == 0);
    /* It returns, whether it waits already or is about to. */
    EXPECT(IT_SUCCESS, it_ia_free(ia));
    CHECK(pthread_join(thread, NULL) == 0);
}

static void on_alarm(int signal)
{
    (void)signal;
}

static void signals(it_ia_handle_t ia)
{
    it_evd_handle_t evd = software(ia, 8, 1, NULL);
    struct sigaction action;
    struct itimerval soon;
    it_event_t event;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    memset(&soon, 0, sizeof soon);
    soon.it_value.tv_usec = 20000;
    soon.it_interval.tv_usec = 20000; /* repeated, in case the first one comes too early */
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    EXPECT(IT_ERR_INTERRUPT, it_evd_wait(evd, IT_TIMEOUT_INFINITE, &event, NULL));
    memset(&soon, 0, sizeof soon);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    EXPECT(IT_SUCCESS, it_evd_free(evd));
}

int main(void)
{
    it_ia_handle_t ia;
    sigset_t alarms;
    /* The library's threads block the signal, so this thread gets it. */
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    MUST(it_ia_create("vp_softrdma", 2, 0, &ia));
    creating(ia);
    queueing(ia);
    attributes(ia);
    descriptors(ia);
    callbacks(ia);
    aggregates(ia);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    signals(ia);
    EXPECT(IT_SUCCESS, it_ia_free(ia));
    waiters();
    return checked("dispatcher");
}
