# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The state of a bridge's security groups: which flows there are, and which there are to be."""

import collections
import ipaddress
import itertools

from nfluid_firewall import flows
from nfluid_firewall.rules import REMOTE, family_of


class Applied(collections.namedtuple("Applied", "port groups profile sender")):
    """A port as it is applied: itself, its groups, what they permit, and the flows that tell whether its packets are its own."""

    def own(self):
        """Returns its flows, without those towards it."""
        return self.sender | flows.from_port(self.port, self.profile.number)


class Profile:
    """What some ports' groups permit."""

    def __init__(self, number, rules):
        self.number, self.rules, self.users = number, rules, 0
        # The remote groups that the rules name: direction, group and family.
        self.remotes = {(rule.direction, rule.remote, match[0][1]) for rule in rules if rule.remote for match in rule.matches}


class Firewall:
    """Security groups of ports on one bridge.

    Rules and members are kept, and come to a port with its next `set_port`. Changes are written when they are made, or with `defer` all at once.
    """

    def __init__(self, switch, permitted_ethertypes=()):
        self._switch = switch
        self._permitted = permitted_ethertypes
        self._deferred = self._has_lost = False
        self._rules, self._members = {}, {}
        self.start()

    def start(self):
        """Begins with the bridge as it is. Flows of an earlier run stay until whoever knows their cookie takes them away; nothing mixes with them."""
        self._ports, self._trusted = {}, {}
        self._profiles = {}
        # How many ports name a remote group: by direction, network, group and family; by direction and group; by group.
        self._uses = collections.Counter()
        # By direction, network, remote group and family: the members that have flows, and the keys of these.
        self._shown = {}
        self._conjunctions = {}
        # Flows that several may have a part in: what each adds.
        self._towards = {}
        self._addressed = collections.defaultdict(set)
        self._wanted, self._written, self._touched = {}, {}, set()
        self._numbers, self._earlier = None, {}
        self._put(flows.common(self._permitted))
        self._apply()
        self._read_earlier()

    def _next_number(self):
        """Returns a number for a profile or a conjunction that no flow on the bridge has."""
        if self._numbers is None:
            # The bridge was away at the start.
            self._read_earlier()
        return next(self._numbers)

    def _read_earlier(self):
        """Finds out the numbers that an earlier run has left free, and which members have flows of it."""
        used, live, members = set(), set(), {}
        for direction, table in flows.RULES.items():
            for priority, match, numbers in self._switch.flows(table):
                used.update(numbers)
                if flows.PROFILE in match:
                    used.add(match[flows.PROFILE])
                if "conj_id" in match:
                    used.add(match["conj_id"])
                    live.add(match["conj_id"])
                if numbers and flows.NET in match and priority == flows.RULE:
                    members[read_member(direction, match)] = numbers
        self._earlier = {key: numbers & live for key, numbers in members.items() if numbers & live}
        self._numbers = itertools.count(max(used, default=0) + 1)

    # ---- what Neutron says

    def set_rules(self, group, rules):
        """Keeps the rules of a group, for its ports' next change."""
        self._rules[group] = frozenset(rules)

    def set_members(self, group, members):
        """Keeps the members of a group, addresses or pairs of an address and a hardware address, for the next change of ports whose rules name it."""
        by_family = {}
        for member in members:
            by_family.setdefault(family_of(member if isinstance(member, str) else member[0]), set()).add(member)
        self._members[group] = {family: frozenset(found) for family, found in by_family.items()}

    def set_port(self, port_id, port, groups):
        """Makes a port what it is to be now, with the rules and members of now."""
        before = self._ports.get(port_id)
        sender = before.sender if before and before.port == port else flows.of_sender(port)
        profile = self._enter_profile(self._rules_of(groups), port.net)
        after = Applied(port, tuple(groups), profile, sender)
        self._ports[port_id] = after
        own = after.own()
        self._put(own)
        if before:
            self._drop(before.own().keys() - own.keys())
        self._set_towards(port_id, before, after)
        if before:
            self._leave_profile(before.profile, before.port.net)
            self._has_lost = True
        self._show_members(port.net, profile)
        self._apply_unless_deferred()

    def _rules_of(self, groups):
        found = [self._rules[group] for group in groups if group in self._rules]
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def remove_port(self, port_id):
        """Takes a port's flows away."""
        before = self._ports.pop(port_id, None)
        if before is None:
            return
        self._drop(before.own())
        self._set_towards(port_id, before, None)
        self._leave_profile(before.profile, before.port.net)
        self._has_lost = True
        self._apply_unless_deferred()

    def trust(self, port_id, number, net):
        """Lets everything pass from and to a port."""
        self._drop(self._trusted.pop(port_id, ()))
        self._trusted[port_id] = found = flows.of_trusted(number, net)
        self._put(found)
        self._apply_unless_deferred()

    def distrust(self, port_id):
        """Ends that."""
        self._drop(self._trusted.pop(port_id, ()))
        self._apply_unless_deferred()

    def defer(self):
        """Writes nothing until `apply`."""
        self._deferred = True

    def apply(self):
        """Writes what has changed since `defer`. Raises SwitchError; the next `apply` writes it then."""
        self._deferred = False
        self._forget_groups()
        self._apply()

    def _forget_groups(self):
        """Forgets groups that no port is in, and no port's rules name. Nobody tells when a group is gone."""
        if not self._has_lost:
            return
        self._has_lost = False
        in_use = {group for it in self._ports.values() for group in it.groups} | self._conjunctions.keys()
        for known in (self._rules, self._members):
            for group in known.keys() - in_use:
                del known[group]

    # ---- profiles and remote groups

    def _enter_profile(self, rules, net):
        """Returns the profile of these rules, for one port more of a network."""
        profile = self._profiles.get(rules) or Profile(self._next_number(), rules)
        self._use(net, profile, +1)
        if not profile.users:
            self._profiles[rules] = profile
            self._put(flows.of_profile(profile.number, rules, self._conjunctions))
        profile.users += 1
        return profile

    def _leave_profile(self, profile, net):
        profile.users -= 1
        if not profile.users:
            del self._profiles[profile.rules]
            self._drop(flows.of_profile(profile.number, profile.rules, self._conjunctions))
        self._use(net, profile, -1)

    def _use(self, net, profile, change):
        """Counts who names remote groups. Of a group that nobody names any more, the members' flows go."""
        for direction, remote, family in profile.remotes:
            if remote not in self._conjunctions:
                self._conjunctions[remote] = self._next_number()
            own = flows.of_conjunction(direction, self._conjunctions[remote])
            in_net = self._count((direction, net, remote, family), change)
            in_direction = self._count((direction, remote), change)
            anywhere = self._count(remote, change)
            if in_direction == change:
                self._put(own)
            if not in_net:
                self._show(direction, net, remote, family, frozenset())
            if not in_direction:
                self._drop(own)
            if not anywhere:
                del self._conjunctions[remote]

    def _count(self, use, change):
        """Changes how often something is used, and returns how often that is now."""
        self._uses[use] += change
        return self._uses[use] or self._uses.pop(use)

    def _show_members(self, net, profile):
        for direction, remote, family in profile.remotes:
            self._show(direction, net, remote, family, self._members.get(remote, {}).get(family, frozenset()))

    def _show(self, direction, net, remote, family, members):
        """Makes the flows of a remote group's members those of these ones."""
        use = (direction, net, remote, family)
        before, old = self._shown.pop(use, (frozenset(), frozenset()))
        # Ports that take an address over from each other are members with the same address: one flow.
        new = old if members == before else frozenset(flows.member_match(direction, net, member) for member in members)
        if members:
            self._shown[use] = (members, new)
        number = self._conjunctions[remote]
        for key in old - new:
            self._addressed[key].discard(number)
        for key in new - old:
            self._addressed[key].add(number)
        for key in old ^ new:
            self._write_member(key)

    def _write_member(self, key):
        numbers = self._addressed[key]
        if numbers:
            numbers = numbers | self._earlier.get(key, frozenset())
            self._put({key: tuple(("conjunction", number, 1) for number in sorted(numbers))})
        else:
            del self._addressed[key]
            self._drop([key])

    # ---- flows

    def _set_towards(self, port_id, before, after):
        """Changes the part of a port in the flows by which packets find it."""
        old = flows.towards_port(before.port, before.profile.number) if before else {}
        new = flows.towards_port(after.port, after.profile.number) if after else {}
        for key in old.keys() | new.keys():
            parts = self._towards.setdefault(key, {})
            parts.pop(port_id, None)
            if key in new:
                first, parts[port_id] = new[key]
            else:
                first, _ = old[key]
            if parts:
                self._put({key: sum((parts[it] for it in sorted(parts)), first)})
            else:
                del self._towards[key]
                self._drop([key])

    def _put(self, found):
        self._wanted.update(found)
        self._touched.update(found)

    def _drop(self, keys):
        for key in list(keys):
            self._wanted.pop(key, None)
            self._touched.add(key)

    def _apply_unless_deferred(self):
        if not self._deferred:
            self._apply()

    def _apply(self):
        # A port's first flows are written in any case: the agent takes them away when it gives a port another network.
        wanted = ((key, self._wanted.get(key)) for key in self._touched)
        changes = [(key, actions) for key, actions in wanted if actions != self._written.get(key) or (key[0] == flows.TRANSIENT and actions)]
        # A packet that is at connection tracking comes back with the profile that its port had before. So what it may need is taken away last: for a moment
        # both the earlier and the later rules permit.
        for step in ([it for it in changes if not is_rule(*it)], [it for it in changes if is_rule(*it)]):
            if step:
                self._switch.apply(step)
            for key, actions in step:
                if actions is None:
                    del self._written[key]
                else:
                    self._written[key] = actions
        self._touched.clear()


def is_rule(key, actions):
    """Returns true for a rule or member that goes."""
    return actions is None and key[1] == flows.RULE and key[0] in flows.RULES.values()


def read_member(direction, match):
    """Returns the key of a member's flow that a bridge has told."""
    field = REMOTE[direction].get(match.get("eth_type"))
    prefix = match.get(field, "0.0.0.0/0" if match.get("eth_type") == 0x0800 else "::/0")
    if not isinstance(prefix, str):
        prefix = "/".join(prefix) if "." in prefix[1] else f"{prefix[0]}/{bin(int(ipaddress.ip_address(prefix[1]))).count('1')}"
    return flows.member_match(direction, match[flows.NET], (prefix, match.get("eth_src") or match.get("eth_dst")))
