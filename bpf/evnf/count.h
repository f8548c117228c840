/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Counters, a set for each CPU: no other CPU writes them meanwhile. */
#ifndef EVNF_COUNT_H
#define EVNF_COUNT_H

#include <bpf/bpf_helpers.h>

#include "evnf_types.h"

static __always_inline void count(void *map, __u32 at, __u64 bytes)
{
	struct evnf_count *found = bpf_map_lookup_elem(map, &at);

	if (found) {
		found->packets++;
		found->bytes += bytes;
	}
}

#endif
