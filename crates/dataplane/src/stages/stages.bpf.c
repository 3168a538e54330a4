// Where the kernel is with each packet: an event for every point that it passes on its way.
//
// Either the programs look for the payload of a probe (crates/probe, payload.rs) in what passes the links
// of a device, and note which probe it is, where and when. Or they follow each packet that a filter
// accepts (flow.h), by the address of its buffer. Most are attached to tracepoints, which some kernels
// leave out while certain processes have the CPU; those of links run with every packet.

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

// What is read of the kernel's structures; where it is in them, the kernel's own types say.
#define OF_THE_KERNEL __attribute__((preserve_access_index))

struct ns_common {
    unsigned int inum;
} OF_THE_KERNEL;

struct net {
    struct ns_common ns;
} OF_THE_KERNEL;

typedef struct {
    struct net *net;
} OF_THE_KERNEL possible_net_t;

struct Qdisc {
    void *enqueue;
} OF_THE_KERNEL;

struct netdev_queue {
    struct Qdisc *qdisc;
} OF_THE_KERNEL;

struct net_device {
    int ifindex;
    possible_net_t nd_net;
    struct netdev_queue *_tx;
} OF_THE_KERNEL;

struct sock;

struct sk_buff {
    struct net_device *dev;
    struct sock *sk;
    char cb[48];
    unsigned int len, data_len;
    int skb_iif;
    __be16 protocol;
    __u16 transport_header, network_header;
    unsigned char *head, *data;
} OF_THE_KERNEL;

enum skb_drop_reason { SKB_NOT_DROPPED_YET };

// Kernels before 6.12 lack the first one in tracepoints: these can follow flows, but not probes.
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *found) __ksym
    __attribute__((weak));
extern void *bpf_cast_to_kern_ctx(void *context) __ksym __attribute__((weak));

// As `Event` of tracer.rs has it.
struct event {
    __u64 time_ns, seq;
    __u32 point, ifindex, cpu, reason;
};

// The points from HANDED_ON on are those of flows alone.
enum point {
    ARRIVED, RECEIVED, QUEUED, STARTED, DROPPED,
    HANDED_ON, MERGED, CONSUMED, AT_TCP, READ_TCP, AT_UDP, READ_UDP, WRITTEN, WRITES_TCP, WRITTEN_TCP,
    FILTERED,
};

// As `Config` of tracer.rs has it: the namespace, which part of the probes is looked at, and whether
// packets of a flow are followed instead.
const volatile struct {
    __u32 namespace;
    __u32 every;
    __u32 follows;
} config = {0, 1, 0};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 8 << 20);
} events SEC(".maps");

// Events for which there was no room, and packets that are followed so far.
struct {
    __u64 lost;
    __u64 packets;
} counts;

// What following a flow costs each CPU: all calls, and the time of some of them. The kernel could take
// the time of each; that alone would take as long as a part of a call. If it were every 64th, it could
// always be the same one of a packet's calls: multiples of the golden ratio choose all alike.
#define TIMED_EACH 64
#define IS_TIMED(call) ((__u32)(call) * 0x9e3779b1U < ~0U / TIMED_EACH)
struct cost {
    __u64 calls, timed, ns_timed;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct cost);
} costs SEC(".maps");

// Does the work of a call, which it counts. To take the time takes as long as two readings lie apart.
#define COUNTED(work)                                                                                 \
    ({                                                                                                \
        __u32 only = 0;                                                                               \
        struct cost *cost = bpf_map_lookup_elem(&costs, &only);                                       \
        __u64 before_ns = cost && IS_TIMED(cost->calls++) ? bpf_ktime_get_ns() : 0;                   \
        __u64 since_ns = before_ns ? bpf_ktime_get_ns() : 0;                                          \
        work;                                                                                         \
        if (cost && since_ns) {                                                                       \
            cost->ns_timed += bpf_ktime_get_ns() - since_ns - (since_ns - before_ns);                 \
            cost->timed++;                                                                            \
        }                                                                                             \
        0;                                                                                            \
    })

