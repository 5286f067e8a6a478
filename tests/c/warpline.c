/*
 * Tests of the library's texts: version, statuses, last failure of each thread, events.
 */
#include "check.h"

#include <pthread.h>
#include <string.h>

static void *other_thread(void *unused)
{
    char text[100] = "untouched";
    CHECK(itw_last_error(text, sizeof text) == 0 && text[0] == 0);
    return unused;
}

static void last_errors(void)
{
    char text[200], little[8];
    size_t whole;
    pthread_t thread;
    EXPECT(IT_ERR_INVALID_EP, it_ep_free(NULL));
    whole = itw_last_error(text, sizeof text);
    CHECK(whole > 10 && whole < sizeof text && strlen(text) == whole);
    CHECK(strstr(text, "endpoint") != NULL);
    CHECK(itw_last_error(NULL, 0) == whole);
    memset(little, 'x', sizeof little);
    CHECK(itw_last_error(little, sizeof little) == whole);
    CHECK(strlen(little) == sizeof little - 1 && strncmp(little, text, sizeof little - 1) == 0);
    CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void statuses(void)
{
    int status;
    for (status = 0; status <= IT_ERR_WAITER_LIMIT; status++) {
        const char *text = itw_strerror((it_status_t)status);
        CHECK(text != NULL && strncmp(text, "IT_", 3) == 0);
    }
    CHECK(itw_strerror((it_status_t)9999) != NULL);
    CHECK(strstr(itw_strerror(IT_ERR_QUEUE_EMPTY), "IT_ERR_QUEUE_EMPTY") != NULL);
}

static void events(void)
{
    struct side side;
    it_event_t event;
    it_evd_handle_t evd;
    char text[256], little[4];
    size_t whole;
    unsigned number;
    side_open(&side);
    evd = check_evd(side.ia, IT_SOFTWARE_EVENT_STREAM);
    MUST(it_evd_post_se(evd, NULL));
    event = check_event(evd, IT_SOFTWARE_EVENT);
    whole = itw_event_text(&event, text, sizeof text);
    CHECK(whole > 5 && whole < sizeof text && strlen(text) == whole);
    CHECK(itw_event_text(&event, NULL, 0) == whole);
    CHECK(itw_event_text(&event, little, sizeof little) == whole && strlen(little) == 3);
    CHECK(itw_event_text(NULL, text, sizeof text) > 0);
    memset(&event, 0, sizeof event);
    for (number = 0; number < 0x30000; number += number % 0x1000 < 0x300 ? 1 : 0xd00) {
        event.event_number = (it_event_type_t)number;
        CHECK(itw_event_text(&event, text, sizeof text) > 0);
    }
    EXPECT(IT_SUCCESS, it_evd_free(evd));
    side_close(&side);
}

static void count(int level, const char *text, void *context)
{
    CHECK(level >= ITW_LOG_ERROR && level <= ITW_LOG_TRACE && text != NULL);
    ++*(int *)context;
}

/* Log lines go to a function, and to standard error again. */
static void logs(void)
{
    static int lines;
    CHECK(itw_log_callback(count, &lines) == IT_SUCCESS);
    CHECK(itw_log_callback(NULL, NULL) == IT_SUCCESS);
}

int main(void)
{
    CHECK(itw_version() != NULL && strlen(itw_version()) >= 5);
    statuses();
    last_errors();
    events();
    logs();
    return checked("warpline");
}
