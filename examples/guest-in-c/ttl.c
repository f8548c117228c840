/* A guest in C: passes frames between two ports, and takes one from the TTL of IPv4 packets (RFC 1812, 5.3.1), with the
 * checksum (RFC 1624). A packet whose TTL ends is dropped and counted. */
#include "nfluid_guest.h"

static uint64_t passed, expired;

static void handle(uint64_t now_ns, struct nfg_frame *frame, uint8_t *bytes)
{
	(void)now_ns;
	if (frame->length >= 34 && bytes[12] == 0x08 && bytes[13] == 0x00) {
		uint32_t sum;

		if (bytes[22] <= 1) {
			expired++;
			return;
		}
		bytes[22]--;
		/* The word with the TTL is less by 0x100, so its complement's sum is more. */
		sum = ((uint32_t)bytes[24] << 8 | bytes[25]) + 0x100;
		sum += sum >> 16;
		bytes[24] = (uint8_t)(sum >> 8);
		bytes[25] = (uint8_t)sum;
	}
	passed++;
	frame->out = (uint8_t)(1 - frame->in_port) + 1;
}

static char *put(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	return to;
}

static char *put_counter(char *to, const char *name, uint64_t value)
{
	char digits[20];
	size_t count = 0;

	to = put(to, "{\"name\":\"");
	to = put(to, name);
	to = put(to, "\",\"labels\":[],\"value\":");
	do {
		digits[count++] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	while (count)
		*to++ = digits[--count];
	return put(to, ".0}");
}

static size_t metrics(char *text, size_t room)
{
	char *to = text;

	(void)room;
	to = put(to, "[");
	to = put_counter(to, "packets_forwarded_total", passed);
	to = put(to, ",");
	to = put_counter(to, "packets_expired_total", expired);
	to = put(to, "]");
	return (size_t)(to - text);
}

void nfg_main(void)
{
	static const struct nfg_function function = { .handle = handle, .metrics = metrics };

	nfg_log("ttl: ready");
	nfg_run(&function);
}
