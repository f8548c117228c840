/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef EVNF_CONSTS_H
#define EVNF_CONSTS_H

/* Tuples of all stages. More would make a search longer than the slow path's own. */
#define EVNF_TUPLES_MAX 64
/* Entries of the cache of flows, of each CPU; a power of two. */
#define EVNF_CACHE_SLOTS 32768

/* Ethernet, IPv6, TCP without options: what is read and changed of a packet. */
#define EVNF_HEADERS_MAX 74
/* Ethernet, IPv6, ICMPv6, and the same of the packet that an ICMP error quotes. */
#define EVNF_QUOTE_MAX 122
/* Interfaces of kind veth that a program knows. */
#define EVNF_PEERS_MAX 16384

/* Flows whose packets in a slow path are counted. */
#define EVNF_SLOW_FLOWS_MAX 65536

/* Servers and services of a balancer. */
#define EVNF_SERVERS_MAX 4096
#define EVNF_SERVICES_MAX 1024
/* Connections that a balancer remembers on each CPU, apart from the table that holds all; a power of two. */
#define EVNF_RECENT_SLOTS 16384
/* A prime far above the number of a service's servers: shares are exact to a percent with 600. */
#define EVNF_MAGLEV_SLOTS 65537

/* Places that a token bucket may have; a power of two. */
#define EVNF_BUCKET_WAYS 4
/* Ends that a guard protects. */
#define EVNF_ENDS_MAX 1024

#endif
