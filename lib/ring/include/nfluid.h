/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libnfluid: the ports of an nfluid instance, for C (C11) and C++. Link with -lnfluid.
 *
 * A program that nfluid starts as an instance attaches once and then, again and again, receives
 * frames in place, changes or answers them, sends or forwards them, flushes, releases:
 *
 *	nfl_receive -> nfl_forward, nfl_send_copy, nfl_tx_reserve + nfl_tx_commit -> nfl_flush
 *	-> nfl_release, and nfl_wait when there is nothing to do.
 *
 * Frames are Ethernet frames without FCS, of NFL_FRAME_MIN to NFL_FRAME_MAX bytes. Long frames, of up to
 * NFL_LONG_MAX bytes, arrive only at ports for which the deployment asks for them: by an MTU of more
 * than 2018 bytes, or by the instance's key `frames`.
 *
 * Metadata. A kernel hands frames over before all work on them is done: the TCP or UDP checksum is
 * left to be computed (a partial checksum), or the frame is to be cut into many packets (a
 * super-frame). struct nfl_offload says what is left. Such frames arrive only at instances whose key
 * `frames` is `checksums` or `super`; all others get frames as they are on a wire. A frame that is
 * forwarded keeps its metadata. For such frames there are, newer than all other functions,
 * nfl_port_level(), nfl_port_rx_long(), nfl_port_tx_long(), nfl_frame_..(), nfl_offload_..() and
 * nfl_send_offload(). A program that calls none of them works as before.
 *
 * Errors. Functions that return int return 0 or a count, or a negative errno value, whose meaning
 * nfl_strerror() returns. -EINVAL stands for a null pointer or an argument out of range, -EFAULT for
 * an error of the library itself; both may come from every such function.
 *
 * Ownership. The instance belongs to the caller until nfl_detach(); ports and names belong to the
 * instance. The bytes of a received frame are the caller's, to read and to write, from nfl_receive()
 * to nfl_release(); those of a reserved slot from nfl_tx_reserve() to nfl_tx_commit().
 *
 * Threads. A port is used by one thread at a time; different threads may use different ports (and
 * queues of one port, which are ports of their own) at the same time. nfl_forward() uses the port
 * that the frame goes to and refers to the one that it came from: both are the calling thread's.
 * While a thread is in nfl_wait() or nfl_detach(), no other is in any function of the instance or
 * of its ports.
 *
 * Signals. nfl_attach() sets SIGPIPE to SIG_IGN if it is SIG_DFL: a peer that ended must not end
 * this program. A handler of the program's own is left as it is.
 */
#ifndef NFLUID_H
#define NFLUID_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NFL_FRAME_MIN 14 /* bytes: an Ethernet header */
#define NFL_FRAME_MAX 2032 /* bytes, without FCS: a frame in one slot */
#define NFL_LONG_MAX 65520 /* bytes, without FCS: a long frame */
#define NFL_SLOT_SIZE 2048 /* bytes from one frame slot to the next */
#define NFL_PORTS_MAX 64 /* ports of an instance, queues counted */
#define NFL_RING_MAX 1024 /* frames that a port can hold in one direction */
#define NFL_WAIT_MAX_MS 2000 /* longest nfl_wait() */

/* The ports and the memory that an instance is attached to. */
struct nfl_instance;

/* A port of an instance, or one queue of a port that has several. */
struct nfl_port;

/* A received frame, in place. */
struct nfl_frame {
	uint8_t *data; /* first byte; nfl_frame_room() bytes are the frame's to grow */
	uint16_t len; /* bytes; may be changed before nfl_forward() */
	uint16_t port; /* index of the port that received it */
	uint32_t slot; /* where it lies in the instance's memory */
};

/*
 * The work that is left to be done to a frame, with the names, the values and the layout of Linux's struct
 * virtio_net_hdr, in the machine's byte order. All zeros: nothing, the frame is as on a wire.
 *
 * In a partial checksum, the checksum field holds the folded sum of the pseudo-header, not
 * complemented: a new address changes that sum, and whatever else changes in the packet does not.
 */
struct nfl_offload {
	uint8_t flags; /* NFL_NEEDS_CSUM, or 0: nothing is left, and gso_type is NFL_GSO_NONE */
	uint8_t gso_type; /* NFL_GSO_..: kind of the packets; NFL_GSO_NONE: the frame is one packet */
	uint16_t hdr_len; /* super-frame: bytes before the payload, at most 256 */
	uint16_t gso_size; /* super-frame: payload bytes of each packet but the last */
	uint16_t csum_start; /* bytes from the frame's start to the TCP or UDP header, 14 to 256 */
	uint16_t csum_offset; /* bytes from there to the checksum: 16 (TCP) or 6 (UDP) */
};

