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

#include "call.h"
#include "client.h"
#include "hook_tc.h"
#include "hook_xdp.h"
#include "long.h"
#include "loop.h"
#include "parse.h"
#include "snoop_types.h"

#define EPERM_ 1
#define EINVAL_ 22

#define PASTE(one, other) one##other

#define HOOK(name) PASTE(name, _slot)
#define FRAME_CTX void
#include "snoop.h"
#undef HOOK
#undef FRAME_CTX

#define HOOK(name) PASTE(name, _xdp)
#define FRAME_CTX struct xdp_md
#include "snoop.h"
#undef FRAME_CTX
#define FRAME_CTX xdp_md
#include "arrival.h"
#undef HOOK
#undef FRAME_CTX

#define HOOK(name) PASTE(name, _tc)
#define FRAME_CTX struct __sk_buff
#include "snoop.h"
#undef FRAME_CTX
#define FRAME_CTX __sk_buff
#include "arrival.h"
#undef HOOK
#undef FRAME_CTX

#define FORM(name) PASTE(name, _goto)
#define LOOP LOOP_GOTO
#define LOOP_BODY(name, type)
#include "pass.h"
#include "transmit.h"
#include "classify.h"
#include "uplinks.h"
#undef FORM
#undef LOOP
#undef LOOP_BODY

#define FORM(name) PASTE(name, _call)
#define LOOP LOOP_CALL
#define LOOP_BODY(name, type) LOOP_CALL_BODY(name, type)
#include "pass.h"
#include "transmit.h"
#include "classify.h"
#include "uplinks.h"
#undef FORM
#undef LOOP
#undef LOOP_BODY

#define HYPERIO(form, LOOP)                                                                        \
	SEC("cgroup/setsockopt")                                                                   \
	int hyperio_##form(struct bpf_sockopt *ctx)                                                \
	{                                                                                          \
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
		if (ctx->optname == NFL_CALL_DOORBELL) {                                           \
			ring_peer(*id);                                                            \
			goto done;                                                                 \
		}                                                                                  \
		error = EINVAL_;                                                                   \
		if (ctx->optname != NFL_CALL_TX && ctx->optname != NFL_CALL_TX_KEEP)               \
			goto refuse;                                                               \
		error = call_run_##form(*id, ctx->optname);                                        \
		if (error)                                                                         \
			goto refuse;                                                               \
done:                                                                                              \
		ctx->optlen = -1; /* handled: the kernel's own setsockopt is not run */            \
		return 1;                                                                          \
refuse:                                                                                            \
		bpf_set_retval(-error);                                                            \
		return 0;                                                                          \
	}

HYPERIO(goto, LOOP_GOTO)
HYPERIO(call, LOOP_CALL)

/*
 * The switch run by an I/O thread, for ports whose instances do not make the call themselves: the
 * same switch, and the thread's time. Called by BPF_PROG_RUN; only the platform has its descriptor.
 */
__noinline int serve_port_goto(__u32 me)
{
	return call_run_goto(me, CALL_SERVE);
}

static __always_inline bool serve_ring(struct nfl_serve *ctx)
{
	if (ctx->count == NFL_SERVE_RING_PEER)
		ring_peer(ctx->port[0]);
	else if (ctx->count == NFL_SERVE_RING_OWNER)
		ring_owner(ctx->port[0]);
	else
		return false;
	return true;
}

/* Rings alone, for who runs no switch: the program is small, and so always loaded. */
SEC("syscall")
int ring(struct nfl_serve *ctx)
{
	if (ctx->count == NFL_SERVE_PREPARE_TIMER)
		return timer_prepare(ctx->port[0]);
	serve_ring(ctx);
	return 0;
}

/* Many ports by one call: the trigger costs as much as switching forty small frames. */
SEC("syscall")
int serve_goto(struct nfl_serve *ctx)
{
	if (serve_ring(ctx))
		return 0;
#pragma unroll
	for (int i = 0; i < NFL_SERVE_PORTS; i++) {
		if (i >= ctx->count)
			break;
		serve_port_goto(ctx->port[i]);
	}
	return 0;
}

/* One port: for more there is no stack left where loops are calls. */
SEC("syscall")
int serve_call(struct nfl_serve *ctx)
{
	if (!serve_ring(ctx))
		call_run_call(ctx->port[0], CALL_SERVE);
	return 0;
}

/* Frames may lie in several buffers: jumbo frames. */
#define UPLINK(form)                                                                               \
	SEC("xdp.frags")                                                                           \
	int uplink_##form(struct xdp_md *ctx)                                                      \
	{                                                                                          \
		return uplink_receive_xdp_##form(ctx) == ARRIVAL_TAKEN ? XDP_DROP : XDP_PASS;      \
	}                                                                                          \
	SEC("tc")                                                                                  \
	int uplink_tc_##form(struct __sk_buff *ctx)                                                \
	{                                                                                          \
		int verdict = uplink_receive_tc_##form(ctx);                                       \
                                                                                                   \
		if (verdict == ARRIVAL_TAKEN)                                                      \
			return TC_DROP;                                                            \
		return verdict == ARRIVAL_LEFT ? TC_NEXT : verdict;                                \
	}

UPLINK(goto)
UPLINK(call)

char LICENSE[] SEC("license") = "GPL";
