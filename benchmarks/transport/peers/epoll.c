/* An echo of framed messages over TCP, by epoll on both sides: what Python could at most reach.
 *
 *   epoll serve SPIN_US                           prints its port
 *   epoll call PORT BYTES WARM_UP SECONDS SPIN_US  prints count, seconds, each duration
 *
 * An end that finds nothing looks again for SPIN_US and lets others run in between, then it sleeps.
 * A message has our header: 24 bytes, 8 more for the length of its one frame, the frame.
 * It is answered once it has come whole. Each side keeps one buffer and has one connection.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 32, LENGTH_AT = 24, START_BYTES = 1 << 18, SAMPLES = 1 << 24 };

struct end {
    int socket, epoll;
    char *buffer;
    size_t room;
};

static int64_t spin_ns;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static struct end make_end(int socket) {
    struct end end = {socket, epoll_create1(0), malloc(START_BYTES), START_BYTES};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_ctl(end.epoll, EPOLL_CTL_ADD, socket, &event)) fail("epoll_ctl");
    return end;
}

static void wait_for(struct end *end) {
    struct epoll_event event;
    for (int64_t until = spin_ns ? now() + spin_ns : 0; spin_ns && now() < until;) {
        sched_yield();
        int found = epoll_wait(end->epoll, &event, 1, 0);
        if (found < 0 && errno != EINTR) fail("epoll_wait");
        if (found > 0) return;
    }
    if (epoll_wait(end->epoll, &event, 1, -1) < 0 && errno != EINTR) fail("epoll_wait");
}

/* Bytes of the message, header included. */
static size_t receive(struct end *end) {
    size_t held = 0, whole = HEADER;
    while (held < whole) {
        ssize_t got = recv(end->socket, end->buffer + held, end->room - held, MSG_DONTWAIT);
        if (got == 0) exit(0);
        if (got < 0) {
            if (errno != EAGAIN) fail("recv");
            wait_for(end);
            continue;
        }
        held += got;
        if (held < HEADER) continue;
        uint64_t frame;
        memcpy(&frame, end->buffer + LENGTH_AT, sizeof frame);
        whole = HEADER + frame;
        if (whole > end->room) {
            end->buffer = realloc(end->buffer, whole);
            if (!end->buffer) fail("realloc");
            end->room = whole;
        }
    }
    return whole;
}

static void transmit(struct end *end, const char *message, size_t bytes) {
    for (size_t sent = 0; sent < bytes;) {
        ssize_t put = send(end->socket, message + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put >= 0) {
            sent += put;
        } else {
            if (errno != EAGAIN) fail("send");
            wait_for(end);
        }
    }
}

static void serve(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1)) fail("listen");
    getsockname(listener, (void *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int accepted = accept(listener, NULL, NULL);
    if (accepted < 0) fail("accept");
    struct end end = make_end(accepted);
    for (;;) {
        size_t bytes = receive(&end);
        transmit(&end, end.buffer, bytes);
    }
}

static size_t exchange(struct end *end, char *message, size_t bytes, double for_s, int64_t *took) {
    size_t count = 0;
    int64_t ended = now(), until = ended + (int64_t)(for_s * 1e9);
    while (ended < until && count < SAMPLES) {
        char mark = count % 2;
        message[HEADER] = message[bytes - 1] = mark;
        int64_t started = now();
        transmit(end, message, bytes);
        size_t got = receive(end);
        ended = now();
        took[count++] = ended - started;
        if (got != bytes || end->buffer[HEADER] != mark || end->buffer[got - 1] != mark) {
            fprintf(stderr, "wrong answer of %zu bytes\n", got);
            exit(1);
        }
    }
    return count;
}

static int call(int port, uint64_t frame, double warm_up_s, double seconds) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int dialled = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(dialled, (void *)&address, sizeof address)) fail("connect");
    struct end end = make_end(dialled);
    char *message = calloc(1, HEADER + frame);
    int64_t *took = malloc(SAMPLES * sizeof *took);
    if (!message || !took) fail("malloc");
    memcpy(message + LENGTH_AT, &frame, sizeof frame);
    exchange(&end, message, HEADER + frame, warm_up_s, took);
    int64_t started = now();
    size_t count = exchange(&end, message, HEADER + frame, seconds, took);
    printf("%zu %.9f\n", count, (now() - started) / 1e9);
    for (size_t i = 0; i < count; i++) printf("%lld\n", (long long)took[i]);
    return 0;
}

int main(int count, char **arguments) {
    if (count > 2) spin_ns = atoll(arguments[count - 1]) * 1000;
    if (count == 3 && !strcmp(arguments[1], "serve")) serve();
    if (count == 7 && !strcmp(arguments[1], "call"))
        return call(atoi(arguments[2]), strtoull(arguments[3], NULL, 10), atof(arguments[4]),
                    atof(arguments[5]));
    fprintf(stderr, "usage: serve SPIN_US | call PORT BYTES WARM_UP SECONDS SPIN_US\n");
    return 2;
}
