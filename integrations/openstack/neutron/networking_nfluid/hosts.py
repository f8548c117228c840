# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The daemons of hosts, and the security groups that Neutron has there."""

from __future__ import annotations

from networking_nfluid.api import ApiError, named_daemons, path_of


def daemons(entries, options):
    """Returns the daemons of each host. `entries`: `HOST=PLACE`; `options`: the other options of a daemon."""
    hosts = {}
    for host, daemon in named_daemons(entries, options, "[ml2_nfluid] daemons", "HOST=HOST:PORT or HOST=/PATH/OF/ITS/SOCKET"):
        hosts.setdefault(host, []).append(daemon)
    return hosts


def put(daemon, wanted):
    """Makes groups, or makes them what they are to be."""
    if wanted:
        daemon.merge({"version": 1, "security_groups": wanted})


def remove(daemon, name):
    """Removes a group, if it is there."""
    daemon.request_if_there("DELETE", path_of("security-groups", name))


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
