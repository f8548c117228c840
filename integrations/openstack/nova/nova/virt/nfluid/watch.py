# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tells Nova of servers that have ended and are not started again. By itself, Nova looks every ten minutes."""

import threading
import time

from nova.virt import event
from oslo_log import log as logging

from nova.virt.nfluid.api import ApiError

LOG = logging.getLogger(__name__)

# Milliseconds for which the daemon keeps a question that it has no answer to yet.
WAIT_MS = 20000
# Seconds until a daemon is asked again that has not answered.
RETRY = 5
# Kinds of events after which an instance may be one that has ended.
KINDS = frozenset(("exited", "crashed", "crash_loop"))
ENDED = frozenset(("stopped", "failed"))


def start(host, tell):
    """Follows the events of a host in a thread of its own; `tell` is called with each event for Nova."""
    threading.Thread(target=_follow, args=(host, tell), daemon=True).start()


def _follow(host, tell):
    position = 0
    while True:
        try:
            page = host.daemon.request("GET", f"/v1/events?since={position}&wait_ms={WAIT_MS}")
            for name in sorted({it["name"] for it in page["events"] if it["kind"] in KINDS and it.get("object") == "instance"}):
                found = host.find(name)
                if found and found["state"] in ENDED:
                    tell(event.LifecycleEvent(name, event.EVENT_LIFECYCLE_STOPPED))
            position = page["next"]
        except ApiError as error:
            LOG.debug("events: %s", error)
            time.sleep(RETRY)
        except Exception:
            # Nova may not find the server, or its database. It looks by itself later.
            LOG.exception("telling Nova of a server that has ended")
            time.sleep(RETRY)
