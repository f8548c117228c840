/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * One loop, two forms. Kernels from 6.9 on have may_goto, which costs a decrement per turn; older
 * ones have bpf_loop (5.17), which costs a call. The bodies are the same code.
 *
 * LOOP(turns, body, ctx): calls body(ctx) at most `turns` times, until it returns nonzero.
 */
#ifndef SWITCH_LOOP_H
#define SWITCH_LOOP_H

/* The may_goto instruction, spelled out: clang 14 does not know it. */
#define can_loop                                                                                   \
	({                                                                                         \
		__label__ l_break, l_continue;                                                     \
		bool ret = true;                                                                   \
		asm volatile goto("1:.byte 0xe5;"                                                  \
				  ".byte 0;"                                                       \
				  ".long ((%l[l_break] - 1b - 8) / 8) & 0xffff;"                   \
				  ".short 0" :: ::l_break);                                        \
		goto l_continue;                                                                   \
l_break:                                                                                           \
		ret = false;                                                                       \
l_continue:;                                                                                       \
		ret;                                                                               \
	})

/* Loops start from a zero that the verifier does not know, else it follows every turn. */
__u32 unknown_zero;

/*
 * `value`, of which the verifier knows nothing, least of all that another register has it too. What a loop changes starts
 * like this: the state before the first turn is then the state before every turn, and the verifier follows each path through
 * the body once. Without it the switch took 603,000 steps and 2.3 s to verify.
 */
#define unlinked(value) ((value) + *(volatile __u32 *)&unknown_zero)

/* The names of bodies may be macros. */
#define LOOP_GOTO(turns, body, ctx) LOOP_GOTO_NAMED(turns, body, ctx)
#define LOOP_CALL(turns, body, ctx) LOOP_CALL_NAMED(turns, body, ctx)
#define LOOP_CALL_BODY(body, type) LOOP_CALL_BODY_NAMED(body, type)

#define LOOP_GOTO_NAMED(turns, body, ctx)                                                          \
	for (__u32 turn = unknown_zero; turn != (turns) && can_loop; turn++) {                     \
		if (body##_goto(ctx))                                                              \
			break;                                                                     \
	}

#define LOOP_CALL_NAMED(turns, body, ctx) bpf_loop(turns, body##_turn, ctx, 0)

/* What bpf_loop calls. */
#define LOOP_CALL_BODY_NAMED(body, type)                                                           \
	static long body##_turn(__u32 turn, struct type *ctx)                                      \
	{                                                                                          \
		return body##_call(ctx);                                                           \
	}

#endif
