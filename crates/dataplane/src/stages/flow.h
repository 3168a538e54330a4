// The packets of a flow: those that a filter accepts where they are first seen are followed by the
// addresses of their buffers, whatever becomes of their headers.

#include <bpf/bpf_core_read.h>

// The beginning of a packet that a filter may look at; filter.rs has the same.
#define FILTERED_BYTES 128
// Instructions that filter.rs replaces by the filter, which leaves 0 for what it does not accept.
#define FILTER_INSTRUCTIONS "2048"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_VLAN_OUTER 0x88a8
#define NO_HEADER 0xffff
#define GRO_MERGED_FREE 1
#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000
#define TCP_SEQ 4
#define TCP_WORDS 12
#define TCP_FLAGS 13
#define TCP_FIN 1

struct sk_buff_head {
    __u32 qlen;
} OF_THE_KERNEL;

typedef struct {
    __s64 counter;
} OF_THE_KERNEL atomic64_t;

struct sock_common {
    atomic64_t skc_cookie;
} OF_THE_KERNEL;

struct sock {
    struct sock_common __sk_common;
    struct sk_buff_head sk_receive_queue;
    __u16 sk_protocol;
} OF_THE_KERNEL;

struct tcp_sock {
    __u32 copied_seq, write_seq;
} OF_THE_KERNEL;

struct udp_sock {
    struct sk_buff_head reader_queue;
} OF_THE_KERNEL;

struct tcp_skb_cb {
    __u32 seq, end_seq;
} OF_THE_KERNEL;

#if defined(__TARGET_ARCH_x86)
enum { WRITE = 1, WRITEV = 20, SENDTO = 44, SENDMSG = 46, SENDMMSG = 307 };
struct pt_regs___syscall {
    unsigned long orig_ax;
} OF_THE_KERNEL;
#define SYSCALL_OF orig_ax
#elif defined(__TARGET_ARCH_arm64)
enum { WRITE = 64, WRITEV = 66, SENDTO = 206, SENDMSG = 211, SENDMMSG = 269 };
struct pt_regs___syscall {
    int syscallno;
} OF_THE_KERNEL;
#define SYSCALL_OF syscallno
#else
#error "system calls of this processor are not known"
#endif

// A packet on its way: its number, and where it was last.
struct followed {
    __u64 number;
    __u32 point;
    __u32 ifindex;
    // Since when netfilter has it; 0 if it does not.
    __u64 filters_ns;
};

// Packets by the addresses of their buffers. Each has one of the places of a set that its address chooses;
// where all are taken, the packet that was found first makes room. To find one in a hash table of the
// kernel takes 30 ns longer. A place that is being taken is nobody's.
#define SETS_LOG2 13
#define WAYS 8
#define NOBODY 0
#define TAKEN 1
struct set {
    __u64 buffers[WAYS];
    struct followed packets[WAYS];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1 << SETS_LOG2);
    __type(key, __u32);
    __type(value, struct set);
} sets SEC(".maps");

// The sockets that packets of the flow have come to, by address.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1 << 14);
    __type(key, __u64);
    __type(value, __u32);
} sockets SEC(".maps");

// When each thread began to send.
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, __u64);
} senders SEC(".maps");

// What a CPU has in hand: the number of the packet, 0 if it is none of the flow, and its buffer. While one
// arrives others, which waited to be merged, may be received.
enum { IS_RECEIVED, ARRIVES, HANDS };
struct in_hand {
    __u64 number;
    __u64 buffer;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, HANDS);
    __type(key, __u32);
    __type(value, struct in_hand);
} hands SEC(".maps");

// Whether the filter accepts a packet that begins with these bytes. It finds them in r1, their count in
// r2, and the length of the packet in r3, as the kernel passes arguments.
static __attribute__((noinline)) __u64 accepts(const __u8 *bytes, __u64 count, __u64 length)
{
    __u64 accepted;

    asm volatile(".rept " FILTER_INSTRUCTIONS "\n r0 = 0x7a115c09\n .endr"
                 : "=r"(accepted)
                 : "r"(bytes), "r"(count), "r"(length)
                 : "r4", "r5");
    return accepted;
}

