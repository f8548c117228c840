/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Coalescing of wake-ups: a sleeping receiver is woken at once, or for several frames, or after a time. */
#ifndef SWITCH_COALESCE_H
#define SWITCH_COALESCE_H

#include "deliver.h"

#define TIMER_EXISTS 16 /* EBUSY */

/* Frames of a ring whose receiver sleeps. */
struct waiting {
	__u32 used; /* positions */
	__u32 unseen; /* of them, positions that the receiver has not taken */
	bool long_full; /* half of the slots for long frames are used, or there is no room for the longest */
};

/*
 * A frame that the receiver has taken may lie in its slot still: the frame is passed on, and an I/O thread has yet
 * to send it. Both words are the receiver's. A nonsensical value, also of a program that does not write rx_seen,
 * counts as if the receiver had released all frames that it has taken.
 */
static __always_inline struct waiting waiting_in(struct target *t)
{
	__u64 released = READ_ONCE(t->ring->rx_released),
	      reserved = READ_ONCE(t->port->rx_reserved);
	__u32 held = READ_ONCE(t->ring->rx_seen) - (__u32)released;
	__u32 end = reserved >> LONG_SHIFT, head = released >> LONG_SHIFT;
	__u32 slots = t->port->long_slots;
	struct waiting w;

	w.used = (__u32)reserved - (__u32)released;
	w.long_full = slots &&
		      (end - head > slots / 2 || long_start(end) + NFL_LONG_SLOTS - head > slots);
	w.unseen = held <= w.used ? w.used - held : w.used;
	return w;
}

/*
 * Rings when the time is over, if the receiver still sleeps and a frame waits. Otherwise the timer was started for
 * frames that more frames have joined in time, and the receiver has taken them: such a timer is not stopped.
 */
static int ring_after(void *map, __u32 *key, struct nfl_timer *timer)
{
	struct target t;
	__u32 id = *key;

	if (target_find(&t, id) && waiting_in(&t).unseen)
		ring_kernel_doorbell(t.port, id, READ_ONCE(t.ring->rx_sleep));
	return 0;
}

/*
 * Makes the port's timer, so that a frame's way allocates nothing: from Linux 6.18 on the kernel has no memory for a timer
 * where it would wait for a lock of the allocator. Returns 0, or the error of the moment.
 */
static __always_inline int timer_prepare(__u32 id)
{
	struct nfl_timer *timer = bpf_map_lookup_elem(&nfl_timers, &id);
	long error;

	if (!timer)
		return 0;
	error = bpf_timer_init(&timer->timer, &nfl_timers, NFL_CLOCK_MONOTONIC);
	if (error && error != -TIMER_EXISTS)
		return error;
	return bpf_timer_set_callback(&timer->timer, ring_after);
}

/* Starts the port's timer. False: the timer was not made, and the kernel has no memory for it. */
static __always_inline bool timer_start(struct nfl_timer *timer, __u64 ns)
{
	if (!bpf_timer_start(&timer->timer, ns, 0))
		return true;
	/* The first time. Of several that do this at once, one succeeds. */
	bpf_timer_init(&timer->timer, &nfl_timers, NFL_CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, ring_after);
	return !bpf_timer_start(&timer->timer, ns, 0);
}

/*
 * Returns the sleep epoch to ring for, or 0: the receiver waits for more frames, and the timer runs. The first frame
 * that finds the receiver asleep starts the timer. A timer that is started twice rings later by the time between the
 * starts. A timer that still runs for an earlier sleep begins anew: it does not ring early for this sleep. The receiver
 * has looked at its ring after it announced its sleep: a frame that it has not seen came after that, from a sender that
 * comes here.
 */
static __noinline __u32 coalesce(__u32 id, __u32 epoch)
{
	struct nfl_timer *timer;
	struct waiting w;
	struct target t;

	if (!target_find(&t, id))
		return epoch;
	w = waiting_in(&t);
	/* The ring is full of held frames, or there may be no room for a long one: no more can come. */
	if (w.unseen >= t.port->wake_frames || w.used > t.port->mask || w.long_full)
		return epoch;
	if (READ_ONCE(t.port->timed) == epoch)
		return 0;
	timer = bpf_map_lookup_elem(&nfl_timers, &id);
	if (!timer || !timer_start(timer, (__u64)t.port->wake_after_us * 1000))
		return epoch;
	WRITE_ONCE(t.port->timed, epoch);
	return 0;
}

static __always_inline __u32 coalesced_epoch(struct nfl_port *port, __u32 id, __u32 epoch)
{
	return epoch && port->wake_frames > 1 ? coalesce(id, epoch) : epoch;
}

#endif
