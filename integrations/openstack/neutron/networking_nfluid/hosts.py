# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The daemons of hosts, and the security groups that Neutron has there."""

from __future__ import annotations

import json

from networking_nfluid import groups
from networking_nfluid.api import ApiError, Daemon, path_of


def daemons(entries, options):
    """Returns the daemons of each host. `entries`: `HOST=PLACE`; `options`: the other options of a daemon."""
    hosts = {}
    for entry in entries:
        host, equals, place = entry.partition("=")
        if not equals or not host or not place:
            raise ValueError(f"[ml2_nfluid] daemons: '{entry}': HOST=HOST:PORT or HOST=/PATH/OF/ITS/SOCKET is expected")
        where = {"socket": place} if place.startswith("/") else {"host": place}
        hosts.setdefault(host, []).append(Daemon({**options, **where}))
    return hosts


def put(daemon, wanted):
    """Makes groups, or makes them what they are to be."""
    if wanted:
        document = {"version": 1, "security_groups": wanted}
        daemon.request("POST", "/v1/apply", {"text": json.dumps(document), "merge": True})


def remove(daemon, name):
    """Removes a group, if it is there."""
    try:
        daemon.request("DELETE", path_of("security-groups", name))
    except ApiError as error:
        if error.problem.get("status") != 404:
            raise


def sync(daemon, wanted, owner):
    """Makes a daemon's groups of this owner those that are wanted. One that a port or a rule still names stays; returns the refusals."""
    put(daemon, wanted)
    refused = []
    # Groups of ports name remote groups, and go first.
    present = sorted(daemon.request("GET", "/v1/security-groups"), key=lambda group: group["name"])
    for group in present:
        if group.get("owner") != owner or group["name"] in wanted:
            continue
        try:
            remove(daemon, group["name"])
        except ApiError as error:
            if "status" not in error.problem:
                raise
            refused.append(f"{group['name']}: {error}")
    return refused