#define IPV4 4
#define IPV6 6
#define ICMP 1
#define TCP 6
#define UDP 17
#define ICMPV6 58
#define ETHERNET 14
// TCX_NEXT of newer headers: others on the link decide about the packet.
#define GO_ON -1
#define VLAN_TAG 4
#define MAGIC 0xf57473a1
#define WARM_UP (1ULL << 63)
#define BACK (1ULL << 62)

struct payload {
    __be32 magic;
    __be64 seq;
} __attribute__((packed));

// Reads the number of a probe whose network header is at an offset; 0 where it is one.
static __always_inline int number_at(const struct bpf_dynptr *packet, __u32 at, __u64 *seq)
{
    struct payload payload;
    __u8 ip[20], protocol;

    if (bpf_dynptr_read(ip, sizeof(ip), packet, at, 0))
        return -1;
    if (ip[0] >> 4 == IPV4) {
        if ((ip[6] & 0x1f) | ip[7])
            return -1;
        at += (ip[0] & 0xf) * 4;
        protocol = ip[9];
    } else if (ip[0] >> 4 == IPV6) {
        at += 40;
        protocol = ip[6];
    } else {
        return -1;
    }
    if (protocol == TCP) {
        __u8 words;
        if (bpf_dynptr_read(&words, sizeof(words), packet, at + 12, 0))
            return -1;
        at += (words >> 4) * 4;
    } else if (protocol == UDP || protocol == ICMP || protocol == ICMPV6) {
        at += 8;
    } else {
        return -1;
    }
    if (bpf_dynptr_read(&payload, sizeof(payload), packet, at, 0))
        return -1;
    if (payload.magic != bpf_htonl(MAGIC))
        return -1;
    *seq = bpf_be64_to_cpu(payload.seq);
    return 0;
}

// Room in the ring for events that are told together; 0 if there is none.
static __always_inline struct event *room_for(__u32 count)
{
    struct event *room = bpf_ringbuf_reserve(&events, count * sizeof(*room), 0);

    if (!room)
        __sync_fetch_and_add(&counts.lost, count);
    return room;
}

static __always_inline void
fill(struct event *event, __u64 time_ns, __u64 seq, enum point point, __u32 ifindex, __u32 reason)
{
    event->time_ns = time_ns;
    event->seq = seq;
    event->point = point;
    event->ifindex = ifindex;
    event->cpu = bpf_get_smp_processor_id();
    event->reason = reason;
}

// Whoever reads looks now and then: a wake-up would be part of the packet's latency.
static __always_inline void submit(struct event *events)
{
    bpf_ringbuf_submit(events, BPF_RB_NO_WAKEUP);
}

static __always_inline void
tell_at(__u64 time_ns, __u64 seq, enum point point, __u32 ifindex, __u32 reason)
{
    struct event *event = room_for(1);

    if (!event)
        return;
    fill(event, time_ns, seq, point, ifindex, reason);
    submit(event);
}

static __always_inline void tell(__u64 seq, enum point point, __u32 ifindex, __u32 reason)
{
    tell_at(bpf_ktime_get_ns(), seq, point, ifindex, reason);
}

#include "flow.h"

// Notes that a packet has passed a point if it is a probe, whose network header is at an offset.
static __always_inline void
note_probe(struct __sk_buff *skb, long at, enum point point, __u32 ifindex, __u32 reason)
{
    struct bpf_dynptr packet;
    __u64 seq;

    if (bpf_dynptr_from_skb(skb, 0, &packet))
        return;
    if (number_at(&packet, at, &seq) && number_at(&packet, at + VLAN_TAG, &seq))
        return;
    if (seq & WARM_UP || (point != DROPPED && (seq & ~BACK) % config.every))
        return;
    tell(seq, point, ifindex, reason);
}

