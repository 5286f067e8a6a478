/* What librdmacm returns and reports where it refuses: one line per case, `case: result`. A result is `ok`, the
 * name of an error number, or an event with its status. Argument: an address of a device. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

#define HANG_MS 30000

static const char *own;

static void show(const char *name, int result) {
    const char *error = result ? strerrorname_np(errno) : "ok";
    /* Some numbers of the kernel have none. */
    if (error)
        printf("%s: %s\n", name, error);
    else
        printf("%s: %d\n", name, errno);
}

static void demand(int good, const char *what) {
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static struct sockaddr *at(union address *to, const char *text, int port) {
    memset(to, 0, sizeof *to);
    if (strchr(text, ':')) {
        to->v6.sin6_family = AF_INET6;
        to->v6.sin6_port = htons(port);
        demand(inet_pton(AF_INET6, text, &to->v6.sin6_addr) == 1, text);
    } else {
        to->v4.sin_family = AF_INET;
        to->v4.sin_port = htons(port);
        demand(inet_pton(AF_INET, text, &to->v4.sin_addr) == 1, text);
    }
    return &to->any;
}

static struct rdma_event_channel *channel(void) {
    struct rdma_event_channel *made = rdma_create_event_channel();
    demand(made != NULL, "rdma_create_event_channel");
    return made;
}

static struct rdma_cm_id *id_on(struct rdma_event_channel *on) {
    struct rdma_cm_id *id;
    demand(!rdma_create_id(on, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    return id;
}

static int bind_to(struct rdma_cm_id *id, const char *text, int port) {
    union address to;
    return rdma_bind_addr(id, at(&to, text, port));
}

static int resolve(struct rdma_cm_id *id, const char *text, int port) {
    union address to;
    return rdma_resolve_addr(id, NULL, at(&to, text, port), 1000);
}

static struct rdma_cm_event *next(struct rdma_event_channel *on, int wait_ms) {
    struct pollfd ready = {.fd = on->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&ready, 1, wait_ms) != 1 || rdma_get_cm_event(on, &event))
        return NULL;
    return event;
}

/* Shows the next event: its name without what all have in common. */
static void shown(const char *name, struct rdma_event_channel *on) {
    struct rdma_cm_event *event = next(on, HANG_MS);
    if (!event) {
        printf("%s: nothing\n", name);
        return;
    }
    printf("%s: %s", name, rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_"));
    if (event->status < 0)
        printf(" -%s", strerrorname_np(-event->status));
    else
        printf(" %d", event->status);
    if (event->event == RDMA_CM_EVENT_REJECTED && event->param.conn.private_data_len)
        printf(" %.7s", (const char *)event->param.conn.private_data);
    puts("");
    rdma_ack_cm_event(event);
}

static struct rdma_cm_id *expect(struct rdma_event_channel *on, enum rdma_cm_event_type kind) {
    struct rdma_cm_event *event = next(on, HANG_MS);
    demand(event != NULL, rdma_event_str(kind));
    if (event->event != kind) {
        printf("%s %d in place of %s\n", rdma_event_str(event->event), event->status, rdma_event_str(kind));
        exit(1);
    }
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    return id;
}

static void give_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    demand(!rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

/* With a route, and a queue pair. */
static struct rdma_cm_id *resolved(struct rdma_event_channel *on, const char *text, int port) {
    struct rdma_cm_id *id = id_on(on);
    demand(!resolve(id, text, port), "rdma_resolve_addr");
    expect(on, RDMA_CM_EVENT_ADDR_RESOLVED);
    demand(!rdma_resolve_route(id, 1000), "rdma_resolve_route");
    expect(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_qp(id);
    return id;
}

static struct rdma_conn_param param(const void *data, int len) {
    struct rdma_conn_param made = {.private_data = data, .private_data_len = len};
    made.responder_resources = made.initiator_depth = 1;
    made.retry_count = made.rnr_retry_count = 7;
    return made;
}

static int connect_id(struct rdma_cm_id *id) {
    struct rdma_conn_param wish = param(NULL, 0);
    return rdma_connect(id, &wish);
}

static int accept_id(struct rdma_cm_id *id) {
    struct rdma_conn_param wish = param(NULL, 0);
    return rdma_accept(id, &wish);
}

static void end(struct rdma_cm_id *id) {
    if (id->qp)
        rdma_destroy_qp(id);
    demand(!rdma_destroy_id(id), "rdma_destroy_id");
}

static struct rdma_cm_id *listener(struct rdma_event_channel *on, int backlog) {
    struct rdma_cm_id *id = id_on(on);
    demand(!bind_to(id, own, 0), "rdma_bind_addr");
    demand(!rdma_listen(id, backlog), "rdma_listen");
    return id;
}

static int port_of(struct rdma_cm_id *id) { return ntohs(rdma_get_src_port(id)); }

/* One identifier is bound to the first address, another to the port of the first at the second address. */
static void second_bind(const char *name, const char *first, const char *second) {
    struct rdma_event_channel *on = channel();
    struct rdma_cm_id *one = id_on(on), *two = id_on(on);
    demand(!bind_to(one, first, 0), first);
    show(name, bind_to(two, second, port_of(one)));
    end(two);
    end(one);
    rdma_destroy_event_channel(on);
}

static void binding(void) {
    struct rdma_event_channel *on = channel();
    second_bind("bind: same address", own, own);
    second_bind("bind: wildcard twice", "0.0.0.0", "0.0.0.0");
    second_bind("bind: wildcard after an address", own, "0.0.0.0");
    second_bind("bind: an address after the wildcard", "0.0.0.0", own);
    second_bind("bind: IPv6 wildcard twice", "::", "::");
    second_bind("bind: loopback twice", "127.0.0.1", "127.0.0.1");
    second_bind("bind: wildcards of both families", "0.0.0.0", "::");

    struct rdma_cm_id *id = id_on(on);
    show("bind: an address of no machine", bind_to(id, "198.51.100.7", 0));
    show("bind: link-local without an interface", bind_to(id, "fe80::1", 0));
    struct sockaddr other = {.sa_family = AF_UNIX};
    show("bind: another family", rdma_bind_addr(id, &other));
    show("bind: after refusals", bind_to(id, own, 0));
    show("bind: bound already", bind_to(id, own, 0));
    show("listen: bound", rdma_listen(id, 1));
    show("listen: listens already", rdma_listen(id, 1));
    show("bind: listens", bind_to(id, own, 0));
    show("resolve_addr: listens", resolve(id, own, 1));
    show("connect: listens", connect_id(id));
    int port = port_of(id);
    end(id);
    id = id_on(on);
    show("bind: its listener is destroyed", bind_to(id, own, port));
    end(id);
    id = id_on(on);
    show("listen: not bound", rdma_listen(id, 1));
    end(id);

    id = id_on(on);
    demand(!bind_to(id, "127.0.0.1", 0), "rdma_bind_addr");
    printf("bind: loopback: %s\n", id->verbs ? "a device" : "no device");
    end(id);
    id = id_on(on);
    demand(!bind_to(id, "::1", 0), "rdma_bind_addr");
    printf("bind: IPv6 loopback: %s\n", id->verbs ? "a device" : "no device");
    end(id);
    id = id_on(on);
    demand(!bind_to(id, own, 0), "rdma_bind_addr");
    printf("bind: its address: %s\n", id->verbs ? "a device" : "no device");
    end(id);
    rdma_destroy_event_channel(on);
}

static void resolving(void) {
    struct rdma_event_channel *on = channel();
    struct rdma_cm_id *id = id_on(on);
    demand(!bind_to(id, own, 0), "rdma_bind_addr");
    show("resolve_route: no address", rdma_resolve_route(id, 1000));
    show("connect: no address", connect_id(id));
    show("accept: no request", accept_id(id));
    show("reject: no request", rdma_reject(id, NULL, 0));
    show("disconnect: no connection", rdma_disconnect(id));
    show("notify: no connection", rdma_notify(id, IBV_EVENT_COMM_EST));
    end(id);

    id = id_on(on);
    demand(!resolve(id, own, 1), "rdma_resolve_addr");
    shown("resolve_addr: event", on);
    show("resolve_addr: resolved", resolve(id, own, 1));
    show("bind: resolved", bind_to(id, own, 0));
    show("listen: resolved", rdma_listen(id, 1));
    show("connect: no route", connect_id(id));
    show("resolve_route: no time", rdma_resolve_route(id, 0));
    show("resolve_route: once", rdma_resolve_route(id, 1000));
    shown("resolve_route: event", on);
    show("resolve_route: twice", rdma_resolve_route(id, 1000));
    end(id);

    id = id_on(on);
    demand(!bind_to(id, own, 0), "rdma_bind_addr");
    show("resolve_addr: of the other family", resolve(id, "::1", 1));
    show("resolve_addr: bound", resolve(id, own, 1));
    shown("resolve_addr: bound, event", on);
    end(id);
    rdma_destroy_event_channel(on);
}

static void refusals(void) {
    struct rdma_event_channel *near = channel(), *far = channel();
    struct rdma_cm_id *door = listener(far, 4);
    int port = port_of(door);

    struct rdma_cm_id *one = resolved(near, own, port), *two;
    show("connect: first", connect_id(one));
    show("connect: again", connect_id(one));
    two = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
    show("reject: a request", rdma_reject(two, "because", 7));
    shown("rejected: event", near);
    show("connect: rejected", connect_id(one));
    show("disconnect: rejected", rdma_disconnect(one));
    show("accept: rejected", accept_id(two));
    show("reject: rejected", rdma_reject(two, NULL, 0));
    end(two);
    end(one);

    one = resolved(near, own, port);
    demand(!connect_id(one), "rdma_connect");
    two = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
    end(two);
    shown("request destroyed: event", near);
    end(one);

    one = resolved(near, own, port);
    demand(!connect_id(one), "rdma_connect");
    two = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
    give_qp(two);
    show("accept: once", accept_id(two));
    shown("connected: event", near);
    shown("accepted: event", far);
    show("accept: twice", accept_id(two));
    show("reject: accepted", rdma_reject(two, NULL, 0));
    show("connect: connected", connect_id(one));
    show("disconnect: once", rdma_disconnect(one));
    shown("disconnected: event", near);
    shown("disconnected: peer's event", far);
    show("disconnect: twice", rdma_disconnect(one));
    show("disconnect: after the peer", rdma_disconnect(two));
    end(two);
    end(one);
    end(door);

    one = resolved(near, own, port);
    show("connect: no listener", connect_id(one));
    shown("no listener: event", near);
    end(one);
    door = id_on(far);
    demand(!bind_to(door, own, port), "rdma_bind_addr");
    one = resolved(near, own, port);
    show("connect: bound only", connect_id(one));
    shown("bound only: event", near);
    end(one);
    end(door);
    rdma_destroy_event_channel(near);
    rdma_destroy_event_channel(far);
}

static void private_data(void) {
    static char data[255];
    struct rdma_event_channel *near = channel(), *far = channel();
    struct rdma_cm_id *door = listener(far, 4);
    int port = port_of(door);
    struct rdma_cm_id *one = resolved(near, own, port), *two;
    struct rdma_conn_param wish = param(data, 255);
    show("connect: 255 octets", rdma_connect(one, &wish));
    end(one);
    struct rdma_cm_event *event;
    while ((event = next(far, 300)))
        rdma_ack_cm_event(event);
    one = resolved(near, own, port);
    wish = param(data, 57);
    show("connect: 57 octets", rdma_connect(one, &wish));
    end(one);
    while ((event = next(far, 300)))
        rdma_ack_cm_event(event);
    one = resolved(near, own, port);
    wish = param(data, 53);
    show("connect: 53 octets", rdma_connect(one, &wish));
    two = expect(far, RDMA_CM_EVENT_CONNECT_REQUEST);
    give_qp(two);
    wish = param(data, 197);
    show("accept: 197 octets", rdma_accept(two, &wish));
    end(two);
    end(one);
    one = resolved(near, own, port);
    demand(!connect_id(one), "rdma_connect");
    do {
        event = next(far, HANG_MS);
        demand(event != NULL, "no request");
        two = event->id;
    } while (event->event != RDMA_CM_EVENT_CONNECT_REQUEST && !rdma_ack_cm_event(event));
    rdma_ack_cm_event(event);
    show("reject: 149 octets", rdma_reject(two, data, 149));
    end(two);
    end(one);
    one = resolved(near, own, port);
    wish = param(NULL, 0);
    wish.responder_resources = 254;
    show("connect: too many reads in", rdma_connect(one, &wish));
    wish = param(NULL, 0);
    wish.initiator_depth = 254;
    show("connect: too many reads out", rdma_connect(one, &wish));
    end(one);
    end(door);
    rdma_destroy_event_channel(near);
    rdma_destroy_event_channel(far);
}

static int set(struct rdma_cm_id *id, int level, int name, int len) {
    static unsigned char value[64] = {1};
    return rdma_set_option(id, level, name, value, len);
}

static void options(void) {
    struct rdma_event_channel *on = channel();
    struct rdma_cm_id *id = id_on(on);
    show("option: unknown level", set(id, 99, RDMA_OPTION_ID_TOS, 1));
    show("option: unknown name", set(id, RDMA_OPTION_ID, 99, 1));
    show("option: type of service", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1));
    show("option: type of service of 4 octets", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 4));
    show("option: acknowledgement", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1));
    unsigned char large = 32;
    show("option: acknowledgement of 32", rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &large, 1));
    show("option: shared address of 1 octet", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 1));
    show("option: one family of 1 octet", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 1));
    show("option: path, no address", set(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 64));
    demand(!bind_to(id, own, 0), "rdma_bind_addr");
    show("option: shared address, bound", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 4));
    show("option: one family, bound", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 4));
    demand(!rdma_listen(id, 1), "rdma_listen");
    show("option: shared address, listens", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 4));
    show("option: one family, listens", set(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, 4));
    int port = port_of(id);
    struct rdma_event_channel *near = channel();
    struct rdma_cm_id *one = resolved(near, own, port);
    demand(!connect_id(one), "rdma_connect");
    struct rdma_cm_id *two = expect(on, RDMA_CM_EVENT_CONNECT_REQUEST);
    give_qp(two);
    demand(!accept_id(two), "rdma_accept");
    expect(near, RDMA_CM_EVENT_ESTABLISHED);
    expect(on, RDMA_CM_EVENT_ESTABLISHED);
    show("option: type of service, connected", set(one, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1));
    show("option: acknowledgement, connected", set(one, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1));
    show("option: shared address, connected", set(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, 4));
    show("migrate: connected", rdma_migrate_id(one, on));
    end(two);
    end(one);
    end(id);
    rdma_destroy_event_channel(near);
    rdma_destroy_event_channel(on);
}

