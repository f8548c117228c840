#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes what RabbitMQ carries, for `nfluid-orchestra analyse --openstack-trace`.

    rabbitmqctl trace_on && python3 trace.py amqp://guest:guest@127.0.0.1:5672// SECONDS > trace.jsonl

A line of JSON for each message that a queue delivers: `t` (seconds since 1970), `method` (of a call, or the type of a notification), `server` (the ids in it that may
be a server's), `request` (Nova's id of the request), `id` and `answers` (a call, and its answer). The broker's tracing costs about a message more for each message:
for measurements only.
"""

import json
import re
import socket
import sys
import time

import kombu

UUID = re.compile(r'"(?:uuid|instance_uuid|server_uuid)": ?"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"')


def line_of(body, now):
    """Returns what there is to tell of a message, None if it is none of OpenStack's."""
    try:
        text = body if isinstance(body, str) else bytes(body).decode()
        message = json.loads(text)
        if "oslo.message" in message:
            text = message["oslo.message"]
            message = json.loads(text)
    except (ValueError, TypeError):
        return None
    return {
        "t": round(now, 6),
        "method": message.get("method") or message.get("event_type"),
        "server": sorted(set(UUID.findall(text)))[:16],
        "request": message.get("_context_request_id"),
        "id": message.get("_msg_id") if "method" in message else None,
        "answers": message.get("_msg_id") if "method" not in message and "event_type" not in message else None,
    }


def main():
    url, seconds = sys.argv[1], float(sys.argv[2])
    end = time.time() + seconds

    def seen(body, message):
        line = line_of(body, time.time())
        if line and message.delivery_info["routing_key"].startswith("deliver"):
            print(json.dumps(line), flush=True)
        message.ack()

    with kombu.Connection(url) as connection:
        exchange = kombu.Exchange("amq.rabbitmq.trace", "topic", durable=True, passive=True)
        queue = kombu.Queue(f"trace-{time.time()}", exchange, "#", exclusive=True, auto_delete=True)
        with connection.Consumer(queue, callbacks=[seen], accept=None):
            while time.time() < end:
                try:
                    connection.drain_events(timeout=0.2)
                except socket.timeout:
                    pass


if __name__ == "__main__":
    main()
