/* DPDK's inline functions, and what differs between its versions, as functions that can be linked. */
#ifndef TAILSCOPE_SHIM_H
#define TAILSCOPE_SHIM_H

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_version.h>

uint16_t ts_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint16_t count);
uint16_t ts_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **packets, uint16_t count);

int ts_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **packets, unsigned int count);
void ts_free_bulk(struct rte_mbuf **packets, unsigned int count);

extern const uint64_t TS_RX_OFFLOAD_TIMESTAMP;

/* 1 up, 0 down, negative: an error. */
int ts_link_up(uint16_t port);

uint16_t ts_room(const struct rte_mbuf *packet);

uint64_t ts_tsc(void);
uint64_t ts_tsc_hz(void);
int ts_errno(void);
unsigned int ts_lcore_id(void);

uint64_t ts_rx_timestamp_flag(int *offset);

int ts_lpm_lookup(const struct rte_lpm *lpm, uint32_t address, uint32_t *next_hop);

#endif
