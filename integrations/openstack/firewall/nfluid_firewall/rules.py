# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Rules of security groups, and what packets they match."""

import collections
import ipaddress

IPV4, IPV6 = 0x0800, 0x86DD
TCP, UDP, SCTP = 6, 17, 132
ICMP, ICMPV6 = 1, 58
INGRESS, EGRESS = "ingress", "egress"

PORTS = {TCP: "tcp", UDP: "udp", SCTP: "sctp"}
# The fields of a family's addresses.
SOURCE = {IPV4: "ipv4_src", IPV6: "ipv6_src"}
DESTINATION = {IPV4: "ipv4_dst", IPV6: "ipv6_dst"}
# The address that is not the instance's, by direction.
REMOTE = {INGRESS: SOURCE, EGRESS: DESTINATION}

# What a rule permits. `matches`: the packets, as tuples of fields and values, one of which matches. `remote`: the id of a group whose members' addresses the
# other end has, or None.
Rule = collections.namedtuple("Rule", "direction matches remote")


def read(rule, numbers):
    """Returns Neutron's rule as one of ours.

    numbers: the numbers of protocols by name.
    Raises ValueError for what this driver does not know.
    """
    family = {"IPv4": IPV4, "IPv6": IPV6}[rule["ethertype"]]
    direction = rule["direction"]
    if direction not in REMOTE:
        raise ValueError(f"direction {direction}")
    fields = [("eth_type", family)]
    for key, field in (("source_ip_prefix", SOURCE), ("dest_ip_prefix", DESTINATION)):
        if rule.get(key):
            fields += address(field[family], rule[key])
    protocol = number_of(rule.get("protocol"), family, numbers)
    matches = [tuple(fields)]
    if protocol is not None:
        fields.append(("ip_proto", protocol))
        if protocol in PORTS:
            matches = with_ports(tuple(fields), PORTS[protocol], rule)
        else:
            matches = [tuple(fields) + icmp(family, protocol, rule)]
    remote = rule.get("remote_group_id") or rule.get("remote_address_group_id")
    return Rule(direction, frozenset(matches), remote)


def number_of(protocol, family, numbers):
    """Returns the number of a protocol, None for all of them."""
    if protocol is None or protocol == "any":
        return None
    if protocol == "icmp" and family == IPV6:
        return ICMPV6
    number = int(protocol) if str(protocol).isdigit() else numbers.get(protocol)
    if number is None or not 0 <= number < 256:
        raise ValueError(f"protocol {protocol}")
    # Neutron's protocol 0 is all of them, unless it is called by its name.
    return None if number == 0 and protocol != "hopopt" else number


def icmp(family, protocol, rule):
    """Returns the fields of type and code of ICMP."""
    kind, code = rule.get("port_range_min"), rule.get("port_range_max")
    if protocol not in (ICMP, ICMPV6) or kind is None:
        return ()
    prefix = {(IPV4, ICMP): "icmpv4", (IPV6, ICMPV6): "icmpv6"}.get((family, protocol))
    if prefix is None:
        raise ValueError(f"protocol {protocol} with a type, in the other family")
    return ((f"{prefix}_type", int(kind)),) + (() if code is None else ((f"{prefix}_code", int(code)),))


def with_ports(fields, protocol, rule):
    """Returns matches with a rule's ranges of ports."""
    sources = port_range(rule.get("source_port_range_min"), rule.get("source_port_range_max"))
    destinations = port_range(rule.get("port_range_min"), rule.get("port_range_max"))
    named = lambda side, ranges: [((f"{protocol}_{side}", it),) if it else () for it in ranges]
    return [fields + source + destination for source in named("src", sources) for destination in named("dst", destinations)]


def port_range(low, high):
    """Returns a range of ports as values with masks, [None] for all of them."""
    low, high = int(low or 0), 0xFFFF if high is None else int(high)
    if not 0 <= low <= high <= 0xFFFF:
        raise ValueError(f"ports {low} to {high}")
    if high - low == 0xFFFF:
        return [None]
    found = []
    while low <= high:
        # The largest block that begins here, and ends within the range.
        size = low & -low or 0x10000
        while size > high - low + 1:
            size >>= 1
        found.append((low, 0x10000 - size))
        low += size
    return found


def address(field, prefix):
    """Returns the field of an address or prefix; none for a prefix that is every address."""
    network = ipaddress.ip_network(prefix, strict=False)
    if network.prefixlen == 0:
        return []
    if network.prefixlen == network.max_prefixlen:
        return [(field, str(network.network_address))]
    return [(field, (str(network.network_address), str(network.netmask)))]


def family_of(prefix):
    """Returns the Ethernet type of an address's or prefix's family."""
    return IPV4 if ipaddress.ip_network(prefix, strict=False).version == 4 else IPV6
