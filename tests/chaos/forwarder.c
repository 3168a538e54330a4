/* Forwards frames from one link to another, with some work for each: forwarder IN OUT WORK_US */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

static int opened(const char *link)
{
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = (int)if_nametoindex(link),
    };
    int socket_fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    if (socket_fd < 0 || bind(socket_fd, (struct sockaddr *)&at, sizeof at) < 0) {
        perror(link);
        exit(1);
    }
    return socket_fd;
}

/* Work is time on the CPU: whoever takes that away does not shorten it. */
static long ran_ns(void)
{
    struct timespec ran;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return ran.tv_sec * 1000000000L + ran.tv_nsec;
}

int main(int count, char **words)
{
    if (count != 4) {
        fprintf(stderr, "expected IN OUT WORK_US\n");
        return 1;
    }
    int in = opened(words[1]), out = opened(words[2]);
    long work_ns = 1000 * atol(words[3]);
    static char frame[2048];
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct sockaddr_ll from;
        socklen_t length = sizeof from;
        ssize_t bytes = recvfrom(in, frame, sizeof frame, 0, (struct sockaddr *)&from, &length);
        if (bytes <= 0 || from.sll_pkttype == PACKET_OUTGOING)
            continue;
        for (long until_ns = ran_ns() + work_ns; ran_ns() < until_ns;)
            ;
        send(out, frame, (size_t)bytes, 0);
    }
}
