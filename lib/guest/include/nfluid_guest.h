/* What a guest of tier `microvm` shares with its monitor, and a run-time for guests in C. The same definitions in Rust, with
 * the protocol in words: lib/guest/src/abi.rs. No C library is needed; one file of a guest includes this header. */
#ifndef NFLUID_GUEST_H
#define NFLUID_GUEST_H

#include <stddef.h>
#include <stdint.h>

#define NFG_VERSION 1u
#define NFG_DEVICE 0x200000ull
#define NFG_MEMORY 0x400000ull
#define NFG_DOORBELL 0x3fe00000ull
#define NFG_BATCH_MAX 64
#define NFG_MADE_MAX 64
#define NFG_MADE_BYTES (128 << 10)
#define NFG_COPY_BYTES (64 << 10)
#define NFG_REQUEST_BYTES (16 << 10)
#define NFG_FRAME_MIN 14
#define NFG_FRAME_MAX 65520

enum nfg_ring { NFG_READY = 1, NFG_MADE = 2, NFG_LOG = 3, NFG_PANIC = 4 };

enum nfg_op {
	NFG_ROOM = 1,
	NFG_BUILD = 2,
	NFG_PROCESS = 3,
	NFG_TICK = 4,
	NFG_METRICS = 5,
	NFG_COMMAND = 6,
	NFG_RECONFIGURE = 7,
};

enum nfg_status { NFG_OK = 0, NFG_FAILED = 1, NFG_UNKNOWN = 2 };

struct nfg_device {
	uint32_t version;
	uint32_t reserved;
	uint64_t entropy[4];
	uint64_t heap;
	uint64_t memory_end;
	uint64_t pool_bytes;
	uint64_t unix_epoch;
};

struct nfg_call {
	uint32_t op;
	uint32_t count;
	uint64_t now;
	uint64_t address;
	uint64_t length;
};

struct nfg_reply {
	uint32_t status;
	uint32_t version;
	uint64_t address;
	uint64_t length;
	uint64_t value;
	uint64_t next_tick;
	uint32_t made;
	uint32_t decided;
};

/* A frame of a batch. `out` is the port by which it leaves plus 1; 0: it is dropped. */
struct nfg_frame {
	uint64_t address;
	uint32_t capacity;
	uint16_t length;
	uint8_t in_port;
	uint8_t out;
	uint8_t offload[16];
};

struct nfg_made {
	uint32_t at;
	uint16_t length;
	uint8_t port;
	uint8_t decided;
	uint8_t offload[16];
};

struct nfg_mailbox {
	struct nfg_call call;
	struct nfg_reply reply;
	struct nfg_frame frames[NFG_BATCH_MAX];
	struct nfg_made made[NFG_MADE_MAX];
	uint8_t request[NFG_REQUEST_BYTES];
	uint8_t bytes[NFG_MADE_BYTES];
	uint8_t copy[NFG_COPY_BYTES];
};

_Static_assert(sizeof(struct nfg_device) == 72, "the monitor's size");
_Static_assert(sizeof(struct nfg_call) == 32, "the monitor's size");
_Static_assert(sizeof(struct nfg_reply) == 48, "the monitor's size");
_Static_assert(sizeof(struct nfg_frame) == 32, "the monitor's size");
_Static_assert(sizeof(struct nfg_made) == 24, "the monitor's size");

/* The network function of a guest. What is NULL is not there. */
struct nfg_function {
	/* Takes the configuration, JSON of `length` bytes, at the start and whenever it changes. Returns NULL, or why not. */
	const char *(*configure)(const char *json, size_t length);
	/* Handles one frame: changes it in place, and sets `out`. */
	void (*handle)(uint64_t now_ns, struct nfg_frame *frame, uint8_t *bytes);
	/* Does what time drives. Returns the time at which there is more to do, UINT64_MAX: nothing waits. */
	uint64_t (*tick)(uint64_t now_ns);
	/* Writes the counters, a JSON list of {"name": "x_total", "labels": [], "value": 1}. Returns its length. */
	size_t (*metrics)(char *text, size_t room);
};

static struct nfg_mailbox *const nfg_mailbox = (struct nfg_mailbox *)NFG_MEMORY;

/* Leaves the guest until the monitor lets it go on. */
static inline void nfg_ring(uint32_t what)
{
	__asm__ volatile("movl %0, (%1)" ::"r"(what), "r"(NFG_DOORBELL) : "memory");
}

