# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Neutron's rules as rules of nfluid."""

import unittest

from networking_nfluid import groups, hosts

PORT = {"fixed_ips": ["10.0.0.5", "2001:db8::5"], "allowed_address_pairs": [{"ip_address": "10.0.0.100"}]}


def rule(direction="ingress", ethertype="IPv4", **more):
    return {"direction": direction, "ethertype": ethertype, **more}


def lines(*rules):
    return groups.group_of(PORT, rules, "neutron")["rules"]


class Groups(unittest.TestCase):
    def test_a_port_speaks_for_its_addresses_and_pairs(self):
        made = groups.group_of(PORT, [], "neutron")
        self.assertEqual(made, {"owner": "neutron", "allowed_addresses": ["10.0.0.100", "10.0.0.5", "2001:db8::5"], "rules": []})

    def test_a_port_without_addresses_speaks_for_none(self):
        made = groups.group_of({"fixed_ips": []}, [], "neutron")
        self.assertEqual(made["allowed_addresses"], ["0.0.0.0/32"])

    def test_without_port_security_everything_passes(self):
        made = groups.open_group("neutron")
        self.assertEqual((len(made["rules"]), made["allowed_addresses"]), (4, []))

    def test_rules_mean_the_same(self):
        for given, expected in (
            (rule(), {"direction": "in", "family": "ipv4"}),
            (rule("egress", "IPv6"), {"direction": "out", "family": "ipv6"}),
            (rule(protocol="tcp", port_range_min=80, port_range_max=80), {"protocol": "tcp", "ports": "80"}),
            (rule(protocol="6", port_range_min=1, port_range_max=65535), {"protocol": 6, "ports": "1-65535"}),
            (rule(protocol="udp"), {"protocol": "udp"}),
            (rule(protocol="icmp", port_range_min=8), {"protocol": "icmp", "icmp": "8"}),
            (rule(protocol="icmp", port_range_min=3, port_range_max=4), {"protocol": "icmp", "icmp": "3/4"}),
            (rule(ethertype="IPv6", protocol="icmp", port_range_min=128), {"family": "ipv6", "protocol": "icmpv6", "icmp": "128"}),
            (rule(ethertype="IPv6", protocol="ipv6-icmp"), {"family": "ipv6", "protocol": "icmpv6"}),
            (rule(ethertype="IPv6", protocol=58), {"family": "ipv6", "protocol": "icmpv6"}),
            (rule(protocol="vrrp"), {"protocol": 112}),
            (rule(protocol="any"), {}),
            (rule(source_ip_prefix="192.0.2.0/24"), {"remote": "192.0.2.0/24"}),
            (rule("egress", dest_ip_prefix="192.0.2.0/24"), {"direction": "out", "remote": "192.0.2.0/24"}),
            (rule(protocol="gre", port_range_min=5, port_range_max=6), {"protocol": "gre"}),
        ):
            with self.subTest(given):
                self.assertEqual(lines(given), [{"direction": "in", "family": "ipv4", **expected}])

    def test_a_remote_group_is_a_group_of_its_members(self):
        for given in (rule(remote_group_id="g"), rule(remote_address_group_id="g")):
            self.assertEqual(lines(given), [{"direction": "in", "family": "ipv4", "remote_group": "remote-g"}])
        made = groups.remote_group({"IPv4": {"10.0.0.7", "10.0.0.6"}, "IPv6": {"2001:db8::6"}}, "neutron")
        self.assertEqual(made, {"owner": "neutron", "members": ["10.0.0.6", "10.0.0.7", "2001:db8::6"]})
        self.assertEqual(groups.remote_group({}, "neutron")["members"], [], "a group without members permits nobody")

    def test_what_two_groups_say_alike_is_said_once_and_in_one_order(self):
        a, b = rule(protocol="tcp"), rule("egress")
        self.assertEqual(lines(a, b, a), lines(b, a))
        self.assertEqual(len(lines(a, b, a)), 2)


class Daemons(unittest.TestCase):
    def test_a_host_may_have_several(self):
        found = hosts.daemons(["a=/run/a.sock", "b=edge:7444", "a=/run/b.sock"], {"timeout": 1})
        self.assertEqual([daemon.place for daemon in found["a"]], ["/run/a.sock", "/run/b.sock"])
        self.assertEqual([daemon.place for daemon in found["b"]], ["edge:7444"])

    def test_what_names_no_daemon_is_refused(self):
        for entry in ("a", "=x", "a="):
            with self.assertRaisesRegex(ValueError, "HOST=HOST:PORT"):
                hosts.daemons([entry], {})


if __name__ == "__main__":
    unittest.main()
