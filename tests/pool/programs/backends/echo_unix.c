/* Listens on the Unix socket that it is told, and sends back what comes, one connection at a time. */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char **arguments) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char bytes[4096];
    if (count < 2) return 2;
    strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8)) return 1;
    for (;;) {
        int peer = accept(listener, 0, 0);
        for (ssize_t got; (got = read(peer, bytes, sizeof bytes)) > 0;)
            if (write(peer, bytes, got) != got) break;
        close(peer);
    }
}