#define NFL_NEEDS_CSUM 1 /* the checksum at csum_start + csum_offset is partial */

/* hdr_len is at least csum_start + 20 for the TCP kinds, and csum_start + 8 for UDP. */
#define NFL_GSO_NONE 0
#define NFL_GSO_TCPV4 1 /* gso_size is at least 48 */
#define NFL_GSO_TCPV6 4 /* gso_size is at least 48 */
#define NFL_GSO_UDP_L4 5 /* at most 128 datagrams, each with a UDP header of its own */
#define NFL_GSO_ECN 0x80 /* added to a TCP kind: only the first packet keeps the flag CWR */

/* Counters of the library on a port since nfl_attach(); drops are counted by the switch. */
struct nfl_stats {
	uint64_t rx_frames; /* frames received */
	uint64_t rx_bytes; /* their bytes */
	uint64_t tx_frames; /* frames handed to the switch */
	uint64_t calls; /* hyperio calls */
	uint64_t rings; /* wake-ups given to a link's peer */
	uint64_t tx_no_slot; /* frames that found no free slot */
	uint64_t tx_errors; /* calls that failed; their frames were discarded */
};

/*
 * Attaches to the ports that the environment names (NFLUID_ATTACH_FD) and stores the instance in
 * *instance. Once per process; call it before other threads start, as it reads the environment.
 * 0; -ENOENT: not started as an nfluid instance; -EALREADY: this process has attached before;
 * -EPROTO: the port table is damaged; -EPROTONOSUPPORT: it is that of another version of nfluid, so build
 * the program with the daemon's libnfluid; else why it could not be read or mapped. *instance is NULL
 * after an error.
 */
int nfl_attach(struct nfl_instance **instance);

/* Gives the instance and its ports back. Frames that are held or queued are lost. NULL is ignored. */
void nfl_detach(struct nfl_instance *instance);

/* Meaning of the (negative) return value `error`, and the remedy; never NULL, never to be freed. */
const char *nfl_strerror(int error);

/* Number of ports, queues counted; they are numbered from 0 in the order of the deployment. */
int nfl_port_count(const struct nfl_instance *instance);

/* The port of this number; NULL if there is none. */
struct nfl_port *nfl_port_at(struct nfl_instance *instance, unsigned int index);

/* Queue `queue` (0: the first) of the port of this name; NULL if there is none. */
struct nfl_port *nfl_port_by_name(struct nfl_instance *instance, const char *name,
				  unsigned int queue);

/* The port's number in its instance. */
int nfl_port_index(const struct nfl_port *port);

/* The port's name in the deployment; NULL for a null pointer. */
const char *nfl_port_name(const struct nfl_port *port);

/* Writes the port's MAC address, 6 bytes, to `mac`. */
int nfl_port_mac(const struct nfl_port *port, uint8_t *mac);

/* Largest IP packet of the port, in bytes. */
int nfl_port_mtu(const struct nfl_port *port);

/* Which queue of its port this is, from 0. */
int nfl_port_queue(const struct nfl_port *port);

/* How many queues the port has. */
int nfl_port_queues(const struct nfl_port *port);

/* Levels of a port: what the frames that it gets may have left to be done. */
#define NFL_LEVEL_PLAIN 0 /* nothing */
#define NFL_LEVEL_CHECKSUMS 1 /* also the checksum */
#define NFL_LEVEL_SUPER 2 /* also the cut into packets */

/*
 * Level of the port, NFL_LEVEL_..: frames above it never arrive. That is the instance's key `frames`, or
 * NFL_LEVEL_PLAIN where the platform has no room for long frames. What the program sends may be above the
 * level; the switch drops it, as `no_offload`, at a receiver that does not take it.
 */
int nfl_port_level(const struct nfl_port *port);

/*
 * Room for long frames that the port receives, in slots of NFL_SLOT_SIZE bytes; 0: it gets none. A long
 * frame has as many slots as it fills, and 16 bytes more, at most 32.
 */
int nfl_port_rx_long(const struct nfl_port *port);

/* The same for long frames and frames with metadata that the program makes; 0: it can send none. */
int nfl_port_tx_long(const struct nfl_port *port);