// A part of a stream: which stream, and the number behind its last byte; 0 and 0 are none, 1 and 0 a
// packet of TCP without bytes.
struct segment {
    __u32 stream, end_seq;
};

// Finds what a packet has of a stream, by its headers. They say how long it is: a driver pads short ones,
// and of very long ones they say 0.
static __always_inline void
find_segment(const __u8 *bytes, long length, struct segment *segment)
{
    __u32 at = 40, from = 8, words = 8, word, stream = 0, said;
    __be32 seq;

    if (bytes[0] >> 4 == IPV4) {
        if (bytes[9] != TCP)
            return;
        at = (bytes[0] & 0xf) * 4;
        from = 12;
        words = 2;
        said = bytes[2] << 8 | bytes[3];
    } else if (bytes[6] == TCP) {
        said = bytes[4] << 8 | bytes[5];
        if (said)
            said += at;
    } else {
        return;
    }
    if (said && said < length)
        length = said;
    for (int i = 0; i < 8 && i < words; i++) {
        __builtin_memcpy(&word, bytes + from + i * 4, sizeof(word));
        stream = stream * 31 + word;
    }
    __builtin_memcpy(&word, bytes + at, sizeof(word));
    __builtin_memcpy(&seq, bytes + at + TCP_SEQ, sizeof(seq));
    length -= at + (bytes[at + TCP_WORDS] >> 4) * 4;
    segment->stream = 1;
    if (length <= 0)
        return;
    segment->stream = stream * 31 + word;
    segment->end_seq = bpf_ntohl(seq) + length;
}

static __always_inline int
is_of_flow(struct sk_buff *skb, enum point point, struct segment *segment)
{
    unsigned char *at = skb->data, *end = at + (skb->len - skb->data_len);
    __u16 protocol = bpf_ntohs(skb->protocol);
    __u8 bytes[FILTERED_BYTES] = {};
    long count, length;

    // What has arrived begins with its network header, which nobody has noted yet.
    if (point != ARRIVED && point != RECEIVED) {
        if (!skb->network_header)
            return 0;
        at = skb->head + skb->network_header;
    } else if (protocol == ETHERTYPE_VLAN || protocol == ETHERTYPE_VLAN_OUTER) {
        __be16 inner;
        if (bpf_probe_read_kernel(&inner, sizeof(inner), at + 2))
            return 0;
        protocol = bpf_ntohs(inner);
        at += VLAN_TAG;
    }
    if (protocol != ETHERTYPE_IPV4 && protocol != ETHERTYPE_IPV6)
        return 0;
    count = end - at;
    length = count + skb->data_len;
    if (count > FILTERED_BYTES)
        count = FILTERED_BYTES;
    if (count <= 0 || bpf_probe_read_kernel(bytes, count, at))
        return 0;
    if (!accepts(bytes, count, length))
        return 0;
    if (segment)
        find_segment(bytes, length, segment);
    return 1;
}

// The address of a buffer as a number: the kernel lets programs compute with the distance of two alone.
static __always_inline __u64 buffer_of(const struct sk_buff *skb)
{
    return (__u64)skb - (__u64)&counts;
}

static __always_inline struct set *set_of(__u64 buffer)
{
    __u32 which = buffer * 0x9e3779b97f4a7c15ULL >> (64 - SETS_LOG2);

    return bpf_map_lookup_elem(&sets, &which);
}

// The place of a packet in its set; WAYS if it has none.
static __always_inline __u32 place_in(const struct set *set, __u64 buffer)
{
    __u32 place = WAYS;

    for (int way = 0; way < WAYS; way++)
        if (set->buffers[way] == buffer)
            place = way;
    return place;
}

static __always_inline struct followed *known_by(__u64 buffer)
{
    struct set *set = set_of(buffer);
    __u32 place = set ? place_in(set, buffer) : WAYS;

    return set && place < WAYS ? &set->packets[place] : 0;
}

static __always_inline void forget(__u64 buffer)
{
    struct set *set = set_of(buffer);
    __u32 place = set ? place_in(set, buffer) : WAYS;

    if (set && place < WAYS)
        set->buffers[place] = NOBODY;
}

