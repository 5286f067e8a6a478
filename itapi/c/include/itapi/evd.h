/*
 * Event dispatchers: queues of events, and how a program is notified of them.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 5, 6, 8.
 */
#ifndef ITAPI_EVD_H
#define ITAPI_EVD_H

/**
 * Makes an event dispatcher.
 *
 * event_number: the stream of a simple one (SEVD), or IT_AEVD_NOTIFICATION_EVENT_STREAM for an
 * aggregate one (AEVD). evd_flag: it_evd_flags_t, 0 for none. sevd_queue_size: events that an SEVD
 * holds, at least. sevd_threshold: how many notification events must be queued before waiters, the
 * descriptor, the callback or the AEVD are notified; 1 for every one, IT_THRESHOLD_DISABLE for
 * never. aevd_handle: the AEVD that an SEVD feeds, or IT_NULL_HANDLE. fd: out, with
 * IT_EVD_CREATE_FD a descriptor for poll(), readable while the criteria are met; it belongs to the
 * event dispatcher: do not read or close it. May be NULL without that flag.
 *
 * Notification events are: everything that is not a completion, completions in error, those whose
 * request had IT_NOTIFY_FLAG, and receives whose sender used IT_SOLICITED_WAIT_FLAG. An interface
 * adapter has at most one SEVD for affiliated and one for unaffiliated events.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_INVALID_EVD_TYPE, IT_ERR_INVALID_FLAGS,
 * IT_ERR_INVALID_QUEUE_SIZE, IT_ERR_RESOURCE_QUEUE_SIZE, IT_ERR_INVALID_THRESHOLD,
 * IT_ERR_INVALID_AEVD, IT_ERR_AEVD_NOT_ALLOWED, IT_ERR_MISMATCH_FD, IT_ERR_ASYNC_AFF_EVD_EXISTS,
 * IT_ERR_ASYNC_UNAFF_EVD_EXISTS, IT_ERR_INVALID_EVD_STATE, IT_ERR_RESOURCES.
 */
it_status_t it_evd_create(IN it_ia_handle_t ia_handle,
                          IN it_event_type_t event_number,
                          IN it_evd_flags_t evd_flag,
                          IN size_t sevd_queue_size,
                          IN size_t sevd_threshold,
                          IN it_evd_handle_t aevd_handle,
                          OUT it_evd_handle_t *evd_handle,
                          OUT int *fd);

/**
 * Destroys an event dispatcher and the events in it; IT_ERR_EVD_BUSY while endpoints, listeners or
 * SEVDs use it, IT_ERR_EVD_WAIT while a thread waits on it.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_EVD_BUSY, IT_ERR_EVD_WAIT.
 */
it_status_t it_evd_free(IN it_evd_handle_t evd_handle);

/**
 * Takes the next event, if there is one; never blocks. IT_ERR_QUEUE_EMPTY: there is none.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_QUEUE_EMPTY, IT_ERR_EVD_WAIT, IT_ERR_INVALID_EVD_STATE.
 */
it_status_t it_evd_dequeue(IN it_evd_handle_t evd_handle, OUT it_event_t *event);

/**
 * Takes up to deque_count events at once; never blocks. None is IT_SUCCESS with *dequed_count 0.
 *
 * events: room for deque_count entries. dequed_count: out. Not in the standard.
 *
 * Errors: IT_ERR_INVALID_EVD.
 */
it_status_t it_evd_dequeue_n(IN it_evd_handle_t evd_handle,
                             IN int deque_count,
                             OUT it_event_t *events,
                             OUT int *dequed_count);

/**
 * Waits until the criteria are met and takes the next event.
 *
 * timeout: microseconds, 0 not to wait, IT_TIMEOUT_INFINITE without end. event: out. nmore: out, how many
 * events are left, at least; may be NULL. On an AEVD the event is an IT_AEVD_NOTIFICATION_EVENT if it was made
 * with IT_EVD_DEQUEUE_NOTIFICATIONS, else the event of the SEVD. IT_ERR_TIMEOUT_EXPIRED: nothing happened.
 * IT_ERR_INTERRUPT: a signal handler ran. IT_ERR_ABORT: the event dispatcher or its interface adapter was
 * freed.
 *
 * Only notification events (it_evd_create()) end a wait: the completion of a request without IT_NOTIFY_FLAG is queued and does not,
 * so that a wait for it expires. itw_last_error() then says how many events are queued.
 *
 * Loss-free use: dequeue until IT_ERR_QUEUE_EMPTY, wait, dequeue again.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_TIMEOUT_EXPIRED, IT_ERR_INTERRUPT, IT_ERR_WAITER_LIMIT,
 * IT_ERR_ABORT, IT_ERR_INVALID_EVD_STATE, IT_ERR_CALLBACK_EXISTS.
 */
it_status_t it_evd_wait(IN it_evd_handle_t evd_handle,
                        IN uint64_t timeout,
                        OUT it_event_t *event,
                        OUT size_t *nmore);

/**
 * Changes attributes: IT_EVD_PARAM_QUEUE_SIZE, IT_EVD_PARAM_THRESHOLD, IT_EVD_PARAM_AEVD_HANDLE,
 * IT_EVD_PARAM_ENABLED, IT_EVD_PARAM_FLAG (overflow flags), IT_EVD_PARAM_OVERFLOWED (to IT_FALSE
 * only). Events may flow meanwhile; a queue is not made shorter than what is in it.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_INVALID_MASK, IT_ERR_INVALID_QUEUE_SIZE,
 * IT_ERR_RESOURCE_QUEUE_SIZE, IT_ERR_INVALID_THRESHOLD, IT_ERR_INVALID_AEVD,
 * IT_ERR_AEVD_NOT_ALLOWED, IT_ERR_INVALID_EVD_STATE, IT_ERR_EVD_BUSY, IT_ERR_EVD_WAIT,
 * IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_evd_modify(IN it_evd_handle_t evd_handle,
                          IN it_evd_param_mask_t mask,
                          IN const it_evd_param_t *params);

/**
 * Returns the attributes that mask selects.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_INVALID_MASK.
 */
it_status_t it_evd_query(IN it_evd_handle_t evd_handle,
                         IN it_evd_param_mask_t mask,
                         OUT it_evd_param_t *params);

/**
 * Puts a software event into an SEVD of the software stream.
 *
 * event: returned as the data of the event; may be anything, NULL included. IT_ERR_EVD_QUEUE_FULL: the queue is
 * full.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_INVALID_SOFT_EVD, IT_ERR_EVD_QUEUE_FULL.
 */
it_status_t it_evd_post_se(IN it_evd_handle_t evd_handle, IN const void *event);

/**
 * Attaches a function that is called when the criteria are met. It gets evd_handle and arg, and takes
 * the events itself. It runs in a thread of the library, never twice at once; it must not block, and
 * must return (it_api.h, Ending). While it is attached, it_evd_wait() is refused.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_CALLBACK_EXISTS, IT_ERR_EVD_WAIT, IT_ERR_MISMATCH_FD,
 * IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_evd_callback_attach(IN it_evd_handle_t evd_handle,
                                   IN it_evd_callback_rtn_t callback,
                                   IN void *arg);

/**
 * Detaches the callback, which is not running any more when this returns, unless it made the call.
 *
 * Errors: IT_ERR_INVALID_EVD.
 */
it_status_t it_evd_callback_detach(IN it_evd_handle_t evd_handle);

#endif
