/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Copies a frame between slots: exactly `len` bytes, so that no stale byte of a former frame leaks
 * from one instance to the next. */
#ifndef SWITCH_COPY_H
#define SWITCH_COPY_H

#include "frame.h"

/* Up to this length, 8-byte moves cost less than the two calls of helpers: at 256 B 22 ns per frame
 * of the whole switch against 51 (`nfluid-bench hyperio`). On another core than the receiver's,
 * where the lines travel and the copy is not what costs, longer ones would be slower: at 512 B
 * 10.8 against 16 Mpps, though on one core they gain (16.3 against 11.9). */
#define NFL_WORDS_MAX 32

/* The last bytes first: what is left then ends in the same way wherever it ends, else the verifier
 * would follow what comes after it once per number of words. */
static __always_inline void copy_words(void *dst, const void *src, __u64 len)
{
	volatile const __u64 *s = src;
	volatile __u64 *d = dst;
	__u64 words = len >> 3, rest = (len & 7) << 3;

	if (rest)
		d[words] = s[words] & ((1ULL << rest) - 1);
#pragma unroll
	for (int i = 0; i < NFL_WORDS_MAX; i++) {
		if (words == i)
			return;
		d[i] = s[i];
	}
}

/* Frames of any length: `len` is within NFL_FRAME_MIN..NFL_FRAME_MAX, the slots hold
 * NFL_SLOT_SIZE bytes. A function of its own: what it leaves on the stack would tell the verifier the turns of a loop
 * apart in which it was called from those in which it was not. */
static __noinline void copy_long(void *dst, void *src, __u64 len)
{
	struct bpf_dynptr to;

	if (!length_proven(len))
		return;
	bpf_dynptr_from_mem(dst, NFL_SLOT_SIZE, 0, &to);
	bpf_dynptr_write(&to, 0, src, len, 0);
}

static __always_inline void copy_frame(void *dst, void *src, __u64 len)
{
	if (len <= NFL_WORDS_MAX * 8)
		copy_words(dst, src, len);
	else
		copy_long(dst, src, len);
}

#endif
