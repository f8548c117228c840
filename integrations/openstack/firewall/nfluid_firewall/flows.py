# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Security groups as flows of Open vSwitch.

A flow is a key (table, priority, match) and its actions. The tables are those of Neutron's own driver, so that whatever else Neutron's agent has on the bridge
goes on (https://docs.openstack.org/neutron/latest/contributor/internals/openvswitch_firewall.html). What is in them is not:

- Ports whose groups permit the same share a *profile*: the flows of these rules, for any number of ports. A port's own flows write its profile into a register.
- A rule is one flow, not one for each state of a connection: the states are told apart before it and after it, once for all.
- A rule that names a group is a conjunction of what else it says, in its profiles, and of the group's members.
"""

import collections
import ipaddress

from nfluid_firewall.rules import DESTINATION, EGRESS, ICMPV6, INGRESS, IPV4, IPV6, REMOTE, SOURCE, UDP, address, family_of

TRANSIENT = 60
BASE_EGRESS, RULES_EGRESS, ACCEPT_OR_INGRESS = 71, 72, 73
BASE_INGRESS, RULES_INGRESS = 81, 82
# What other parts of Neutron look at, such as its logging: the first packets of accepted connections, and what is dropped.
ACCEPTED_EGRESS, ACCEPTED_INGRESS, DROPPED = 91, 92, 93
ACCEPTED_EGRESS_NORMAL = 94

RULES = {EGRESS: RULES_EGRESS, INGRESS: RULES_INGRESS}
# The priority of rules. All of them permit, and so it matters to nobody which of several a packet meets.
RULE = 70

# The registers: Neutron's own numbers of the port and of the network, which is the zone of connection tracking as well.
PORT, NET = "reg5", "reg6"
PROFILE, STEP = "reg8", "reg9"
# Steps of a packet: where it comes from is right; a rule permits it; its sender has no address yet.
GENUINE, PERMITTED, BEGINNING = 1, 2, 3

# A connection that no rule permits any more.
WITHDRAWN = 1

ARP = 0x0806
# Router advertisements and redirects are routers' to send.
ROUTER_MESSAGES = (134, 137)
# Queries and reports of multicast listeners, router and neighbour solicitations.
NEIGHBOUR_MESSAGES = (130, 131, 132, 133, 135, 143)
ADVERTISEMENT = 136
# DHCP: Ethernet type, the client's port, the server's.
DHCP = ((IPV4, 68, 67), (IPV6, 546, 547))

NEW, ESTABLISHED, RELATED, REPLY, INVALID, TRACKED = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20

# A port. `number`: OpenFlow's. `net`: the VLAN of its network on this host. `addresses`: pairs of a hardware address, and an address or prefix.
Port = collections.namedtuple("Port", "number net mac addresses")


def state(on, off=0):
    """Returns the match of a connection's state: these bits are set, and those are not."""
    return ("ct_state", (on, on | off))


def goto(table):
    return ("goto", table)


def commit(mark=None):
    """The action that keeps a connection."""
    return ("commit", mark)


def track(table):
    """The action that looks a packet's connection up, and goes on in a table."""
    return ("track", table)


OUTPUT = ("output_reg", PORT)
DROP = goto(DROPPED)
TO_NORMAL = goto(ACCEPTED_EGRESS_NORMAL)


def udp(family, source, destination):
    return (("eth_type", family), ("ip_proto", UDP), ("udp_src", source), ("udp_dst", destination))


def icmpv6(kind):
    return (("eth_type", IPV6), ("ip_proto", ICMPV6), ("icmpv6_type", kind))


def common(permitted_ethertypes=()):
    """Returns the flows that all ports share.

    permitted_ethertypes: numbers of Ethernet types that pass unlooked at.
    """
    found = {}

    def flow(table, priority, match, *actions):
        found[table, priority, match] = actions

    tracked, genuine = state(TRACKED), (STEP, GENUINE)
    # ---- from a port: is it who it says it is?
    flow(BASE_EGRESS, 110, (tracked,), ("ct_clear",), goto(BASE_EGRESS))
    for family, client, server in DHCP:
        flow(BASE_EGRESS, 105, (genuine, *udp(family, client, server)), goto(ACCEPT_OR_INGRESS))
        flow(BASE_EGRESS, 105, (genuine, *udp(family, server, client)), DROP)
        flow(BASE_EGRESS, 100, (genuine, ("eth_type", family)), track(RULES_EGRESS))
    for kind in NEIGHBOUR_MESSAGES:
        flow(BASE_EGRESS, 105, (genuine, *icmpv6(kind)), TO_NORMAL)
    # Before a port has an address, it asks for one, and whether another has it. Queries of listeners are not among that.
    flow(BASE_EGRESS, 105, ((STEP, BEGINNING), *udp(IPV4, 68, 67)), goto(ACCEPT_OR_INGRESS))
    for kind in NEIGHBOUR_MESSAGES[1:]:
        flow(BASE_EGRESS, 105, ((STEP, BEGINNING), *icmpv6(kind)), TO_NORMAL)
    # What an advertisement tells of its own address is a port's own flow.
    for kind in (*ROUTER_MESSAGES, ADVERTISEMENT):
        flow(BASE_EGRESS, 105, (genuine, *icmpv6(kind)), DROP)
    for number in permitted_ethertypes:
        flow(BASE_EGRESS, 95, (("eth_type", number),), TO_NORMAL)
        flow(BASE_INGRESS, 100, (("eth_type", number),), OUTPUT)
    flow(BASE_EGRESS, 0, (), ("ct_clear",), DROP)

    # ---- from a port, permitted: to another port of this bridge, or away
    for family in (IPV4, IPV6):
        new = (state(NEW | TRACKED, ESTABLISHED), ("eth_type", family))
        flow(ACCEPT_OR_INGRESS, 90, new, commit(), goto(ACCEPTED_EGRESS))
    flow(ACCEPT_OR_INGRESS, 80, (), TO_NORMAL)
    flow(ACCEPTED_EGRESS, 1, (), TO_NORMAL)
    flow(ACCEPTED_EGRESS_NORMAL, 1, (), ("normal",))

    # ---- to a port
    flow(BASE_INGRESS, 100, (("eth_type", ARP),), OUTPUT)
    for kind in (*NEIGHBOUR_MESSAGES, ADVERTISEMENT, ROUTER_MESSAGES[0]):
        flow(BASE_INGRESS, 100, icmpv6(kind), OUTPUT)
    for family, client, server in DHCP:
        flow(BASE_INGRESS, 95, udp(family, server, client), OUTPUT)
        flow(BASE_INGRESS, 90, (state(0, TRACKED), ("eth_type", family)), track(RULES_INGRESS))
    flow(BASE_INGRESS, 80, (tracked,), goto(RULES_INGRESS))
    flow(BASE_INGRESS, 0, (), DROP)
    flow(ACCEPTED_INGRESS, 0, ())
    flow(DROPPED, 0, ())

    # ---- rules, around those of profiles
    for table, accept in ((RULES_EGRESS, (goto(ACCEPT_OR_INGRESS),)), (RULES_INGRESS, (OUTPUT,))):
        flow(table, 95, (state(INVALID | TRACKED),), DROP)
        permitted, alive, withdrawn = (STEP, PERMITTED), ("ct_mark", 0), ("ct_mark", WITHDRAWN)
        for family in (IPV4, IPV6):
            of_family = ("eth_type", family)
            # Its rule is back.
            flow(table, 93, (permitted, state(ESTABLISHED | TRACKED), withdrawn, of_family), commit(0), *accept)
            if table == RULES_INGRESS:
                new = state(NEW | TRACKED, ESTABLISHED)
                flow(table, 92, (permitted, new, of_family), commit(), *accept, goto(ACCEPTED_INGRESS))
            # No rule permits what it used to: neither end hears of this connection from now on.
            flow(table, 40, (state(ESTABLISHED | TRACKED, REPLY), alive, of_family), commit(WITHDRAWN), DROP)
        flow(table, 91, (permitted,), *accept)
        flow(table, 80, (state(ESTABLISHED | REPLY | TRACKED, RELATED), alive), *accept)
        flow(table, 80, (state(RELATED | TRACKED, NEW | ESTABLISHED | INVALID), alive), *accept)
        # Rules are for the side that has opened a connection.
        flow(table, 79, (state(REPLY | TRACKED),), DROP)
        flow(table, 0, (), DROP)
    return found


def from_port(port, profile):
    """Returns the flow by which a port's packets come in.

    profile: the number of its profile.
    """
    return {(TRANSIENT, 100, (("in_port", port.number),)): (*known(port, profile), goto(BASE_EGRESS))}


def of_sender(port):
    """Returns the flows that tell whether a port's packets are its own."""
    own = (PORT, port.number)
    sender = (own, ("eth_src", port.mac))
    found = {
        (BASE_EGRESS, 95, (*sender, ("eth_type", ARP), ("arp_sha", port.mac), ("arp_spa", "0.0.0.0"))): (TO_NORMAL,),
    }
    for family, unspecified in ((IPV4, "0.0.0.0"), (IPV6, "::")):
        match = (*sender, ("eth_type", family), (SOURCE[family], unspecified))
        found[BASE_EGRESS, 65, match] = (("set", STEP, BEGINNING), goto(BASE_EGRESS))
    link_local = {(mac, link_local_of(mac)) for mac, prefix in (*port.addresses, (port.mac, "::")) if family_of(prefix) == IPV6}
    for mac, prefix in {*port.addresses, *link_local}:
        family = family_of(prefix)
        sender = (own, ("eth_src", mac), ("eth_type", family))
        found[BASE_EGRESS, 65, (*sender, *address(SOURCE[family], prefix))] = (("set", STEP, GENUINE), goto(BASE_EGRESS))
        if family == IPV4:
            told = (own, ("eth_src", mac), ("eth_type", ARP), ("arp_sha", mac), *address("arp_spa", prefix))
            found[BASE_EGRESS, 95, told] = (TO_NORMAL,)
        else:
            told = (own, (STEP, GENUINE), *icmpv6(ADVERTISEMENT), *address("ipv6_nd_target", prefix))
            found[BASE_EGRESS, 107, told] = (TO_NORMAL,)
    return found


def towards_port(port, profile):
    """Returns the flows by which packets find a port: what is done with a packet, and then for this port.

    Ports may share a hardware address. Each of them gets what is sent to it.
    """
    found = {}
    towards = (*known(port, profile), goto(BASE_INGRESS))
    for mac in {port.mac, *(mac for mac, _ in port.addresses)}:
        # What comes from outside may have been tracked in another zone.
        found[TRANSIENT, 90, (("vlan_vid", port.net), ("eth_dst", mac))] = ((("ct_clear",), ("strip_vlan",)), towards)
        found[ACCEPT_OR_INGRESS, 100, ((NET, port.net), ("eth_dst", mac))] = ((), towards)
    return found


def known(port, profile):
    """Returns the actions that write down what is known of a port."""
    return (("set", PORT, port.number), ("set", NET, port.net), ("set", PROFILE, profile), ("set", STEP, 0))


def of_trusted(number, net):
    """Returns the flows of a port that nobody filters."""
    actions = (("ct_clear",), ("set", PORT, number), ("set", NET, net), ("set", STEP, 0), goto(ACCEPT_OR_INGRESS))
    return {(TRANSIENT, 100, (("in_port", number),)): actions}


def of_profile(profile, rules, conjunctions):
    """Returns the flows of a profile.

    profile: its number. rules: what is permitted. conjunctions: the numbers of the remote groups.
    """
    remotes = {}
    for rule in rules:
        for match in rule.matches:
            remotes.setdefault((rule.direction, match), set()).add(rule.remote)
    found = {}
    for (direction, match), named in remotes.items():
        # A rule for everybody is one for members as well.
        actions = permit(direction) if None in named else tuple(("conjunction", conjunctions[remote], 2) for remote in sorted(named))
        found[RULES[direction], RULE, ((PROFILE, profile), *match)] = actions
    return found


def permit(direction):
    """Returns the actions of a rule."""
    return (("set", STEP, PERMITTED), goto(RULES[direction]))


def of_conjunction(direction, number):
    """Returns the flow of a remote group that is named by a rule in this direction."""
    return {(RULES[direction], RULE, (("conj_id", number),)): permit(direction)}


def member_match(direction, net, member):
    """Returns the key of the flow of a member of remote groups.

    member: an address or prefix, or a pair of it and a hardware address.
    """
    prefix, mac = (member, None) if isinstance(member, str) else member
    family = family_of(prefix)
    fields = ((NET, net), ("eth_type", family), *address(REMOTE[direction][family], prefix))
    if mac and ipaddress.ip_network(prefix, strict=False).prefixlen == 0:
        # A port that may have any address is known by its hardware address alone.
        fields += (("eth_src" if direction == INGRESS else "eth_dst", mac),)
    return (RULES[direction], RULE, fields)


def link_local_of(mac):
    """Returns the link-local address that belongs to a hardware address (RFC 4291, appendix A)."""
    octets = bytearray.fromhex(mac.replace(":", ""))
    octets[0] ^= 2
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + octets[:3] + b"\xff\xfe" + octets[3:]))
