/* DPDK's inline functions, and what differs between its versions, as functions that can be linked. */
#ifndef TAILSCOPE_SHIM_H
#define TAILSCOPE_SHIM_H

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_interrupts.h>
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
int ts_mark_offset(void);

/*
 * Longest-prefix match: four kinds of table with the same four functions. Addresses are in host order
 * (IPv4) or network order (IPv6), prefixes 1 to 32 or 128 bits long, hops below TS_NO_HOP.
 */
#define TS_NO_HOP 0x7fffff

void *ts_lpm4_create(const char *name, uint32_t routes, int socket);
int ts_lpm4_add(void *table, uint32_t address, uint8_t bits, uint32_t hop);
void ts_lpm4_find(void *table, const uint32_t *addresses, uint32_t *hops, unsigned int count);
void ts_lpm4_free(void *table);

void *ts_fib4_create(const char *name, uint32_t routes, int socket);
int ts_fib4_add(void *table, uint32_t address, uint8_t bits, uint32_t hop);
void ts_fib4_find(void *table, const uint32_t *addresses, uint32_t *hops, unsigned int count);
void ts_fib4_free(void *table);

void *ts_lpm6_create(const char *name, uint32_t routes, int socket);
int ts_lpm6_add(void *table, const uint8_t *address, uint8_t bits, uint32_t hop);
void ts_lpm6_find(void *table, const uint8_t *addresses, uint32_t *hops, unsigned int count);
void ts_lpm6_free(void *table);

void *ts_fib6_create(const char *name, uint32_t routes, int socket);
int ts_fib6_add(void *table, const uint8_t *address, uint8_t bits, uint32_t hop);
void ts_fib6_find(void *table, const uint8_t *addresses, uint32_t *hops, unsigned int count);
void ts_fib6_free(void *table);

#endif
