/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Token buckets, one for each of very many subjects, in a table that is bounded and never swept.
 *
 * A bucket is one number: the time at which it would be full again (the generic cell rate algorithm,
 * ITU-T I.371). A bucket whose time has come is full, as an unused one: so its place is free,
 * and a flood of packets with invented sources holds places only as long as a packet's worth of time.
 */
#ifndef EVNF_BUCKET_H
#define EVNF_BUCKET_H

#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#include "evnf_consts.h"
#include "evnf_types.h"

#define BUCKET_TRIES 4
/* How far the time that two CPUs have read may be apart: one may have been held up in between. */
#define BUCKET_APART_NS 1000000000ULL

enum bucket_result {
	BUCKET_TAKEN,
	BUCKET_EMPTY,
	BUCKET_NO_PLACE, /* every place of its set is in use */
};

/* Adds a word to a hash. With the former words the hash is one to one: subjects of 64 bits share no hash. */
static __always_inline __u64 bucket_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

/* Takes a token. False: there is none, or too many others took one at this moment. */
static __always_inline bool take_token(__u64 *full_at, const volatile struct evnf_limit *limit,
				       __u64 now)
{
	__u64 burst = limit->burst_ns, gap = limit->gap_ns;

#pragma unroll
	for (int i = 0; i < BUCKET_TRIES; i++) {
		__u64 old = *(volatile __u64 *)full_at;
		__u64 from = old > now ? old : now;

		/* Of a limit that was in force before this one. */
		if (from - now > burst + gap + BUCKET_APART_NS)
			from = now;
		if (from - now > burst)
			return false;
		if (__sync_val_compare_and_swap(full_at, old, from + gap) == old)
			return true;
	}
	return false;
}

/* Takes a token out of the bucket of `subject`, a hash; `sets` of the table are a power of two. */
static __always_inline enum bucket_result take_token_of(void *table, __u32 sets, __u64 subject,
							const volatile struct evnf_limit *limit,
							__u64 now)
{
	__u32 at = subject >> 32 & (sets - 1), own = EVNF_BUCKET_WAYS, free = EVNF_BUCKET_WAYS;
	struct evnf_buckets *set = bpf_map_lookup_elem(table, &at);
	struct evnf_bucket *bucket;
	__u64 was;

	if (!set)
		return BUCKET_NO_PLACE;
#pragma unroll
	for (int i = 0; i < EVNF_BUCKET_WAYS; i++) {
		if (set->bucket[i].subject == subject)
			own = i;
		if (set->bucket[i].full_at <= now)
			free = i;
	}
	if (own == EVNF_BUCKET_WAYS) {
		if (free == EVNF_BUCKET_WAYS)
			return BUCKET_NO_PLACE;
		bucket = &set->bucket[free & (EVNF_BUCKET_WAYS - 1)];
		was = bucket->subject;
		/* A packet that loses the race for the place passes: once, and there are as many as CPUs. */
		if (__sync_val_compare_and_swap(&bucket->subject, was, subject) != was)
			return BUCKET_TAKEN;
	} else {
		bucket = &set->bucket[own & (EVNF_BUCKET_WAYS - 1)];
	}
	return take_token(&bucket->full_at, limit, now) ? BUCKET_TAKEN : BUCKET_EMPTY;
}

#endif
