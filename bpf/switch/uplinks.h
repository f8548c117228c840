/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The receive side of uplinks at both hooks. Included once per loop form (loop.h). */

#define HOOK(name) PASTE(name, _xdp)
#define FRAME_CTX xdp_md
#include "uplink.h"
#undef HOOK
#undef FRAME_CTX

#define HOOK(name) PASTE(name, _tc)
#define FRAME_CTX __sk_buff
#include "uplink.h"
#undef HOOK
#undef FRAME_CTX