static void without_queue_pair(void) {
    struct rdma_event_channel *near = channel(), *far = channel();
    struct rdma_cm_id *door = listener(far, 4);
    struct rdma_cm_id *id = id_on(near), *two;
    demand(!resolve(id, own, port_of(door)), "rdma_resolve_addr");
    expect(near, RDMA_CM_EVENT_ADDR_RESOLVED);
    demand(!rdma_resolve_route(id, 1000), "rdma_resolve_route");
    expect(near, RDMA_CM_EVENT_ROUTE_RESOLVED);
    show("establish: no connection", rdma_establish(id));
    struct rdma_conn_param wish = param("client", 7);
    wish.qp_num = 0x4321;
    show("connect: a number of no queue pair", rdma_connect(id, &wish));
    struct rdma_cm_event *event = next(far, 3000);
    if (!event) {
        puts("request: none");
        goto over;
    }
    printf("request: number %#x\n", event->param.conn.qp_num);
    two = event->id;
    rdma_ack_cm_event(event);
    wish = param("server", 7);
    wish.qp_num = 0x8765;
    show("accept: a number of no queue pair", rdma_accept(two, &wish));
    event = next(near, HANG_MS);
    demand(event != NULL, "no response");
    printf("response: %s, number %#x\n", rdma_event_str(event->event) + 14, event->param.conn.qp_num);
    rdma_ack_cm_event(event);
    event = next(far, 1000);
    printf("accepted, not established: %s\n", event ? rdma_event_str(event->event) + 14 : "nothing");
    if (event)
        rdma_ack_cm_event(event);
    show("establish: response", rdma_establish(id));
    shown("established: event", far);
    show("establish: twice", rdma_establish(id));
    show("disconnect: no queue pair", rdma_disconnect(id));
    shown("disconnected, no queue pair: event", near);
    shown("disconnected, no queue pair: peer's event", far);
    end(two);
over:
    end(id);
    end(door);
    rdma_destroy_event_channel(near);
    rdma_destroy_event_channel(far);
}

