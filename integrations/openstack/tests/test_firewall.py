# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Neutron's rules as flows, and which flows change."""

import unittest

from nfluid_firewall import flows, rules
from nfluid_firewall.firewall import Firewall

NUMBERS = {"tcp": 6, "udp": 17, "icmp": 1, "ipv6-icmp": 58, "hopopt": 0}
MAC = "02:00:00:00:00:0a"


def read(direction="ingress", ethertype="IPv4", **more):
    return rules.read({"direction": direction, "ethertype": ethertype, **more}, NUMBERS)


def matches(**more):
    """Returns the fields beyond the family's that a rule matches."""
    return sorted(tuple(match[1:]) for match in read(**more).matches)


class Switch:
    """A bridge that has what it is given."""

    def __init__(self):
        self.held, self.calls, self.fails = {}, [], False

    def apply(self, changes):
        if self.fails:
            raise OSError("the bridge is away")
        self.calls.append(dict(changes))
        for key, actions in changes:
            if actions is None:
                del self.held[key]
            else:
                self.held[key] = actions

    def flows(self, table):
        if self.fails:
            raise OSError("the bridge is away")
        for (of, priority, match), actions in self.held.items():
            if of == table:
                yield priority, dict(match), {it[1] for it in actions if it[0] == "conjunction"}

    def rules(self, table=82):
        """Returns the flows of rules and members of a table."""
        return {match: actions for (of, priority, match), actions in self.held.items() if (of, priority) == (table, flows.RULE)}


def port(number=1, net=7, mac=MAC, addresses=("10.0.0.5",)):
    return flows.Port(number, net, mac, tuple((mac, address) for address in addresses))


class Rules(unittest.TestCase):
    def test_ports_are_as_few_masks_as_cover_them(self):
        for low, high, expected in (
            (80, 80, [(80, 0xFFFF)]),
            (80, 81, [(80, 0xFFFE)]),
            (1, 65535, 16),
            (0, 65535, [None]),
            (None, None, [None]),
            (65535, 65535, [(65535, 0xFFFF)]),
            (1000, 1999, 7),
        ):
            found = rules.port_range(low, high)
            self.assertEqual(found if isinstance(expected, list) else len(found), expected)
            if low is not None and found != [None]:
                covered = {port for value, mask in found for port in range(value, value + 0x10000 - mask)}
                self.assertEqual(covered, set(range(low, high + 1)))

    def test_rules_mean_the_same(self):
        for given, expected in (
            ({}, [()]),
            ({"protocol": "any"}, [()]),
            ({"protocol": "0"}, [()]),
            ({"protocol": "hopopt"}, [(("ip_proto", 0),)]),
            ({"protocol": "tcp", "port_range_min": 80, "port_range_max": 80}, [(("ip_proto", 6), ("tcp_dst", (80, 0xFFFF)))]),
            ({"protocol": "6", "source_port_range_min": 8, "source_port_range_max": 8}, [(("ip_proto", 6), ("tcp_src", (8, 0xFFFF)))]),
            ({"protocol": "icmp", "port_range_min": 3, "port_range_max": 4}, [(("ip_proto", 1), ("icmpv4_type", 3), ("icmpv4_code", 4))]),
            ({"protocol": "icmp", "ethertype": "IPv6", "port_range_min": 128}, [(("ip_proto", 58), ("icmpv6_type", 128))]),
            ({"source_ip_prefix": "192.0.2.7/24"}, [(("ipv4_src", ("192.0.2.0", "255.255.255.0")),)]),
            ({"source_ip_prefix": "192.0.2.7"}, [(("ipv4_src", "192.0.2.7"),)]),
            ({"source_ip_prefix": "::/0", "ethertype": "IPv6"}, [()]),
            ({"protocol": "gre", "direction": "egress"}, ValueError),
            ({"protocol": "tcp", "port_range_min": 9, "port_range_max": 8}, ValueError),
            ({"protocol": "ipv6-icmp", "port_range_min": 128}, ValueError),
            ({"direction": "sideways"}, ValueError),
        ):
            with self.subTest(given):
                if expected is ValueError:
                    self.assertRaises(ValueError, read, **given)
                else:
                    self.assertEqual(matches(**given), expected)