/*
 * Receives at most `max` frames and describes them in frames[0..]; never blocks. Returns how many:
 * 0 if none waits. The frames are held until nfl_release(): a receiver that holds a whole ring of frames
 * gets no more, and the switch drops and counts frames to it.
 */
int nfl_receive(struct nfl_port *port, struct nfl_frame *frames, size_t max);

/*
 * Gives the slots of all frames received on the port back to the switch; their bytes may not be
 * touched from now on. -EBUSY: some of them were forwarded and not flushed; nothing was released.
 */
int nfl_release(struct nfl_port *port);

/*
 * The same for the `count` frames that were received first, of those that are held. -EINVAL: fewer are held.
 */
int nfl_release_first(struct nfl_port *port, size_t count);

/*
 * Functions nfl_frame_..(): `port` is the port that has received the frame, and has not released it;
 * frame->data must be as nfl_receive() set it. -EINVAL: the port has received no such frame; -EMSGSIZE:
 * frame->len is not the length of a frame, or more than nfl_frame_room(). After an error nothing has
 * changed. They are not for frames that are queued.
 */

/* The most bytes that the frame can have where it lies; returns NFL_FRAME_MAX to NFL_LONG_MAX. */
int nfl_frame_room(const struct nfl_port *port, const struct nfl_frame *frame);

/*
 * Writes what is left to be done to the frame to *offload: all zeros for most frames. -EBADMSG: the
 * metadata does not fit frame->len, which the program has changed.
 */
int nfl_frame_offload(const struct nfl_port *port, const struct nfl_frame *frame,
		      struct nfl_offload *offload);

/*
 * Sets what is left to be done to the frame, for a program that has changed the headers: one that has
 * added 4 bytes before the TCP header adds 4 to csum_start and, of a super-frame, to hdr_len. -EBADMSG:
 * no frame of this length can have such metadata; -EOPNOTSUPP: the instance is in a trust group.
 */
int nfl_frame_set_offload(const struct nfl_port *port, const struct nfl_frame *frame,
			  const struct nfl_offload *offload);

/*
 * Makes sure that the metadata is about the TCP or UDP header of the frame's own packet. Call it before
 * anything is decided by the frame's bytes: the metadata is a sender's, and a hostile sender can place
 * the missing checksum over an address. A checksum at another place is computed now. Costs nothing for
 * a frame without metadata. -EBADMSG: a super-frame with metadata about anything but its own headers:
 * drop and count it.
 */
int nfl_frame_settle(const struct nfl_port *port, const struct nfl_frame *frame);

/*
 * Computes the partial checksum in place; then nothing is left to be done. For frames of one packet,
 * with or without metadata. -EOPNOTSUPP: a super-frame, which only nfl_frame_cut() can finish.
 */
int nfl_frame_finish(const struct nfl_port *port, const struct nfl_frame *frame);

/*
 * Calls packet(context, data, len) for each packet that the frame becomes on a wire, in order, with all
 * lengths, sequence numbers and checksums as Linux makes them. A frame that is no super-frame is one
 * packet. The bytes are in the library's memory, until `packet` returns. `packet` may send, with
 * nfl_send_copy() for example; it may not change or release the frame, and must return. A negative
 * return value of `packet` ends the call, which then returns that value. Returns the number of packets.
 * -EBADMSG: a super-frame of which no packets can be made, see nfl_frame_settle().
 */
int nfl_frame_cut(const struct nfl_port *port, const struct nfl_frame *frame,
		  int (*packet)(void *context, const uint8_t *data, size_t len), void *context);

/*
 * Of a frame of `len` bytes with this metadata: the number of packets that it becomes on a wire, the
 * bytes of all of them, and the bytes of the longest one, which is what to compare with an MTU (plus 14
 * for the Ethernet header, 4 for each VLAN tag). Counters and rate limits that take the frame's length
 * instead count forty packets as one. -EMSGSIZE: not the length of a frame; -EBADMSG: no frame of this
 * length can have such metadata.
 */
int nfl_offload_segments(const struct nfl_offload *offload, size_t len);
int nfl_offload_wire_len(const struct nfl_offload *offload, size_t len);
int nfl_offload_packet_len(const struct nfl_offload *offload, size_t len);

/*
 * Queues a copy of `len` bytes: up to NFL_FRAME_MAX, or up to NFL_LONG_MAX where nfl_port_tx_long() is not
 * 0. -EMSGSIZE: not the length of a frame; -ENOBUFS: no slot is free, flush first; -EBUSY: a slot is
 * reserved, commit it first.
 */
