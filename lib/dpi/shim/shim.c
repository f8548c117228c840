// SPDX-License-Identifier: Apache-2.0 OR MIT
#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As the library was configured: its structures depend on it, and it has the version. */
#include <ndpi_config.h>

#include <ndpi_api.h>

/* The functions of the library that are called. The header has their types. */
#define FUNCTIONS(X)                                                                               \
	X(ndpi_revision)                                                                           \
	X(ndpi_get_api_version)                                                                    \
	X(ndpi_detection_get_sizeof_ndpi_flow_struct)                                              \
	X(ndpi_init_detection_module)                                                              \
	X(ndpi_set_protocol_detection_bitmask2)                                                    \
	X(ndpi_finalize_initialization)                                                            \
	X(ndpi_exit_detection_module)                                                              \
	X(ndpi_get_num_supported_protocols)                                                        \
	X(ndpi_get_proto_name)                                                                     \
	X(ndpi_flow_malloc)                                                                        \
	X(ndpi_free_flow)                                                                          \
	X(ndpi_detection_process_packet)                                                           \
	X(ndpi_extra_dissection_possible)                                                          \
	X(ndpi_detection_giveup)

#define POINTER(name) __typeof__(&name) name;

/* A packet is at most as long as its 16 bits of length say. Bytes that nDPI reads beyond it are zero. */
#define PACKET_ROOM (UINT16_MAX + 64)

struct shim_module {
	void *library;
	struct ndpi_detection_module_struct *detection;
	struct {
		FUNCTIONS(POINTER)
	} call;
	/*
	 * The packet that is looked at. nDPI keeps pointers into it, and may look there once more
	 * when it gives a flow up.
	 */
	uint16_t length;
	uint8_t packet[PACKET_ROOM];
};

static bool find_all(struct shim_module *module, char *why, size_t size)
{
#define FIND(name)                                                                                 \
	module->call.name = (__typeof__(&name))dlsym(module->library, #name);                      \
	if (!module->call.name) {                                                                  \
		snprintf(why, size, "it has no " #name);                                           \
		return false;                                                                      \
	}
	FUNCTIONS(FIND)
#undef FIND
	return true;
}

/* Returns true if the library is of the header's version. */
static bool agrees(const struct shim_module *module, char *why, size_t size)
{
	const char *header = NDPI_MAJOR_RELEASE "." NDPI_MINOR_RELEASE "." NDPI_PATCH_LEVEL;
	const char *version = module->call.ndpi_revision();
	unsigned api = module->call.ndpi_get_api_version();
	unsigned flow = module->call.ndpi_detection_get_sizeof_ndpi_flow_struct();

	if (!version || strncmp(version, header, strlen(header)) != 0) {
		snprintf(
			why, size,
			"it is nDPI %s, and this program was built for %s: install that one, or build "
			"this program with the other's headers",
			version ? version : "without a version", header);
		return false;
	}
	if (api != NDPI_API_VERSION || flow != sizeof(struct ndpi_flow_struct)) {
		snprintf(
			why, size,
			"it is nDPI %s, but built otherwise than its header says: interface %u (%u), %u "
			"bytes per flow (%u)",
			version, api, (unsigned)NDPI_API_VERSION, flow,
			(unsigned)sizeof(struct ndpi_flow_struct));
		return false;
	}
	return true;
}

struct shim_module *shim_open(const char *library, char *why, size_t size)
{
	struct shim_module *module = calloc(1, sizeof(*module));
	NDPI_PROTOCOL_BITMASK all;

	if (!module) {
		snprintf(why, size, "no memory");
		return NULL;
	}
	module->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!module->library) {
		snprintf(why, size, "%s", dlerror());
		goto failed;
	}
	if (!find_all(module, why, size) || !agrees(module, why, size))
		goto failed;
	module->detection = module->call.ndpi_init_detection_module(ndpi_no_prefs);
	if (!module->detection) {
		snprintf(why, size, "it cannot be set up: no memory?");
		goto failed;
	}
	NDPI_BITMASK_SET_ALL(all);
	module->call.ndpi_set_protocol_detection_bitmask2(module->detection, &all);
	module->call.ndpi_finalize_initialization(module->detection);
	return module;
failed:
	/* The library stays mapped: unmapping gcrypt beneath it is not safe. */
	free(module);
	return NULL;
}

void shim_close(struct shim_module *module)
{
	module->call.ndpi_exit_detection_module(module->detection);
	free(module);
}

const char *shim_version(const struct shim_module *module)
{
	return module->call.ndpi_revision();
}

uint32_t shim_protocols(const struct shim_module *module)
{
	return module->call.ndpi_get_num_supported_protocols(module->detection);
}

const char *shim_name(const struct shim_module *module, uint16_t protocol)
{
	return protocol < shim_protocols(module)
		       ? module->call.ndpi_get_proto_name(module->detection, protocol)
		       : NULL;
}

struct shim_flow *shim_flow_new(const struct shim_module *module)
{
	void *flow = module->call.ndpi_flow_malloc(sizeof(struct ndpi_flow_struct));

	if (flow)
		memset(flow, 0, sizeof(struct ndpi_flow_struct));
	return flow;
}

void shim_flow_free(const struct shim_module *module, struct shim_flow *flow)
{
	module->call.ndpi_free_flow((struct ndpi_flow_struct *)flow);
}

static void fill(struct shim_answer *answer, ndpi_protocol found,
		 const struct ndpi_flow_struct *flow)
{
	answer->master = found.master_protocol;
	answer->application = found.app_protocol;
	answer->guessed = flow->confidence < NDPI_CONFIDENCE_DPI_CACHE;
	answer->more = 0;
}

void shim_packet(struct shim_module *module, struct shim_flow *flow, const uint8_t *packet,
		 uint16_t length, uint64_t time_ms, struct shim_answer *answer)
{
	struct ndpi_flow_struct *of = (struct ndpi_flow_struct *)flow;

	memcpy(module->packet, packet, length);
	if (length < module->length)
		memset(module->packet + length, 0, module->length - length);
	module->length = length;
	fill(answer,
	     module->call.ndpi_detection_process_packet(module->detection, of, module->packet,
							length, time_ms),
	     of);
	if (answer->application)
		answer->more = module->call.ndpi_extra_dissection_possible(module->detection, of);
}

void shim_give_up(struct shim_module *module, struct shim_flow *flow, struct shim_answer *answer)
{
	struct ndpi_flow_struct *of = (struct ndpi_flow_struct *)flow;
	u_int8_t guessed;

	fill(answer, module->call.ndpi_detection_giveup(module->detection, of, 1, &guessed), of);
}
