#include "shim.h"

#include <assert.h>
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

int ts_lpm_lookup(const struct rte_lpm *lpm, uint32_t address, uint32_t *next_hop)
{
	return rte_lpm_lookup(lpm, address, next_hop);
}