static __always_inline void know(__u64 buffer, const struct followed *opened)
{
    struct set *set = set_of(buffer);
    __u64 first = ~0ULL, taken;
    __u32 place = 0;

    if (!set)
        return;
    for (int way = 0; way < WAYS; way++) {
        __u64 number = set->buffers[way] == NOBODY ? 0 : set->packets[way].number;
        if (number < first) {
            first = number;
            place = way;
        }
    }
    taken = set->buffers[place & (WAYS - 1)];
    // Another CPU may take the same place: one of them is not followed on.
    if (taken == TAKEN ||
        !__sync_bool_compare_and_swap(&set->buffers[place & (WAYS - 1)], taken, TAKEN))
        return;
    set->packets[place & (WAYS - 1)] = *opened;
    *(volatile __u64 *)&set->buffers[place & (WAYS - 1)] = buffer;
}

static __always_inline struct in_hand *hand(__u32 which)
{
    return bpf_map_lookup_elem(&hands, &which);
}

// Whether a packet that is known by its buffer goes on here; else the buffer has another one by now: the
// end of some packets is not told, as of those that TCP joins to others.
static __always_inline int
goes_on(struct followed *known, struct sk_buff *skb, enum point point, __u32 ifindex)
{
    int is_end = point == DROPPED || point == CONSUMED;
    struct in_hand *here;

    if (is_end && (known->point == QUEUED || known->point == STARTED))
        return 1;
    here = is_end ? hand(IS_RECEIVED) : 0;
    if (here && here->number == known->number)
        return 1;
    if (point == CONSUMED && (known->point == ARRIVED || known->point == RECEIVED))
        return 0;
    if (is_end)
        return is_of_flow(skb, DROPPED, 0);
    // A driver's new packet has no header of transport yet; what this machine sends has come by no link.
    if (known->point == ARRIVED || known->point == RECEIVED) {
        if (point == ARRIVED)
            return skb->transport_header != NO_HEADER;
        return point == RECEIVED || (point == QUEUED && skb->skb_iif);
    }
    // What one link sends again on its own was put into its queue anew: it is another packet. A tunnel
    // hands a packet on to another link.
    if (known->point == STARTED && point == QUEUED)
        return known->ifindex != ifindex;
    return point == STARTED && (known->point == QUEUED || known->point == STARTED);
}

static __always_inline int is_of_socket(struct sock *sk)
{
    __u64 socket = (__u64)sk;

    return bpf_map_lookup_elem(&sockets, &socket) != 0;
}

static __always_inline void remember(struct sock *sk)
{
    __u64 socket = (__u64)sk;
    __u32 yes = 1;

    if (!is_of_socket(sk))
        bpf_map_update_elem(&sockets, &socket, &yes, BPF_ANY);
}

static __always_inline int is_sending(long number)
{
    return number == SENDTO || number == SENDMSG || number == SENDMMSG || number == WRITE ||
           number == WRITEV;
}

// A thread begins to send, or to write whatever it is.
static __always_inline void writes(void)
{
    __u64 *since_ns = bpf_task_storage_get(&senders, bpf_get_current_task_btf(), 0,
                                           BPF_LOCAL_STORAGE_GET_F_CREATE);

    if (since_ns)
        *since_ns = bpf_ktime_get_ns();
}

// Bytes are written to a stream: those from here on.
static __always_inline void writes_tcp(struct sock *sk)
{
    __u32 write_seq;

    if (!is_of_socket(sk))
        return;
    bpf_core_read(&write_seq, sizeof(write_seq), &((struct tcp_sock *)sk)->write_seq);
    tell(0, WRITES_TCP, bpf_get_socket_cookie(sk), write_seq);
}

// Since when a program sends a packet by UDP, if its system call goes on; else 0. A packet that has waited
// for an address may leave in the turn of another thread.
static __always_inline __u64 sent_since_ns(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 *since_ns = bpf_task_storage_get(&senders, task, 0, 0);
    struct pt_regs___syscall *regs;
    long system_call = -1;

    if (!since_ns)
        return 0;
    regs = (void *)bpf_task_pt_regs(task);
    bpf_core_read(&system_call, sizeof(regs->SYSCALL_OF), &regs->SYSCALL_OF);
    return is_sending(system_call) ? *since_ns : 0;
}

