/*
 * it_status_t.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_STATUS_H
#define ITAPI_STATUS_H

/**
 * What a call returns: 0, or the reason why nothing was done.
 *
 * The long explanation of a failure is in itw_last_error().
 */
typedef enum {
    IT_SUCCESS = 0, /**< done */
    IT_ERR_ABORT = 1, /**< the object was freed during the call */
    IT_ERR_ACCESS = 2, /**< access to the memory or object is denied */
    IT_ERR_ADDRESS = 3, /**< the network address is wrong */
    /** the event dispatcher is an aggregate one; a simple one is needed */
    IT_ERR_AEVD_NOT_ALLOWED = 4,
    /** the interface adapter has a dispatcher of affiliated events already */
    IT_ERR_ASYNC_AFF_EVD_EXISTS = 5,
    /** the interface adapter has a dispatcher of unaffiliated events already */
    IT_ERR_ASYNC_UNAFF_EVD_EXISTS = 6,
    IT_ERR_CALLBACK_EXISTS = 7, /**< the event dispatcher has a callback */
    IT_ERR_CANNOT_RESET = 8, /**< the endpoint cannot be reset */
    IT_ERR_CONN_QUAL_BUSY = 9, /**< the port is in use */
    IT_ERR_EP_BUSY = 10, /**< the endpoint is in use */
    IT_ERR_EP_TIMEWAIT = 11, /**< the endpoint is in time-wait */
    IT_ERR_EVD_BUSY = 12, /**< the event dispatcher is in use */
    IT_ERR_EVD_WAIT = 13, /**< a thread waits on the event dispatcher */
    IT_ERR_EVD_QUEUE_FULL = 14, /**< the event queue is full */
    IT_ERR_FAULT = 15, /**< a pointer is wrong */
    IT_ERR_HARD_HI_WATERMARK = 16, /**< the hard high watermark is not supported or wrong */
    IT_ERR_IA_CATASTROPHE = 17, /**< the interface adapter failed */
    IT_ERR_INTERRUPT = 18, /**< a signal interrupted the wait */
    IT_ERR_INVALID_ADDR_MODE = 19, /**< wrong addr mode */
    IT_ERR_INVALID_ADDRESS = 20, /**< wrong address */
    IT_ERR_INVALID_AEVD = 21, /**< wrong aggregate event dispatcher */
    IT_ERR_INVALID_AH = 22, /**< wrong address handle */
    IT_ERR_INVALID_ATIMEOUT = 23, /**< wrong local ACK time-out */
    IT_ERR_INVALID_ATOMIC_OP = 24, /**< wrong atomic op */
    IT_ERR_INVALID_CM_RETRY = 25, /**< wrong CM retry count */
    IT_ERR_INVALID_CN_EST_FLAGS = 26, /**< wrong connection flags */
    IT_ERR_INVALID_CN_EST_ID = 27, /**< wrong connection request */
    IT_ERR_INVALID_CONN_EVD = 28, /**< wrong connection event dispatcher */
    IT_ERR_INVALID_CONN_QUAL = 29, /**< wrong connection qualifier */
    IT_ERR_INVALID_CONVERSION = 30, /**< wrong conversion */
    IT_ERR_INVALID_DTO_FLAGS = 31, /**< wrong DTO flags */
    IT_ERR_INVALID_EP = 32, /**< wrong endpoint handle */
    IT_ERR_INVALID_EP_ATTR = 33, /**< wrong endpoint attribute */
    IT_ERR_INVALID_EP_KEY = 34, /**< wrong endpoint key */
    IT_ERR_INVALID_EP_STATE = 35, /**< wrong state of the endpoint */
    IT_ERR_INVALID_EP_TYPE = 36, /**< wrong type of the endpoint */
    IT_ERR_INVALID_EVD = 37, /**< wrong event dispatcher handle */
    IT_ERR_INVALID_EVD_STATE = 38, /**< wrong state of the event dispatcher */
    IT_ERR_INVALID_EVD_TYPE = 39, /**< wrong event stream of the event dispatcher */
    IT_ERR_INVALID_FLAGS = 40, /**< wrong flags */
    IT_ERR_INVALID_HANDLE = 41, /**< wrong handle */
    IT_ERR_INVALID_IA = 42, /**< wrong interface adapter handle */
    IT_ERR_INVALID_IOBL = 43, /**< wrong I/O buffer list */
    IT_ERR_INVALID_LENGTH = 44, /**< wrong length */
    IT_ERR_INVALID_LISTEN = 45, /**< wrong listener handle */
    IT_ERR_INVALID_LMR = 46, /**< wrong memory region handle */
    IT_ERR_INVALID_LTIMEOUT = 47, /**< wrong local CM time-out */
    IT_ERR_INVALID_MAJOR_VERSION = 48, /**< wrong major version */
    IT_ERR_INVALID_MASK = 49, /**< wrong mask */
    IT_ERR_INVALID_MINOR_VERSION = 50, /**< wrong minor version */
    IT_ERR_INVALID_NAME = 51, /**< wrong name */
    IT_ERR_INVALID_NETADDR = 52, /**< wrong network address */
    IT_ERR_INVALID_NUM_SEGMENTS = 53, /**< wrong number of segments */
    IT_ERR_INVALID_PDATA_LENGTH = 54, /**< wrong length of the private data */
    IT_ERR_INVALID_PRIVS = 55, /**< wrong set of privileges */
    IT_ERR_INVALID_PZ = 56, /**< wrong protection zone handle */
    IT_ERR_INVALID_QUEUE_SIZE = 57, /**< wrong queue size */
    IT_ERR_INVALID_RECV_DTO = 58, /**< wrong receive */
    IT_ERR_INVALID_RECV_EVD = 59, /**< wrong receive event dispatcher */
    IT_ERR_INVALID_RECV_EVD_STATE = 60, /**< wrong state of the receive event dispatcher */
    IT_ERR_INVALID_REQ_EVD = 61, /**< wrong request event dispatcher */
    IT_ERR_INVALID_REQ_EVD_STATE = 62, /**< wrong state of the request event dispatcher */
    IT_ERR_INVALID_RETRY = 63, /**< wrong retry count */
    IT_ERR_INVALID_RMR = 64, /**< wrong memory window handle */
    IT_ERR_INVALID_RNR_RETRY = 65, /**< wrong RNR retry count */
    IT_ERR_INVALID_RMR_TYPE = 66, /**< wrong type of memory window */
    IT_ERR_INVALID_RTIMEOUT = 67, /**< wrong remote CM time-out */
    IT_ERR_INVALID_SOFT_EVD = 68, /**< wrong software event dispatcher */
    IT_ERR_INVALID_SOURCE_PATH = 69, /**< wrong source path */
    IT_ERR_INVALID_SPIGOT = 70, /**< wrong spigot */
    IT_ERR_INVALID_SRQ = 71, /**< wrong shared receive queue handle */
    IT_ERR_INVALID_SRQ_SIZE = 72, /**< wrong size of the shared receive queue */
    IT_ERR_INVALID_THRESHOLD = 73, /**< wrong threshold */
    IT_ERR_INVALID_UD_STATUS = 74, /**< wrong UD service status */
    IT_ERR_INVALID_UD_SVC = 75, /**< wrong UD service handle */
    IT_ERR_INVALID_UD_SVC_REQ_ID = 76, /**< wrong UD service request */
    IT_ERR_INVALID_WATERMARK = 77, /**< wrong watermark */
    IT_ERR_LMR_BUSY = 78, /**< memory windows are linked to the memory region */
    IT_ERR_MISMATCH_FD = 79, /**< the file descriptor does not fit */
    IT_ERR_NO_CONTEXT = 80, /**< the object has no consumer context */
    IT_ERR_NO_PERMISSION = 81, /**< not permitted */
    IT_ERR_OP_NOT_SUPPORTED = 82, /**< this transport does not support the operation */
    IT_ERR_PAYLOAD_SIZE = 83, /**< the payload size is not possible */
    IT_ERR_PDATA_NOT_SUPPORTED = 84, /**< private data is not supported here */
    IT_ERR_PRIV_OPS_UNAVAILABLE = 85, /**< the endpoint is not privileged */
    IT_ERR_PZ_BUSY = 86, /**< the protection zone is in use */
    IT_ERR_QUEUE_EMPTY = 87, /**< there is no event */
    IT_ERR_RANGE = 88, /**< a segment reaches outside its memory region */
    IT_ERR_RESOURCES = 89, /**< a resource ran out */
    IT_ERR_RESOURCE_IRD = 90, /**< so many inbound RDMA Reads are not possible */
    IT_ERR_RESOURCE_LMR_LENGTH = 91, /**< a memory region of this length is not possible */
    IT_ERR_RESOURCE_ORD = 92, /**< so many outbound RDMA Reads are not possible */
    IT_ERR_RESOURCE_QUEUE_SIZE = 93, /**< an event queue of this size is not possible */
    IT_ERR_RESOURCE_RECV_DTO = 94, /**< so many receives are not possible */
    IT_ERR_RESOURCE_REQ_DTO = 95, /**< so many requests are not possible */
    IT_ERR_RESOURCE_RRSEG = 96, /**< so many RDMA Read segments are not possible */
    IT_ERR_RESOURCE_RSEG = 97, /**< so many receive segments are not possible */
    IT_ERR_RESOURCE_RWSEG = 98, /**< so many RDMA Write segments are not possible */
    IT_ERR_RESOURCE_SSEG = 99, /**< so many send segments are not possible */
    IT_ERR_SOFT_HI_WATERMARK = 100, /**< the soft high watermark is not supported or wrong */
    IT_ERR_SRQ_BUSY = 101, /**< the shared receive queue is in use */
    IT_ERR_SRQ_LOW_WATERMARK = 102, /**< the low watermark is wrong */
    IT_ERR_SRQ_NOT_SUPPORTED = 103, /**< there are no shared receive queues */
    IT_ERR_TIMEOUT_EXPIRED = 104, /**< nothing happened in time */
    IT_ERR_TOO_MANY_POSTS = 105, /**< the work queue is full */
    IT_ERR_WAITER_LIMIT = 106 /**< too many waiters */
} it_status_t;

#endif
