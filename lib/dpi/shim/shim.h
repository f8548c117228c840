/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The part of nDPI that is used, behind names of our own: how its structures are laid out, only its
 * header says, which differs between versions. The library is opened at run time; one that does not
 * agree with the header is refused. lib/dpi/src/library.rs has the other side.
 */
#ifndef NFLUID_DPI_SHIM_H
#define NFLUID_DPI_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct shim_module;
struct shim_flow;

/* The result for a flow. */
struct shim_answer {
	uint16_t master;
	uint16_t application; /* 0: not known yet */
	uint8_t guessed; /* by ports or addresses, not by what was said */
	uint8_t more; /* further packets may tell more of it */
};

/*
 * Opens a library and sets it up for all protocols. NULL: `why` says why not. Not from several
 * threads at once.
 */
struct shim_module *shim_open(const char *library, char *why, size_t size);
void shim_close(struct shim_module *module);

/* Its own word for its version. */
const char *shim_version(const struct shim_module *module);

/* The number of protocols; their names, or NULL. The names end with the module. */
uint32_t shim_protocols(const struct shim_module *module);
const char *shim_name(const struct shim_module *module, uint16_t protocol);

/* NULL: no memory. */
struct shim_flow *shim_flow_new(const struct shim_module *module);
void shim_flow_free(const struct shim_module *module, struct shim_flow *flow);

/* Shows it a packet of the flow, which begins with its IP header. */
void shim_packet(struct shim_module *module, struct shim_flow *flow, const uint8_t *packet,
		 uint16_t length, uint64_t time_ms, struct shim_answer *answer);

/* No further packet will come: what it was, or is taken for. */
void shim_give_up(struct shim_module *module, struct shim_flow *flow, struct shim_answer *answer);

#endif
