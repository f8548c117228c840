// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * hyperio: the switch, run by a setsockopt() on a port's socket, in the sender's own context.
 *
 * The hook is attached to the platform's cgroup. The sockets are made by the daemon within it and
 * keep it wherever their NF runs; the storage on the socket says which port it is. A socket without
 * storage gets EPERM.
 */
#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "run.h"
#include "loop.h"

#define EPERM_ 1
#define EBUSY_ 16
#define EINVAL_ 22
#define ENETDOWN_ 100

#define FORM(name) name##_goto
#define LOOP LOOP_GOTO
#define LOOP_BODY(name, type)
#include "transmit.h"
#include "classify.h"
#include "uplink.h"
#undef FORM
#undef LOOP
#undef LOOP_BODY

#define FORM(name) name##_call
#define LOOP LOOP_CALL
#define LOOP_BODY(name, type) LOOP_CALL_BODY(name, type)
#include "transmit.h"
#include "classify.h"
#include "uplink.h"
#undef FORM
#undef LOOP
#undef LOOP_BODY

/* Takes the port for the call and reads how far to go. 0, or the error of the call. */
static __always_inline int call_begin(struct call *c, __u32 me, __u32 call)
{
	struct sender s;
	__u32 head, frames;

	if (!sender_find(&s, me))
		return ENETDOWN_;
	if (__sync_val_compare_and_swap(&s.port->busy, 0, 1))
		return EBUSY_;
	WRITE_ONCE(s.ring->peer_asleep, 0);
	s.port->copies = 0;
	s.port->last_source = 0; /* look it up once per call: an address in use does not age */
	s.port->tx_calls++;
	head = READ_ONCE(s.ring->tx_head);
	frames = head - s.port->tx_pos;
	if (frames > s.port->mask + 1) {
		s.port->tx_bad_heads++;
		s.port->tx_pos = head;
		frames = 0;
	} else if (s.port->dest_kind != NFL_DEST_LINK && s.port->dest_kind != NFL_DEST_SWITCH) {
		drop_frames(&s, NFL_DROP_NO_ROUTE, frames);
		s.port->tx_pos = head;
		frames = 0;
	}
	c->me = me;
	c->keep = call == NFL_CALL_TX_KEEP;
	c->position = s.port->tx_pos;
	c->end = c->position + (frames < NFL_CALL_FRAMES ? frames : NFL_CALL_FRAMES);
	return 0;
}

static __always_inline void call_end(struct call *c)
{
	struct sender s;

	if (!sender_find(&s, c->me))
		return;
	s.port->tx_pos = c->position;
	WRITE_ONCE(s.ring->tx_tail, c->position);
	barrier();
	WRITE_ONCE(s.port->busy, 0);
}

#define HYPERIO(form, LOOP)                                                                        \
	SEC("cgroup/setsockopt")                                                                   \
	int hyperio_##form(struct bpf_sockopt *ctx)                                                \
	{                                                                                          \
		struct call c;                                                                     \
		__u32 *id;                                                                         \
		int error = EPERM_;                                                                \
                                                                                                   \
		if (ctx->level != NFL_SOL)                                                         \
			return 1;                                                                  \
		id = ctx->sk ? bpf_sk_storage_get(&nfl_identity, ctx->sk, 0, 0) : NULL;            \
		if (!id)                                                                           \
			goto refuse;                                                               \
		if (ctx->optname == NFL_CALL_NOP)                                                  \
			goto done;                                                                 \
		error = EINVAL_;                                                                   \
		if (ctx->optname != NFL_CALL_TX && ctx->optname != NFL_CALL_TX_KEEP)               \
			goto refuse;                                                               \
		error = call_begin(&c, *id, ctx->optname);                                         \
		if (error)                                                                         \
			goto refuse;                                                               \
		LOOP(NFL_CALL_FRAMES + 1, call_step, &c);                                          \
		call_end(&c);                                                                      \
done:                                                                                              \
		ctx->optlen = -1; /* handled: the kernel's own setsockopt is not run */            \
		return 1;                                                                          \
refuse:                                                                                            \
		bpf_set_retval(-error);                                                            \
		return 0;                                                                          \
	}

HYPERIO(goto, LOOP_GOTO)
HYPERIO(call, LOOP_CALL)

#define UPLINK(form)                                                                               \
	SEC("xdp")                                                                                 \
	int uplink_##form(struct xdp_md *ctx)                                                      \
	{                                                                                          \
		return uplink_receive_##form(ctx);                                                 \
	}

UPLINK(goto)
UPLINK(call)

char LICENSE[] SEC("license") = "GPL";
