# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Security groups of Neutron as security groups of nfluid: one for each port, with the rules of all groups that the port is in.

So a port's interface names one group for as long as it lives, and whatever changes - rules, members, the port's groups and addresses - is a change of that group.
Everything here is a function of plain values.
"""

from __future__ import annotations

# Neutron's names of protocols that nfluid writes otherwise. Others are numbers, or the same words.
PROTOCOLS = {"ipv6-icmp": "icmpv6", "icmpv6": "icmpv6", "dccp": 33, "egp": 8, "igmp": 2, "ipip": 4, "ipv6-encap": 41, "ipv6-frag": 44,
             "ipv6-nonxt": 59, "ipv6-opts": 60, "ipv6-route": 43, "ospf": 89, "pgm": 113, "rsvp": 46, "udplite": 136, "vrrp": 112}
WITH_PORTS = frozenset(("tcp", "udp", "sctp", "6", "17", "132"))
ICMP = {"IPv4": frozenset(("icmp", "1")), "IPv6": frozenset(("icmp", "icmpv6", "ipv6-icmp", "1", "58"))}
# An address that no packet but a client's of DHCP has.
NOBODY = "0.0.0.0/32"


def name_of(port_id):
    """Returns the name of a port's group."""
    return f"port-{port_id}"


def remote_name_of(group_id):
    """Returns the name of the group that stands for a group of Neutron in rules."""
    return f"remote-{group_id}"


def remote_group(members, owner):
    """Returns the group that stands for one of Neutron in rules. `members`: addresses by `IPv4` and `IPv6`."""
    return {"owner": owner, "members": sorted(address for found in members.values() for address in found)}


def group_of(port, rules, owner):
    """Returns a port's group.

    `port`: its `fixed_ips` (addresses) and `allowed_address_pairs`. `rules`: those of all its groups.
    """
    addresses = {*port["fixed_ips"], *(pair["ip_address"] for pair in port.get("allowed_address_pairs", []))}
    unique = {tuple(sorted(line.items())): line for line in map(line_of, rules)}
    return {"owner": owner, "allowed_addresses": sorted(addresses) or [NOBODY], "rules": [unique[key] for key in sorted(unique, key=str)]}


def open_group(owner):
    """Returns the group of a port whose port security was switched off since it was bound: everything passes."""
    rules = [{"direction": direction, "family": family} for direction in ("in", "out") for family in ("ipv4", "ipv6")]
    return {"owner": owner, "allowed_addresses": [], "rules": rules}


def line_of(rule):
    """Returns a rule as one of nfluid."""
    line = {"direction": "in" if rule["direction"] == "ingress" else "out", "family": rule["ethertype"].lower()}
    protocol = rule.get("protocol")
    if protocol is not None and str(protocol) not in ("any", "-1"):
        add_protocol(line, str(protocol), rule)
    group = rule.get("remote_group_id") or rule.get("remote_address_group_id")
    prefix = rule.get("source_ip_prefix" if rule["direction"] == "ingress" else "dest_ip_prefix")
    if group:
        line["remote_group"] = remote_name_of(group)
    elif prefix:
        line["remote"] = str(prefix)
    return line


def add_protocol(line, protocol, rule):
    """Adds a protocol, and what the rule says of its ports or of its messages."""
    first, last = rule.get("port_range_min"), rule.get("port_range_max")
    if protocol in ICMP[rule["ethertype"]]:
        line["protocol"] = "icmp" if rule["ethertype"] == "IPv4" else "icmpv6"
        if first is not None:
            line["icmp"] = str(first) if last is None else f"{first}/{last}"
        return
    line["protocol"] = PROTOCOLS.get(protocol, int(protocol) if protocol.isdigit() else protocol)
    if protocol in WITH_PORTS and first is not None:
        line["ports"] = str(first) if last in (None, first) else f"{first}-{last}"
