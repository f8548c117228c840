#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The firewall of a bridge without Neutron, for tests and measurements: firewall.py SOCKET COOKIE.

Each line of the input is a JSON object whose parts are applied together: `rules` and `members` by group, as Neutron's agent has them; `ports` by name, each with
`number`, `net`, `mac`, `addresses` (pairs of a hardware address, and an address or prefix) and `groups`; `removed`, names of ports. Each answer is a line as well: {"ok": seconds} or {"error": text}.
"""

import json
import pathlib
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


def main(socket, cookie):
    firewall = Firewall(openflow.Switch(socket, lambda: int(cookie)))
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
