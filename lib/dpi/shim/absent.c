// SPDX-License-Identifier: Apache-2.0 OR MIT
/* In place of shim.c where nDPI's headers are not installed: nothing can be opened. */
#include "shim.h"

#include <stdio.h>

struct shim_module *shim_open(const char *library, char *why, size_t size)
{
	(void)library;
	snprintf(why, size,
		 "this program was built without nDPI's headers: install them (apt-get install "
		 "libndpi-dev, version 4.2) and build it again");
	return NULL;
}

void shim_close(struct shim_module *module)
{
	(void)module;
}

const char *shim_version(const struct shim_module *module)
{
	(void)module;
	return NULL;
}

uint32_t shim_protocols(const struct shim_module *module)
{
	(void)module;
	return 0;
}

const char *shim_name(const struct shim_module *module, uint16_t protocol)
{
	(void)module;
	(void)protocol;
	return NULL;
}

struct shim_flow *shim_flow_new(const struct shim_module *module)
{
	(void)module;
	return NULL;
}

void shim_flow_free(const struct shim_module *module, struct shim_flow *flow)
{
	(void)module;
	(void)flow;
}

void shim_packet(struct shim_module *module, struct shim_flow *flow, const uint8_t *packet,
		 uint16_t length, uint64_t time_ms, struct shim_answer *answer)
{
	(void)module;
	(void)flow;
	(void)packet;
	(void)length;
	(void)time_ms;
	(void)answer;
}

void shim_give_up(struct shim_module *module, struct shim_flow *flow, struct shim_answer *answer)
{
	(void)module;
	(void)flow;
	(void)answer;
}
