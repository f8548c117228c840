#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The firewall of a bridge without Neutron, for tests and measurements: firewall.py SOCKET COOKIE [USER]. With a user, it is that
user's, and reaches the bridge's socket by oslo.privsep, as an agent that is not root does.

Each line of the input is a JSON object whose parts are applied together: `rules` and `members` by group, as Neutron's agent has them; `ports` by name, each with
`number`, `net`, `mac`, `addresses` (pairs of a hardware address, and an address or prefix) and `groups`; `removed`, names of ports. Each answer is a line as well: {"ok": seconds} or {"error": text}.
"""

import json
import os
import pathlib
import pwd
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "firewall"))

from nfluid_firewall import flows, openflow, rules
from nfluid_firewall.firewall import Firewall

# Neutron's names of protocols that its agent gives by name.
NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "ipv6-icmp": 58, "sctp": 132}


def change(firewall, asked):
    firewall.defer()
    for group, found in asked.get("rules", {}).items():
        firewall.set_rules(group, [rules.read(rule, NUMBERS) for rule in found])
    for group, members in asked.get("members", {}).items():
        firewall.set_members(group, [it if isinstance(it, str) else tuple(it) for it in members])
    for name in asked.get("removed", ()):
        firewall.remove_port(name)
    for name, port in asked.get("ports", {}).items():
        addresses = tuple((mac, address) for mac, address in port["addresses"])
        firewall.set_port(name, flows.Port(port["number"], port["net"], port["mac"], addresses), port["groups"])
    firewall.apply()


def become(name):
    """Leaves a process behind that may open the socket, is another user from here on, and returns how that process is asked."""
    from oslo_privsep import priv_context

    from nfluid_firewall import privileged

    privileged.context.start(priv_context.Method.FORK)
    user = pwd.getpwnam(name)
    os.setgroups([])
    os.setresgid(*[user.pw_gid] * 3)
    os.setresuid(*[user.pw_uid] * 3)
    return privileged.ACCESS


def main(socket, cookie, user=None):
    access = become(user) if user else openflow.ACCESS
    firewall = Firewall(openflow.Switch(socket, lambda: int(cookie), access))
    for line in sys.stdin:
        begin = time.monotonic()
        try:
            change(firewall, json.loads(line))
            answer = {"ok": time.monotonic() - begin}
        except (openflow.SwitchError, ValueError, KeyError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
