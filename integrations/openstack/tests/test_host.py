# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A daemon as a node: against a daemon that runs. NFLUID_SOCKET is its socket, NFLUID_INTERFACE an interface that it may take."""

import os
import threading
import unittest

from networking_nfluid import groups, hosts
from nova.virt.nfluid import host
from nova.virt.nfluid.api import ApiError, Daemon, path_of

SOCKET, INTERFACE = os.environ["NFLUID_SOCKET"], os.environ["NFLUID_INTERFACE"]
BRIDGE = {"nf": "bridge", "owner": "nova", "memory": "16MiB", "flavor": "small"}


def vif(network, physical=None, number=1):
    details = {"nfluid_physical_network": physical} if physical else {}
    return {"id": f"v{number}", "address": f"fa:16:3e:00:00:{number:02x}", "details": details, "network": {"id": network, "subnets": []}}


def keys(vifs, **more):
    ports = {"in": {}, "out": {}}
    for name, it in zip(ports, vifs):
        ports[name] = {"mac": it["address"], "switch": f"net-{it['network']['id']}"}
    return {**BRIDGE, "ports": ports, **more}


class Node(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon({"socket": SOCKET, "timeout": 60})
        self.host = host.Host(self.daemon, "nova", {"physnet": INTERFACE})
        self.addCleanup(self.is_clean)

    def is_clean(self):
        for kind in ("instances", "switches", "uplinks", "security-groups"):
            self.assertEqual(self.daemon.request("GET", f"/v1/{kind}"), [], kind)

    def test_networks_come_with_the_first_instance_and_go_with_the_last(self):
        vifs = [vif("a", "physnet"), vif("b", number=2)]
        self.host.make("one", keys(vifs), vifs)
        self.host.make("two", keys([vif("a", number=3)]), [vif("a", "physnet", 3)])
        names = lambda kind: [it["name"] for it in self.daemon.request("GET", f"/v1/{kind}")]
        self.assertEqual((sorted(names("switches")), names("uplinks")), (["net-a", "net-b"], ["ext-a"]))
        self.assertEqual(sorted(it["name"] for it in self.host.own()), ["one", "two"])
        self.host.remove("one", vifs)
        self.assertEqual((names("switches"), names("uplinks")), (["net-a"], ["ext-a"]))
        self.host.remove("two", [vif("a", "physnet", 3)])

    def test_a_network_that_nothing_uses_stays_for_a_while(self):
        vifs = [vif("a", "physnet")]
        lingering = host.Host(self.daemon, "nova", {"physnet": INTERFACE}, linger=3600)
        lingering.make("one", keys(vifs), vifs)
        lingering.remove("one", vifs)
        lingering.sweep()
        self.assertEqual([it["name"] for it in self.daemon.request("GET", "/v1/uplinks")], ["ext-a"])
        lingering.make("one", keys(vifs), vifs)
        lingering.remove("one", vifs)
        lingering.linger = 0
        lingering.sweep()

    def test_what_is_refused_leaves_nothing(self):
        vifs = [vif("a", "physnet")]
        for wrong in ({"nf": "nothing"}, {"share": "1000%"}, {"memory": "1000GiB"}):
            with self.assertRaises(ApiError):
                self.host.make("one", keys(vifs, **wrong), vifs)
            self.is_clean()

    def test_others_instances_are_not_touched(self):
        self.daemon.request("PUT", path_of("instances", "one"), {"instance": {**keys([]), "owner": "operator"}})
        self.host.remove("one", [])
        self.assertEqual((self.host.find("one"), self.host.own()), (None, []))
        with self.assertRaises(ApiError):
            self.host.make("one", keys([]), [])
        self.assertTrue(self.daemon.find(path_of("instances", "one")))
        self.daemon.request("DELETE", path_of("instances", "one"))

    def test_a_service_that_was_killed_leaves_networks_that_the_next_one_sweeps(self):
        killed = host.Host(self.daemon, "nova", {"physnet": INTERFACE})
        killed.prepare("elsewhere", [vif("a", "physnet"), vif("b", number=2)])
        self.host.make("one", keys([vif("b", number=2)]), [vif("b", number=2)])
        host.Host(self.daemon, "nova", {}).sweep()
        self.assertEqual([it["name"] for it in self.daemon.request("GET", "/v1/switches")], ["net-b"])
        self.host.remove("one", [vif("b", number=2)])

    def test_networks_wait_for_an_instance_that_is_to_come(self):
        vifs = [vif("a", "physnet")]
        names = lambda: [it["name"] for it in self.daemon.request("GET", "/v1/switches")]
        self.host.prepare("one", vifs)
        self.host.prepare("two", vifs)
        self.host.sweep()
        self.host.make("three", keys(vifs), vifs)
        self.host.remove("three", vifs)
        self.host.abandon("two", vifs)
        self.assertEqual(names(), ["net-a"], "one is still to come")
        self.host.make("one", keys(vifs), vifs)
        self.host.arrived("one")
        self.host.remove("one", vifs)
        self.assertEqual(names(), [])
        self.host.prepare("one", vifs)
        self.host.abandon("one", vifs)
        self.assertEqual(names(), [])

    def test_a_saved_instance_goes_on(self):
        vifs = [vif("a")]
        self.host.make("one", keys(vifs), vifs)
        saved = self.host.save("one")
        self.host.remove("one", vifs)
        self.host.make("one", keys(vifs), vifs, saved)
        self.assertEqual(self.host.ports("one")["fa:16:3e:00:00:01"], "in")
        # A second time, with the instance there: it becomes what it is to be.
        self.host.make("one", keys(vifs, memory="32MiB"), vifs, saved)
        self.host.remove("one", vifs)
        with self.assertRaises(ApiError):
            self.host.make("one", keys(vifs), vifs, "bm9uc2Vuc2U=")

    def test_many_at_once_on_one_network(self):
        failed = []

        def live(number):
            try:
                for _ in range(4):
                    vifs = [vif("a", "physnet", number)]
                    self.host.make(f"i{number}", keys(vifs), vifs)
                    self.host.remove(f"i{number}", vifs)
            except ApiError as error:
                failed.append(error)

        threads = [threading.Thread(target=live, args=(number,)) for number in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])

    def test_security_groups_are_put_and_removed(self):
        name = groups.name_of("p")
        rules = [{"direction": "ingress", "ethertype": "IPv4", "protocol": protocol} for protocol in groups.PROTOCOLS if "6" not in protocol]
        rules.append({"direction": "ingress", "ethertype": "IPv4", "remote_group_id": "many"})
        members = {"IPv4": {f"10.{at >> 8}.{at & 255}.1" for at in range(5000)}}
        remote = groups.remote_name_of("many")
        wanted = {name: groups.group_of({"fixed_ips": ["10.0.0.5"]}, rules, "neutron"), remote: groups.remote_group(members, "neutron")}
        daemon = hosts.daemons([f"here={SOCKET}"], {"timeout": 60})["here"][0]
        hosts.put(daemon, wanted)
        vifs = [vif("a")]
        made = keys(vifs)
        made["ports"]["in"]["security_groups"] = [name]
        self.host.make("one", made, vifs)
        refused = hosts.sync(daemon, {}, "neutron")
        self.assertEqual([line.split(":")[0] for line in refused], [name, remote], "the port still has them")
        self.host.remove("one", vifs)
        self.assertEqual(hosts.sync(daemon, {}, "neutron"), [])
        hosts.remove(daemon, name)

    def test_a_daemon_that_is_away_is_named(self):
        away = host.Host(Daemon({"socket": SOCKET + ".away", "timeout": 1}), "nova", {})
        with self.assertRaisesRegex(ApiError, "cannot reach the daemon"):
            away.own()


class Names(unittest.TestCase):
    def test_daemons_of_nodes(self):
        found = host.daemons([], "here", {"timeout": 1})
        self.assertEqual([(node, daemon.place) for node, daemon in found.items()], [("here", "/run/nfluid/nfluidd.sock")])
        found = host.daemons(["a=/x", "b=edge:7444"], "here", {})
        self.assertEqual([daemon.place for daemon in found.values()], ["/x", "edge:7444"])
        for entries in (["a"], ["a=/x", "a=/y"], ["=/x"]):
            with self.assertRaises(ValueError):
                host.daemons(entries, "here", {})


if __name__ == "__main__":
    unittest.main()