static inline size_t nfg_length(const char *text)
{
	size_t length = 0;

	while (text[length])
		length++;
	return length;
}

/* Writes a line to the instance's log. */
static inline void nfg_log(const char *text)
{
	struct nfg_reply before = nfg_mailbox->reply;

	nfg_mailbox->reply.address = (uint64_t)text;
	nfg_mailbox->reply.length = nfg_length(text);
	nfg_ring(NFG_LOG);
	nfg_mailbox->reply = before;
}

static uint64_t nfg_next_tick = UINT64_MAX;
static char nfg_text[8192];
/* A request that does not fit into the mailbox. */
static uint8_t nfg_room[1 << 20];

static inline void nfg_say(struct nfg_reply *reply, const char *text, size_t length)
{
	reply->address = (uint64_t)text;
	reply->length = length;
}

/* Copies the value of `"config"` out of the request: the last but one member of the monitor's JSON object. */
static inline const char *nfg_config(const struct nfg_call *call, size_t *length)
{
	static const char key[] = "\"config\":", end[] = ",\"ports\":[";
	const char *text = (const char *)call->address, *from = NULL;

	*length = 0;
	for (size_t at = 0; at + sizeof(key) <= call->length && !from; at++) {
		size_t same = 0;

		while (same < sizeof(key) - 1 && text[at + same] == key[same])
			same++;
		if (same == sizeof(key) - 1)
			from = text + at + same;
	}
	for (size_t at = call->length; from && at-- > 0;) {
		size_t same = 0;

		while (same < sizeof(end) - 1 && at + same < call->length && text[at + same] == end[same])
			same++;
		if (same == sizeof(end) - 1) {
			*length = (size_t)(text + at - from);
			return from;
		}
	}
	return from ? from : "";
}

static inline void nfg_answer(const struct nfg_function *function, const struct nfg_call *call, struct nfg_reply *reply)
{
	static const char built[] = "{\"divides\":false,\"state\":null}", empty[] = "[]";
	const char *refused;
	size_t length;

	switch (call->op) {
	case NFG_ROOM:
		reply->status = call->length <= sizeof(nfg_room) ? NFG_OK : NFG_FAILED;
		reply->address = (uint64_t)nfg_room;
		reply->length = call->length;
		return;
	case NFG_BUILD:
	case NFG_RECONFIGURE:
		nfg_say(reply, built, sizeof(built) - 1);
		if (function->configure) {
			const char *json = nfg_config(call, &length);

			refused = function->configure(json, length);
			if (refused) {
				reply->status = NFG_FAILED;
				nfg_say(reply, refused, nfg_length(refused));
			}
		}
		return;
	case NFG_PROCESS:
		for (uint32_t at = 0; at < call->count && at < NFG_BATCH_MAX; at++) {
			struct nfg_frame *frame = &nfg_mailbox->frames[at];

			frame->out = 0;
			function->handle(call->now, frame, (uint8_t *)frame->address);
		}
		reply->decided = call->count;
		return;
	case NFG_TICK:
		if (function->tick)
			nfg_next_tick = function->tick(call->now);
		return;
	case NFG_METRICS:
		nfg_say(reply, empty, sizeof(empty) - 1);
		if (function->metrics)
			nfg_say(reply, nfg_text, function->metrics(nfg_text, sizeof(nfg_text)));
		return;
	default:
		reply->status = NFG_UNKNOWN;
	}
}

/* Answers the monitor with the network function, for ever. */
static inline void nfg_run(const struct nfg_function *function)
{
	struct nfg_reply reply = { .version = NFG_VERSION, .next_tick = UINT64_MAX };

	for (;;) {
		nfg_mailbox->reply = reply;
		nfg_ring(NFG_READY);
		reply = (struct nfg_reply){ .version = NFG_VERSION, .next_tick = UINT64_MAX };
		nfg_answer(function, &nfg_mailbox->call, &reply);
		reply.next_tick = nfg_next_tick;
	}
}

/* Compilers call these also where no C library is. */
void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);

__attribute__((weak)) void *memcpy(void *to, const void *from, size_t bytes)
{
	void *start = to;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
	return start;
}

__attribute__((weak)) void *memset(void *to, int byte, size_t bytes)
{
	void *start = to;

	__asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(byte) : "memory");
	return start;
}

/* The first function of a guest is nfg_main. */
void nfg_main(void);
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tcall nfg_main\n\tud2\n");

#endif