int nfl_send_copy(struct nfl_port *port, const uint8_t *data, size_t len);

/*
 * As nfl_send_copy(), of a frame to which *offload is left to be done; NULL: nothing. For a copy of a whole
 * received frame; a part of one is a frame of its own, without metadata. -EBADMSG: no frame of this
 * length can have such metadata; -EOPNOTSUPP: there is metadata, and nfl_port_tx_long() is 0.
 */
int nfl_send_offload(struct nfl_port *port, const uint8_t *data, size_t len,
		     const struct nfl_offload *offload);

/*
 * Reserves the next slot, to write a frame in place: *data has NFL_FRAME_MAX bytes, of any content.
 * Returns that number. A port has a single reserved slot at a time: a second call names the same slot.
 * -ENOBUFS: no slot is free, flush first.
 */
int nfl_tx_reserve(struct nfl_port *port, uint8_t **data);

/*
 * Queues the first `len` bytes of the reserved slot; 0 gives the slot back instead. -EMSGSIZE and
 * -ENOBUFS as for nfl_send_copy(): the slot stays reserved. -EINVAL: no slot is reserved.
 */
int nfl_tx_commit(struct nfl_port *port, size_t len);

/*
 * Queues a received frame of the same instance, with its present bytes, frame->len and metadata, on
 * `to`; nothing is copied. The frame's bytes and metadata may not be changed, and it may not be released, before the
 * next flush of `to` has consumed it. A frame may be forwarded to several ports. frame->data must
 * be as nfl_receive() set it. -EINVAL: not a frame of this instance; -EMSGSIZE: not the length of a
 * frame, or more than nfl_frame_room(); -EBADMSG: the metadata does not fit the changed frame->len;
 * -ENOBUFS: the port's ring is full, flush first. Of an instance in a trust group the frame's
 * bytes are the receiver's after that flush; a second time -EBUSY: send a copy before it.
 */
int nfl_forward(struct nfl_port *to, const struct nfl_frame *frame);

/* Flag of nfl_flush(): what a full link does not take stays queued. A switch drops in any case. */
#define NFL_KEEP 1u

/*
 * Hands all queued frames to the switch, in the calling thread's own time, and wakes the receiver.
 * Returns how many frames were consumed. Without NFL_KEEP, those that find a full receiver are
 * dropped and counted there. -EBUSY: another thread is in a call on this port; -ENETDOWN: the port
 * is down. After an error the queued frames are gone.
 */
int nfl_flush(struct nfl_port *port, unsigned int flags);

/* Frames queued and not yet consumed. */
int nfl_queued(const struct nfl_port *port);

/* Return values of nfl_wait(). */
#define NFL_WOKEN_NOTHING 0 /* the time is over, a signal came, or a ring without a frame */
#define NFL_WOKEN_FRAME 1 /* some port has a frame */
#define NFL_WOKEN_FD 2 /* other_fd is ready */

/*
 * Waits until a port of the instance has a frame, `other_fd` (-1: none) can be read, or timeout_ms
 * milliseconds are over; at most NFL_WAIT_MAX_MS, which a negative timeout stands for. The call spins for
 * some microseconds while that has paid lately, then sleeps. Flush first: the call sends nothing.
 * -EBADF: other_fd is not open.
 */
int nfl_wait(struct nfl_instance *instance, int other_fd, int timeout_ms);

/*
 * Sleep by other means than nfl_wait(), for a program with an event loop or several threads: one thread
 * calls nfl_wait_ring() again and again, and wakes the threads that have the ports; each of these calls
 * nfl_sleep() before it sleeps, and nfl_awake() afterwards. A ring does not say which port has the frame.
 *
 * nfl_sleep() returns 1: the next frame of the port rings; 0: a frame waits already, so do not sleep.
 * A ring that comes between nfl_sleep() and the sleep must not be lost: let it wait in an eventfd.
 */
int nfl_sleep(struct nfl_port *port);
int nfl_awake(struct nfl_port *port);

/*
 * Waits until a sender rings, or for timeout_ms as in nfl_wait(). 1: rung; 0: not. Other threads may use
 * ports meanwhile; none may be in a function that takes the instance.
 */
int nfl_wait_ring(struct nfl_instance *instance, int timeout_ms);

/* Writes what the library has counted on the port to *stats. */
int nfl_stats(const struct nfl_port *port, struct nfl_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* NFLUID_H */
