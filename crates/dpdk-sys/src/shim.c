#include "shim.h"

#include <assert.h>
#include <stdalign.h>
#include <rte_cycles.h>
#include <stddef.h>

/* struct MbufHead of lib.rs */
static_assert(offsetof(struct rte_mbuf, buf_addr) == 0, "mbuf.buf_addr");
static_assert(offsetof(struct rte_mbuf, data_off) == 16, "mbuf.data_off");
static_assert(offsetof(struct rte_mbuf, nb_segs) == 20, "mbuf.nb_segs");
static_assert(offsetof(struct rte_mbuf, ol_flags) == 24, "mbuf.ol_flags");
static_assert(offsetof(struct rte_mbuf, pkt_len) == 36, "mbuf.pkt_len");
static_assert(offsetof(struct rte_mbuf, data_len) == 40, "mbuf.data_len");

uint16_t ts_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, packets, count);
}

uint16_t ts_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, packets, count);
}

int ts_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **packets, unsigned int count)
{
	return rte_pktmbuf_alloc_bulk(pool, packets, count);
}

void ts_free_bulk(struct rte_mbuf **packets, unsigned int count)
{
	rte_pktmbuf_free_bulk(packets, count);
}

const uint64_t TS_RX_OFFLOAD_TIMESTAMP = RTE_ETH_RX_OFFLOAD_TIMESTAMP;

int ts_link_up(uint16_t port)
{
	struct rte_eth_link link = { 0 };
	int code = rte_eth_link_get_nowait(port, &link);

	return code < 0 ? code : link.link_status == RTE_ETH_LINK_UP;
}

/* The bytes that a packet may have from where its data starts. */
uint16_t ts_room(const struct rte_mbuf *packet)
{
	return packet->buf_len - packet->data_off;
}

uint64_t ts_tsc(void)
{
	return rte_rdtsc();
}

uint64_t ts_tsc_hz(void)
{
	return rte_get_tsc_hz();
}

int ts_errno(void)
{
	return rte_errno;
}

unsigned int ts_lcore_id(void)
{
	return rte_lcore_id();
}

/* Registers the field that drivers write arrival times to; 0 when that cannot be. */
uint64_t ts_rx_timestamp_flag(int *offset)
{
	uint64_t flag = 0;

	if (rte_mbuf_dyn_rx_timestamp_register(offset, &flag) != 0)
		return 0;
	return flag;
}

/* Registers a number that this program may note in packets; its offset, or a negative number. */
int ts_mark_offset(void)
{
	static const struct rte_mbuf_dynfield mark = {
		.name = "tailscope_mark",
		.size = sizeof(uint32_t),
		.align = alignof(uint32_t),
	};

	return rte_mbuf_dynfield_register(&mark);
}

/* The most addresses that are looked up at once: a burst. */
#define AT_ONCE 512
/* Second-level tables: IPv4 prefixes over 24 bits, and every 8 bits of an IPv6 prefix over 24. */
#define TBL8S_4 1024
#define TBL8S_6 (1 << 14)

/* IPv6 addresses have had a type of their own since 24.11. */
#if RTE_VERSION >= RTE_VERSION_NUM(24, 11, 0, 0)
typedef const struct rte_ipv6_addr *address6;
typedef const struct rte_ipv6_addr *addresses6;
#else
typedef uint8_t *address6;
typedef uint8_t (*addresses6)[16];
#endif

void *ts_lpm4_create(const char *name, uint32_t routes, int socket)
{
	struct rte_lpm_config config = { .max_rules = routes, .number_tbl8s = TBL8S_4 };

	return rte_lpm_create(name, socket, &config);
}

int ts_lpm4_add(void *table, uint32_t address, uint8_t bits, uint32_t hop)
{
	return rte_lpm_add(table, address, bits, hop);
}

void ts_lpm4_find(void *table, const uint32_t *addresses, uint32_t *hops, unsigned int count)
{
	unsigned int i;

	rte_lpm_lookup_bulk((struct rte_lpm *)table, addresses, hops, count);
	for (i = 0; i < count; i++)
		hops[i] = hops[i] & RTE_LPM_LOOKUP_SUCCESS ? hops[i] & 0xffffff : TS_NO_HOP;
}

void ts_lpm4_free(void *table)
{
	rte_lpm_free(table);
}

void *ts_fib4_create(const char *name, uint32_t routes, int socket)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = TS_NO_HOP,
		.max_routes = (int)routes,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_4B, .num_tbl8 = TBL8S_4 },
	};

	return rte_fib_create(name, socket, &config);
}

int ts_fib4_add(void *table, uint32_t address, uint8_t bits, uint32_t hop)
{
	return rte_fib_add(table, address, bits, hop);
}

void ts_fib4_find(void *table, const uint32_t *addresses, uint32_t *hops, unsigned int count)
{
	uint64_t found[AT_ONCE];
	unsigned int i;

	rte_fib_lookup_bulk(table, (uint32_t *)addresses, found, (int)count);
	for (i = 0; i < count; i++)
		hops[i] = (uint32_t)found[i];
}

void ts_fib4_free(void *table)
{
	rte_fib_free(table);
}

void *ts_lpm6_create(const char *name, uint32_t routes, int socket)
{
	struct rte_lpm6_config config = { .max_rules = routes, .number_tbl8s = TBL8S_6 };

	return rte_lpm6_create(name, socket, &config);
}

int ts_lpm6_add(void *table, const uint8_t *address, uint8_t bits, uint32_t hop)
{
	return rte_lpm6_add(table, (address6)address, bits, hop);
}

void ts_lpm6_find(void *table, const uint8_t *addresses, uint32_t *hops, unsigned int count)
{
	int32_t found[AT_ONCE];
	unsigned int i;

	rte_lpm6_lookup_bulk_func(table, (addresses6)addresses, found, count);
	for (i = 0; i < count; i++)
		hops[i] = found[i] < 0 ? TS_NO_HOP : (uint32_t)found[i];
}

void ts_lpm6_free(void *table)
{
	rte_lpm6_free(table);
}

void *ts_fib6_create(const char *name, uint32_t routes, int socket)
{
	struct rte_fib6_conf config = {
		.type = RTE_FIB6_TRIE,
		.default_nh = TS_NO_HOP,
		.max_routes = (int)routes,
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = TBL8S_6 },
	};

	return rte_fib6_create(name, socket, &config);
}

int ts_fib6_add(void *table, const uint8_t *address, uint8_t bits, uint32_t hop)
{
	return rte_fib6_add(table, (address6)address, bits, hop);
}

void ts_fib6_find(void *table, const uint8_t *addresses, uint32_t *hops, unsigned int count)
{
	uint64_t found[AT_ONCE];
	unsigned int i;

	rte_fib6_lookup_bulk(table, (addresses6)addresses, found, (int)count);
	for (i = 0; i < count; i++)
		hops[i] = (uint32_t)found[i];
}

void ts_fib6_free(void *table)
{
	rte_fib6_free(table);
}