class Changes(unittest.TestCase):
    def setUp(self):
        self.switch = Switch()
        self.firewall = Firewall(self.switch)
        self.empty = dict(self.switch.held)

    def test_ports_with_the_same_rules_share_their_flows(self):
        self.firewall.set_rules("web", [read(protocol="tcp"), read("egress")])
        for number in range(1, 101):
            self.firewall.set_port(number, port(number, mac=f"02:00:00:00:00:{number:02x}"), ["web"])
        self.assertEqual(len(self.switch.rules()), 1)
        self.assertEqual(len(self.switch.rules(flows.RULES_EGRESS)), 1)
        for number in range(1, 101):
            self.firewall.remove_port(number)
        self.assertEqual(self.switch.held, self.empty)

    def test_rules_and_members_come_to_a_port_with_its_own_change(self):
        self.firewall.set_rules("web", [read(remote_group_id="store")])
        self.firewall.set_members("store", ["10.0.0.6"])
        for number in (1, 2):
            self.firewall.set_port(number, port(number, mac=f"02:00:00:00:00:{number:02x}"), ["web"])
        before = dict(self.switch.held)
        self.firewall.set_rules("web", [read(protocol="tcp")])
        self.firewall.set_members("store", ["10.0.0.7"])
        self.assertEqual(self.switch.held, before)
        self.firewall.set_port(1, port(1, mac="02:00:00:00:00:01"), ["web"])
        changed = [key for key in before.keys() | self.switch.held.keys() if before.get(key) != self.switch.held.get(key)]
        of_two = [key for key in changed if ("in_port", 2) in key[2] or ("reg5", 2) in key[2]]
        self.assertEqual(of_two, [])

    def test_a_rule_for_a_group_is_a_flow_and_one_for_each_member(self):
        members = [f"10.1.{number >> 8}.{number & 255}" for number in range(1000)]
        self.firewall.set_members("all", members)
        self.firewall.set_rules("all", [read(protocol="tcp", port_range_min=it, port_range_max=it, remote_group_id="all") for it in range(1, 101)])
        for number in (1, 2):
            self.firewall.set_port(number, port(number, mac=f"02:00:00:00:00:{number:02x}"), ["all"])
        # The one more is the conjunction of both.
        self.assertEqual(len(self.switch.rules()), 1000 + 100 + 1)

    def test_a_group_that_nobody_names_any_more_has_no_flows(self):
        self.firewall.set_members("store", ["10.0.0.6", ("0.0.0.0/0", "02:00:00:00:00:0b"), "2001:db8::6"])
        self.firewall.set_rules("web", [read(remote_group_id="store"), read("egress", "IPv6", remote_group_id="store")])
        self.firewall.set_port("a", port(), ["web"])
        self.assertEqual((len(self.switch.rules()), len(self.switch.rules(flows.RULES_EGRESS))), (4, 3))
        self.firewall.set_rules("web", [])
        self.firewall.set_port("a", port(), ["web"])
        self.assertEqual((self.switch.rules(), self.switch.rules(flows.RULES_EGRESS)), ({}, {}))

    def test_members_of_two_groups_are_members_of_both(self):
        for group, members in (("a", ["10.0.0.6", "10.0.0.7"]), ("b", ["10.0.0.7"])):
            self.firewall.set_members(group, members)
        self.firewall.set_rules("web", [read(remote_group_id="a"), read(remote_group_id="b")])
        self.firewall.set_port("p", port(), ["web"])
        counts = sorted(len(actions) for match, actions in self.switch.rules().items() if match[0][0] == flows.NET)
        self.assertEqual(counts, [1, 2])

    def test_an_address_that_two_ports_share_is_a_members_until_both_have_left(self):
        self.firewall.set_rules("web", [read(remote_group_id="a")])
        shared = [("10.0.0.100", "02:00:00:00:00:01"), ("10.0.0.100", "02:00:00:00:00:02")]
        for members, count in ((shared, 1), (shared[1:], 1), (shared[:1], 1), ([], 0)):
            self.firewall.set_members("a", members)
            self.firewall.set_port("p", port(), ["web"])
            found = [match for match in self.switch.rules() if match[0][0] == flows.NET]
            self.assertEqual(len(found), count, members)

    def test_networks_have_their_own_members(self):
        self.firewall.set_members("a", ["10.0.0.6"])
        self.firewall.set_rules("web", [read(remote_group_id="a")])
        self.firewall.set_port("p", port(), ["web"])
        self.firewall.set_port("q", port(2, net=8), ["web"])
        nets = {match[0][1] for match in self.switch.rules() if match[0][0] == flows.NET}
        self.assertEqual(nets, {7, 8})
        self.firewall.remove_port("q")
        nets = {match[0][1] for match in self.switch.rules() if match[0][0] == flows.NET}
        self.assertEqual(nets, {7})

    def test_ports_that_share_a_hardware_address_each_get_what_is_sent_to_it(self):
        shared = "00:00:5e:00:01:01"
        for number in (1, 2):
            mac = f"02:00:00:00:00:{number:02x}"
            made = flows.Port(number, 7, mac, ((mac, f"10.0.0.{number}"), (shared, "10.0.0.9")))
            self.firewall.set_port(number, made, [])
        key = (flows.TRANSIENT, 90, (("vlan_vid", 7), ("eth_dst", shared)))
        found = [action[2] for action in self.switch.held[key] if action[:2] == ("set", flows.PORT)]
        self.assertEqual(found, [1, 2])
        self.assertEqual(self.switch.held[key].count(("strip_vlan",)), 1)
        self.firewall.remove_port(1)
        found = [action[2] for action in self.switch.held[key] if action[:2] == ("set", flows.PORT)]
        self.assertEqual(found, [2])

    def test_what_could_not_be_written_is_written_next_time(self):
        self.switch.fails = True
        self.assertRaises(OSError, self.firewall.set_port, "p", port(), [])
        self.switch.fails = False
        self.firewall.set_port("q", port(2, mac="02:00:00:00:00:0b"), [])
        numbers = {dict(match).get("in_port") for _, _, match in self.switch.held}
        self.assertLessEqual({1, 2}, numbers)

    def test_a_flow_that_the_agent_has_taken_away_is_back_with_the_ports_next_change(self):
        self.firewall.set_port("p", port(), [])
        before = dict(self.switch.held)
        for key in [key for key in before if dict(key[2]).get("in_port") == 1]:
            del self.switch.held[key]
        self.firewall.set_port("p", port(), [])
        self.assertEqual(self.switch.held, before)

    def test_a_bridge_that_is_away_when_it_was_started_again_has_everything_later(self):
        self.firewall.set_port("p", port(), [])
        before = dict(self.switch.held)
        self.switch.held.clear()
        self.switch.fails = True
        self.assertRaises(OSError, self.firewall.start)
        self.assertRaises(OSError, self.firewall.set_port, "p", port(), [])
        self.switch.fails = False
        self.firewall.set_port("p", port(), [])
        self.assertEqual(self.switch.held.keys(), before.keys())

    def test_what_is_deferred_is_one_bundle(self):
        before = len(self.switch.calls)
        self.firewall.defer()
        self.firewall.set_port("p", port(), [])
        self.firewall.remove_port("p")
        self.firewall.set_port("q", port(2), [])
        self.assertEqual(len(self.switch.calls), before)
        self.firewall.apply()
        self.assertEqual(len(self.switch.calls), before + 1)

    def test_a_new_number_of_a_port_takes_the_old_ones_flows_away(self):
        self.firewall.set_port("p", port(1), [])
        self.firewall.set_port("p", port(9), [])
        self.firewall.remove_port("p")
        self.assertEqual(self.switch.held, self.empty)

    def test_a_later_run_takes_nothing_from_an_earlier_one(self):
        for group, members in (("a", ["10.0.0.6", "10.0.0.7"]), ("b", ["10.0.0.7"])):
            self.firewall.set_members(group, members)
        self.firewall.set_rules("web", [read(remote_group_id="a"), read(remote_group_id="b"), read(protocol="tcp")])
        self.firewall.set_port("p", port(), ["web"])
        earlier = dict(self.switch.held)
        later = Firewall(self.switch)
        later.set_members("b", ["10.0.0.7"])
        later.set_rules("base", [read(remote_group_id="b")])
        later.set_port("q", port(2, mac="02:00:00:00:00:0b"), ["base"])
        for key, actions in earlier.items():
            # A flow of both has what the earlier one had, and more.
            self.assertLessEqual(set(actions), set(self.switch.held[key]))
        numbers = lambda held: {match[0][1] for (table, _, match) in held if table == flows.RULES_INGRESS and match and match[0][0] in ("conj_id", flows.PROFILE)}
        self.assertGreater(min(numbers(self.switch.held) - numbers(earlier)), max(numbers(earlier)))

    def test_groups_that_nobody_uses_are_forgotten(self):
        self.firewall.defer()
        self.firewall.set_rules("web", [read(remote_group_id="store")])
        self.firewall.set_members("store", ["10.0.0.6"])
        self.firewall.set_port("p", port(), ["web"])
        self.firewall.apply()
        self.firewall.defer()
        self.firewall.remove_port("p")
        self.firewall.apply()
        self.assertEqual((self.firewall._rules, self.firewall._members), ({}, {}))

    def test_a_trusted_port_passes_unfiltered_until_it_is_not(self):
        self.firewall.trust("p", 3, 7)
        self.assertIn((flows.TRANSIENT, 100, (("in_port", 3),)), self.switch.held)
        self.firewall.distrust("p")
        self.assertEqual(self.switch.held, self.empty)


if __name__ == "__main__":
    unittest.main()