static int join(struct rdma_cm_id *id, const char *group) {
    union address to;
    return rdma_join_multicast(id, at(&to, group, 0), NULL);
}

static int leave(struct rdma_cm_id *id, const char *group) {
    union address to;
    return rdma_leave_multicast(id, at(&to, group, 0));
}

/* Of a call that may succeed: the result, and if it succeeds the event. */
static void join_and_show(const char *name, struct rdma_event_channel *on, struct rdma_cm_id *id, const char *group) {
    char line[64];
    int result = join(id, group);
    show(name, result);
    if (!result) {
        snprintf(line, sizeof line, "%s, event", name);
        shown(line, on);
    }
}

static void multicast(void) {
    struct rdma_event_channel *on = channel();
    struct rdma_cm_id *id = id_on(on), *two;
    const char *group = "239.7.7.7", *other = "239.7.7.8";
    demand(!bind_to(id, own, 0), "rdma_bind_addr");
    show("join: an identifier for connections", join(id, group));
    show("leave: an identifier for connections", leave(id, group));
    end(id);
    int made = rdma_create_id(on, &id, NULL, RDMA_PS_UDP);
    show("an identifier for datagrams", made);
    if (made)
        goto over;
    show("join: not bound", join(id, group));
    show("leave: not bound", leave(id, group));
    demand(!bind_to(id, "0.0.0.0", 0), "rdma_bind_addr");
    show("join: no device", join(id, group));
    end(id);

    demand(!rdma_create_id(on, &id, NULL, RDMA_PS_UDP), "rdma_create_id");
    demand(!bind_to(id, own, 0), "rdma_bind_addr");
    struct sockaddr family = {.sa_family = AF_UNIX};
    show("join: another family", rdma_join_multicast(id, &family, NULL));
    struct rdma_cm_join_mc_attr_ex attr = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS};
    union address to;
    attr.addr = at(&to, group, 0);
    show("join: no flags", rdma_join_multicast_ex(id, &attr, NULL));
    attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    attr.join_flags = 77;
    show("join: unknown flags", rdma_join_multicast_ex(id, &attr, NULL));
    join_and_show("join: no queue pair", on, id, other);
    struct ibv_qp_init_attr queues = {.qp_type = IBV_QPT_UD, .cap = {4, 4, 1, 1, 0}};
    made = rdma_create_qp(id, NULL, &queues);
    show("a queue pair for datagrams", made);
    join_and_show("join: the wildcard", on, id, "0.0.0.0");
    join_and_show("join: an address of one machine", on, id, "198.51.100.7");
    join_and_show("join: of IPv6", on, id, "ff0e::7");
    join_and_show("join: once", on, id, group);
    join_and_show("join: twice", on, id, group);
    show("leave: a group of nobody", leave(id, "239.7.7.9"));
    demand(!rdma_create_id(on, &two, NULL, RDMA_PS_UDP), "rdma_create_id");
    demand(!bind_to(two, own, 0), "rdma_bind_addr");
    show("leave: another identifier's group", leave(two, group));
    end(two);
    show("leave: once", leave(id, group));
    show("leave: twice", leave(id, group));
    show("leave: once more", leave(id, group));
    show("leave: without a queue pair", leave(id, other));
    demand(!rdma_listen(id, 1), "rdma_listen");
    join_and_show("join: listens", on, id, group);
    end(id);

    demand(!rdma_create_id(on, &id, NULL, RDMA_PS_UDP), "rdma_create_id");
    demand(!resolve(id, own, 1), "rdma_resolve_addr");
    expect(on, RDMA_CM_EVENT_ADDR_RESOLVED);
    join_and_show("join: address resolved", on, id, group);
    demand(!rdma_resolve_route(id, 1000), "rdma_resolve_route");
    expect(on, RDMA_CM_EVENT_ROUTE_RESOLVED);
    join_and_show("join: route resolved", on, id, group);
    end(id);
over:
    rdma_destroy_event_channel(on);
}

int main(int count, char **argument) {
    own = count > 1 ? argument[1] : "127.0.0.1";
    setvbuf(stdout, NULL, _IOLBF, 0);
    binding();
    resolving();
    refusals();
    private_data();
    options();
    without_queue_pair();
    multicast();
    puts("end");
}