static __always_inline int note(struct sk_buff *skb, enum point point, __u32 reason)
{
    struct net_device *dev = skb->dev;
    long at = 0;

    if (config.follows)
        return COUNTED(follow(skb, point, reason));
    if (dev->nd_net.net->ns.inum != config.namespace)
        return 0;
    // What has arrived begins with its network header, which nobody has noted yet.
    if (point != ARRIVED)
        at = skb->head + skb->network_header - skb->data;
    if (at >= 0 && at <= 256)
        note_probe((struct __sk_buff *)skb, at, point, dev->ifindex, reason);
    return 0;
}

// Programs whose names begin with `probe_` are attached to the links of a device.

SEC("tcx/ingress")
int probe_received(struct __sk_buff *skb)
{
    note_probe(skb, ETHERNET, RECEIVED, skb->ifindex, 0);
    return GO_ON;
}

SEC("tcx/egress")
int probe_queued(struct __sk_buff *skb)
{
    struct sk_buff *kernels = bpf_cast_to_kern_ctx(skb);

    // A link without a queue starts a packet at once.
    note_probe(skb, ETHERNET, QUEUED, skb->ifindex, !kernels->dev->_tx->qdisc->enqueue);
    return GO_ON;
}

SEC("tp_btf/netif_rx")
int BPF_PROG(by_backlog, struct sk_buff *skb) { return note(skb, ARRIVED, 0); }

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(by_napi, struct sk_buff *skb) { return note(skb, ARRIVED, 0); }

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(started, struct sk_buff *skb) { return note(skb, STARTED, 0); }

SEC("tp_btf/kfree_skb")
int BPF_PROG(dropped, struct sk_buff *skb, void *location, enum skb_drop_reason reason)
{
    return note(skb, DROPPED, reason);
}

// Programs whose names begin with `flow_` are loaded where a flow is followed, if the kernel has their
// tracepoints or functions.

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(flow_received, struct sk_buff *skb) { return note(skb, RECEIVED, 0); }

SEC("tp_btf/net_dev_queue")
int BPF_PROG(flow_queued, struct sk_buff *skb) { return note(skb, QUEUED, 0); }

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(flow_by_driver, struct sk_buff *skb) { return note(skb, ARRIVED, 0); }

SEC("tp_btf/netif_receive_skb_list_entry")
int BPF_PROG(flow_by_list, struct sk_buff *skb) { return note(skb, ARRIVED, 0); }

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(flow_by_frags, struct sk_buff *skb) { return note(skb, ARRIVED, 0); }

SEC("tp_btf/napi_gro_receive_exit")
int BPF_PROG(flow_merged, int result) { return COUNTED(merged(result)); }

SEC("tp_btf/consume_skb")
int BPF_PROG(flow_consumed, struct sk_buff *skb) { return note(skb, CONSUMED, 0); }

SEC("fentry/nf_hook_slow")
int BPF_PROG(flow_filters, struct sk_buff *skb) { return COUNTED(filters(buffer_of(skb))); }

SEC("fexit/nf_hook_slow")
int BPF_PROG(flow_filtered, struct sk_buff *skb) { return COUNTED(filtered(buffer_of(skb))); }

SEC("tp_btf/tcp_probe")
int BPF_PROG(flow_at_tcp, struct sock *sk, struct sk_buff *skb) { return COUNTED(at_tcp(sk, skb)); }

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(flow_read_tcp, struct sock *sk) { return COUNTED(read_tcp(sk)); }

SEC("tp_btf/sk_data_ready")
int BPF_PROG(flow_at_udp, struct sock *sk) { return COUNTED(at_udp(sk)); }

SEC("tp_btf/sock_recv_length")
int BPF_PROG(flow_read_udp, struct sock *sk, int result, int flags)
{
    return result >= 0 ? COUNTED(read_udp(sk, flags)) : 0;
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(flow_writes_tcp, struct sock *sk) { return COUNTED(writes_tcp(sk)); }

SEC("tp_btf/sys_enter")
int BPF_PROG(flow_writes, struct pt_regs *regs, long number)
{
    return is_sending(number) ? COUNTED(writes()) : 0;
}

char LICENSE[] SEC("license") = "GPL";