// A packet that was sent by TCP: its way begins where its first byte was written, unless it has none.
static __always_inline void written_tcp(struct sk_buff *skb, struct sock *sk, __u64 number)
{
    unsigned char *tcp = skb->head + skb->transport_header;
    long payload;
    __be32 seq;
    __u8 words;

    remember(sk);
    if (bpf_probe_read_kernel(&seq, sizeof(seq), tcp + TCP_SEQ) ||
        bpf_probe_read_kernel(&words, sizeof(words), tcp + TCP_WORDS))
        return;
    payload = skb->data + skb->len - (tcp + (words >> 4) * 4);
    // A socket has its number once bytes were written to it that are told.
    if (payload > 0 && sk->__sk_common.skc_cookie.counter)
        tell(number, WRITTEN_TCP, sk->__sk_common.skc_cookie.counter, bpf_ntohl(seq));
}

// A packet is queued that this machine sends.
static __always_inline void sends(struct sk_buff *skb, __u64 number, __u32 ifindex)
{
    struct sock *sk = skb->sk;
    __u64 since_ns = sk && sk->sk_protocol == UDP ? sent_since_ns() : 0;
    struct event *told;

    if (!since_ns) {
        tell(number, QUEUED, ifindex, 0);
    } else if ((told = room_for(2))) {
        fill(told, bpf_ktime_get_ns(), number, QUEUED, ifindex, 0);
        fill(told + 1, since_ns, number, WRITTEN, 0, 0);
        submit(told);
    }
    if (sk && sk->sk_protocol == TCP)
        written_tcp(skb, sk, number);
}

// A packet arrives that another link has handed on, as one with a number, or that is new here.
static __always_inline void
arrives(__u64 handed_on, __u64 number, __u32 ifindex, struct segment *segment)
{
    __u64 now_ns = bpf_ktime_get_ns();
    struct event *told = 0;

    // TCP may join packets before it tells of them: bytes tell what became of these.
    if (!handed_on) {
        tell_at(now_ns, number, ARRIVED, segment->stream, segment->end_seq);
    } else if ((told = room_for(2))) {
        fill(told, now_ns, handed_on, HANDED_ON, ifindex, 0);
        fill(told + 1, now_ns, number, ARRIVED, segment->stream, segment->end_seq);
        submit(told);
    }
}

// Begins to follow a packet if it is of the flow; returns its number, or 0. Its buffer may be known for
// another one, which may have been handed on here.
static __always_inline __u64
begin(struct sk_buff *skb, enum point point, __u32 ifindex, __u32 reason, struct followed *known)
{
    __u64 handed_on = known && known->point == STARTED && point == ARRIVED ? known->number : 0;
    struct followed opened = {0, point, ifindex, 0};
    struct segment segment = {};
    __u64 buffer = buffer_of(skb);

    if (!is_of_flow(skb, point, &segment)) {
        if (handed_on)
            tell(handed_on, HANDED_ON, ifindex, 0);
        return 0;
    }
    opened.number = __sync_fetch_and_add(&counts.packets, 1) + 1;
    if (known && point != DROPPED)
        *known = opened;
    else if (point != DROPPED)
        know(buffer, &opened);
    if (point == ARRIVED)
        arrives(handed_on, opened.number, ifindex, &segment);
    else if (point == QUEUED && !skb->skb_iif)
        sends(skb, opened.number, ifindex);
    // What was forwarded has come by another link, which was missed.
    else
        tell(opened.number, point, ifindex, point == QUEUED ? 1 : reason);
    return opened.number;
}

static __always_inline void follow(struct sk_buff *skb, enum point point, __u32 reason)
{
    int is_end = point == DROPPED || point == CONSUMED;
    __u32 ifindex = is_end ? 0 : skb->dev->ifindex;
    __u64 buffer = buffer_of(skb), number = 0;
    struct followed *known = known_by(buffer);

    if (known && known->point == MERGED && is_end) {
        // Its buffer is given back with the packet that it is a part of: that is no drop.
    } else if (known && goes_on(known, skb, point, ifindex)) {
        number = known->number;
        known->point = point;
        known->ifindex = ifindex;
        tell(number, point, ifindex, reason);
    } else if (point != CONSUMED) {
        number = begin(skb, point, ifindex, reason, known);
    }
    if (known && (is_end || !number))
        forget(buffer);
    if (point == ARRIVED || point == RECEIVED) {
        struct in_hand *here = hand(point == ARRIVED ? ARRIVES : IS_RECEIVED);
        if (here) {
            here->number = number;
            here->buffer = buffer;
        }
    }
}

