/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Flows as keys. */
#ifndef EVNF_FLOW_H
#define EVNF_FLOW_H

#include <stdbool.h>

#include "evnf_types.h"

static __always_inline __u64 flow_hash(const union evnf_key *key, __u64 seed)
{
	__u64 hash = seed;

#pragma unroll
	for (int i = 0; i < EVNF_FLOW_WORDS; i++)
		hash = (hash ^ key->word[i]) * 0x9e3779b97f4a7c15ULL;
	return hash;
}

static __always_inline bool same_flow(const union evnf_key *a, const union evnf_key *b)
{
	__u64 difference = 0;

#pragma unroll
	for (int i = 0; i < EVNF_FLOW_WORDS; i++)
		difference |= a->word[i] ^ b->word[i];
	return !difference;
}

#endif
