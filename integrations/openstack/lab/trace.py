#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Writes what RabbitMQ carries, for `nfluid-orchestra analyse --openstack-trace`.

    rabbitmqctl trace_on && python3 trace.py amqp://guest:guest@127.0.0.1:5672// SECONDS > trace.jsonl

A line of JSON for each message that is sent: `t` (seconds since 1970), `method` (of a call, or the type of a notification), `server` (the id of the server that it is
about), `request` (Nova's id of the request), `id` and `answers` (a call, and its answer). The broker's tracing costs about a message more for each message:
for measurements only.
"""

import json
import socket
import sys
import time

import kombu

def server_of(message):
    """Returns the id of the server that a call or a notification is about, None if it is about none."""
    arguments = message.get("args") or {}
    candidates = [arguments.get("instance"), message.get("payload"), *(arguments.get("build_requests") or [])]
    for candidate in candidates:
        data = candidate.get("nova_object.data") if isinstance(candidate, dict) else None
        found = (data or {}).get("uuid") or (data or {}).get("instance_uuid")
        if found:
            return found
    return None


def line_of(body, now):
    """Returns what there is to tell of a message, None if it is none of OpenStack's."""
    try:
        message = json.loads(body if isinstance(body, str) else bytes(body).decode())
        if "oslo.message" in message:
            message = json.loads(message["oslo.message"])
    except (ValueError, TypeError):
        return None
    is_call = "method" in message
    return {
        "t": round(now, 6),
        "method": message.get("method") or message.get("event_type"),
        "server": server_of(message),
        "request": message.get("_context_request_id"),
        "id": message.get("_msg_id") if is_call else None,
        "answers": None if is_call or "event_type" in message else message.get("_msg_id"),
    }


def main():
    url, seconds = sys.argv[1], float(sys.argv[2])
    end = time.time() + seconds

    def seen(body, message):
        line = line_of(body, time.time())
        if line and message.delivery_info["routing_key"].startswith("publish"):
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