// The packet that has just arrived became a part of another one.
static __always_inline void merged(int result)
{
    struct in_hand *here = hand(ARRIVES);
    struct followed *known;

    if (result > GRO_MERGED_FREE || !here || !here->number)
        return;
    known = known_by(here->buffer);
    if (known)
        known->point = MERGED;
    tell(here->number, MERGED, 0, 0);
}

// Netfilter begins with a packet of the flow: a hook that has rules or other programs.
static __always_inline void filters(__u64 buffer)
{
    struct followed *known = known_by(buffer);

    if (known)
        known->filters_ns = bpf_ktime_get_ns();
}

// It has ended with it. What it dropped is none by now: only the address is looked at.
static __always_inline void filtered(__u64 buffer)
{
    struct followed *known = known_by(buffer);
    __u64 now_ns, took_ns;

    if (!known || !known->filters_ns)
        return;
    now_ns = bpf_ktime_get_ns();
    took_ns = now_ns - known->filters_ns;
    known->filters_ns = 0;
    tell_at(now_ns, known->number, FILTERED, 0, took_ns > ~0U ? ~0U : took_ns);
}

static __always_inline void at_tcp(struct sock *sk, struct sk_buff *skb)
{
    __u64 buffer = buffer_of(skb);
    struct followed *known = known_by(buffer);
    __u32 seq, end_seq;
    __u8 flags = 0;

    if (!known || known->point == AT_TCP)
        return;
    bpf_probe_read_kernel(&flags, sizeof(flags), skb->data + TCP_FLAGS);
    bpf_core_read(&seq, sizeof(seq), &((struct tcp_skb_cb *)skb->cb)->seq);
    bpf_core_read(&end_seq, sizeof(end_seq), &((struct tcp_skb_cb *)skb->cb)->end_seq);
    known->point = AT_TCP;
    // The end of a stream is a number of its own, which nobody reads.
    end_seq -= flags & TCP_FIN;
    if (seq == end_seq) {
        tell(known->number, CONSUMED, 0, 0);
        return;
    }
    remember(sk);
    tell(known->number, AT_TCP, bpf_get_socket_cookie(sk), end_seq);
}

static __always_inline void read_tcp(struct sock *sk)
{
    __u32 copied_seq;

    if (!is_of_socket(sk))
        return;
    bpf_core_read(&copied_seq, sizeof(copied_seq), &((struct tcp_sock *)sk)->copied_seq);
    tell(0, READ_TCP, bpf_get_socket_cookie(sk), copied_seq);
}

// How many packets wait in a socket of UDP.
static __always_inline __u32 waiting(struct sock *sk)
{
    __u32 qlen;

    bpf_core_read(&qlen, sizeof(qlen), &((struct udp_sock *)sk)->reader_queue.qlen);
    return qlen + sk->sk_receive_queue.qlen;
}

// The packet in hand was put into the queue of a socket. Of sockets of the flow others count, too: they
// are read in order.
static __always_inline void at_udp(struct sock *sk)
{
    struct in_hand *here = hand(IS_RECEIVED);
    struct followed *known;

    if (sk->sk_protocol != UDP || !here)
        return;
    if (here->number) {
        known = known_by(here->buffer);
        if (known && known->number == here->number)
            known->point = AT_UDP;
        remember(sk);
    } else if (!is_of_socket(sk)) {
        return;
    }
    tell(here->number, AT_UDP, bpf_get_socket_cookie(sk), waiting(sk));
    here->number = 0;
}

static __always_inline void read_udp(struct sock *sk, int flags)
{
    if (sk->sk_protocol != UDP || flags & (MSG_PEEK | MSG_ERRQUEUE) || !is_of_socket(sk))
        return;
    tell(0, READ_UDP, bpf_get_socket_cookie(sk), waiting(sk));
}
