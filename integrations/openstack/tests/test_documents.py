# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What servers and networks are as documents."""

import base64
import os
import tempfile
import unittest

from nova.virt.nfluid import documents
from nova.virt.nfluid.documents import Unacceptable

NET, WAN = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"


def vif(number=1, network=NET, details=None, subnets=None):
    return {
        "id": f"vif{number}",
        "address": f"fa:16:3e:00:00:{number:02x}",
        "details": details,
        "network": {"id": network, "meta": {"mtu": 1450}, "subnets": subnets or [{"cidr": "10.0.0.0/24", "ips": [{"address": f"10.0.0.{number}"}]}]},
    }


def instance(image, specs=None, metadata=None, user_data=None, vifs=(), names=None, folders=(), memory=64):
    server = {"metadata": metadata or {}, "user_data": user_data, "port_names": names or {}}
    return documents.instance(image, {"memory_mb": memory, "extra_specs": specs or {}}, server, list(vifs), "nova", list(folders))


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class Images(unittest.TestCase):
    def test_an_image_names_one_function_program_or_container_image(self):
        for properties in ({}, {"nfluid_config": "{}"}, {"nfluid_nf": "bridge", "nfluid_program": "/opt/nf/a"}):
            with self.assertRaisesRegex(Unacceptable, "image: one property of"):
                instance(properties)

    def test_an_image_gives_nothing_that_is_the_flavors(self):
        for key in ("share", "memory", "owner", "group", "volumes", "capabilities", "user", "trust", "cpus", "switch"):
            with self.assertRaisesRegex(Unacceptable, f"nfluid_{key} is for flavors"):
                instance({"nfluid_nf": "bridge", f"nfluid_{key}": "1"})

    def test_an_image_puts_no_port_anywhere_and_speaks_for_nobody(self):
        for keys in ('{"switch": "net-of-others"}', '{"learn": true}', '{"allowed_addresses": ["0.0.0.0/0"]}', '{"security_groups": []}',
                     '{"mac": "02:00:00:00:00:01"}', '{"addresses": ["10.0.0.9/24"]}', '{"vlan": 7}'):
            with self.assertRaisesRegex(Unacceptable, "not an image's to say"):
                instance({"nfluid_nf": "bridge", "nfluid_ports": '{"in": {}, "spy": ' + keys + "}"})

    def test_an_image_names_no_function_that_reads_files_of_the_host(self):
        config = '{"certificate": "/etc/nfluid/tls/shop.crt", "key": "/etc/nfluid/tls/shop.key"}'
        with self.assertRaisesRegex(Unacceptable, "reads files of the host"):
            instance({"nfluid_nf": "tls", "nfluid_config": config})

    def test_other_properties_are_none_of_ours(self):
        made = instance({"nfluid_nf": "bridge", "os_distro": "debian", "hw_disk_bus": "virtio"})
        self.assertEqual(made["nf"], "bridge")
        self.assertNotIn("os_distro", made)

    def test_programs_lie_below_the_folders_that_the_operator_names(self):
        with tempfile.TemporaryDirectory() as folder:
            inside = os.path.join(folder, "nfs")
            os.mkdir(inside)
            os.symlink("/bin", os.path.join(inside, "out"))
            for path in ("/bin/sh", f"{inside}/../x", f"{inside}/out/sh", "nfs/x", f"{inside}", f"{inside}x/y", "oci:/srv/web:latest", "/"):
                with self.assertRaisesRegex(Unacceptable, "below no folder"):
                    instance({"nfluid_program": path} if not path.startswith("oci") else {"nfluid_image": path}, folders=[inside])
            made = instance({"nfluid_program": f"{inside}/probe", "nfluid_args": "-v -n 3"}, folders=[inside])
            self.assertEqual((made["program"], made["args"]), (f"{inside}/probe", ["-v", "-n", "3"]))
            made = instance({"nfluid_image": f"oci:{inside}/web:1.2"}, folders=[inside])
            self.assertEqual(made["image"], f"oci:{inside}/web:1.2")
        with self.assertRaisesRegex(Unacceptable, "below no folder"):
            instance({"nfluid_program": "/opt/probe"})

    def test_a_property_that_begins_like_json_is_json(self):
        made = instance({"nfluid_nf": "firewall", "nfluid_config": '{"default": "deny"}'})
        self.assertEqual(made["config"], {"default": "deny"})
        with self.assertRaisesRegex(Unacceptable, "image: nfluid_config is no JSON"):
            instance({"nfluid_nf": "firewall", "nfluid_config": "{"})


class Flavors(unittest.TestCase):
    def test_a_share_is_what_placement_counts(self):
        made = instance({"nfluid_nf": "bridge"}, {"resources:CUSTOM_NFLUID_SHARE": "55", "hw:cpu_policy": "shared"}, memory=32)
        self.assertEqual((made["share"], made["memory"]), ("5.5%", "32MiB"))

    def test_extra_specs_are_keys(self):
        made = instance({"nfluid_nf": "bridge"}, {"nfluid:tier": "microvm", "nfluid:cpus": "[1]", "nfluid:memory": "128MiB"})
        self.assertEqual((made["tier"], made["cpus"], made["memory"]), ("microvm", [1], "128MiB"))

    def test_a_flavor_is_nobodys_function(self):
        for key in ("owner", "nf", "program", "image", "ports", "config"):
            with self.assertRaisesRegex(Unacceptable, f"flavor: nfluid:{key}"):
                instance({"nfluid_nf": "bridge"}, {f"nfluid:{key}": "x"})


class Configuration(unittest.TestCase):
    def test_the_servers_count_before_the_images(self):
        image = {"nfluid_nf": "firewall", "nfluid_config": '{"default": "deny", "rules": "a"}'}
        made = instance(image, user_data=encoded("allow ip from any to any\n"), metadata={"nfluid.default": "allow", "team": "red"})
        self.assertEqual(made["config"], {"default": "allow", "rules": "allow ip from any to any\n"})

    def test_user_data_may_be_a_configuration(self):
        made = instance({"nfluid_nf": "nat"}, user_data=encoded('{"pool": ["203.0.113.1"]}'))
        self.assertEqual(made["config"], {"pool": ["203.0.113.1"]})

    def test_user_data_that_is_nothing_is_refused(self):
        for text in ("!", base64.b64encode(b"\xff\xfe").decode(), encoded("[1]"), encoded("{")):
            with self.assertRaisesRegex(Unacceptable, "server: user data"):
                instance({"nfluid_nf": "nat"}, user_data=text)

    def test_a_router_has_the_fixed_addresses(self):
        made = instance({"nfluid_nf": "router", "nfluid_ports": "a,b"}, vifs=[vif(1), vif(2, WAN)])
        self.assertEqual(made["config"]["addresses"], {"a": ["10.0.0.1/24"], "b": ["10.0.0.2/24"]})


class Ports(unittest.TestCase):
    def test_ports_have_the_order_of_the_servers_networks(self):
        made = instance({"nfluid_nf": "bridge"}, vifs=[vif(1), vif(2, WAN)])
        self.assertEqual(list(made["ports"]), ["in", "out"])
        self.assertEqual(made["ports"]["in"], {"mac": "fa:16:3e:00:00:01", "mtu": 1450, "switch": f"net-{NET}", "learn": True})
        made = instance({"nfluid_nf": "bridge"}, vifs=[vif(1)])
        self.assertEqual(made["ports"]["out"], {})
        made = instance({"nfluid_nf": "router", "nfluid_ports": "a"}, vifs=[vif(1), vif(2, WAN)])
        self.assertEqual(list(made["ports"]), ["a", "port0"])

    def test_ports_that_are_none_are_refused(self):
        for ports in ('{"a": 1}', '{"a": "b"}', '{"a": [1]}'):
            with self.assertRaisesRegex(Unacceptable, "nfluid_ports"):
                instance({"nfluid_nf": "bridge", "nfluid_ports": ports})
        made = instance({"nfluid_nf": "bridge", "nfluid_ports": '["a", 1]'})
        self.assertEqual(list(made["ports"]), ["a", "1"])

    def test_a_name_that_is_known_stays(self):
        names = documents.names_of_ports(["a", "b", "c"], [vif(2), vif(3)], {"vif3": "a"})
        self.assertEqual(names, {"vif3": "a", "vif2": "b"})
        names = documents.names_of_ports([], [vif(1), vif(2), vif(3)], {"vif2": "port0"})
        self.assertEqual(names, {"vif2": "port0", "vif1": "in", "vif3": "out"})
        names = documents.names_of_ports([], [vif(number) for number in range(4)], {})
        self.assertEqual(list(names.values()), ["in", "out", "port0", "port1"])

    def test_a_port_with_port_security_has_its_group_and_speaks_for_itself(self):
        made = instance({"nfluid_nf": "bridge"}, vifs=[vif(1, details={"nfluid_security_groups": ["port-vif1"]})])
        self.assertEqual(made["ports"]["in"]["security_groups"], ["port-vif1"])
        self.assertNotIn("learn", made["ports"]["in"])

    def test_a_port_of_the_kernels_stack_has_the_fixed_addresses(self):
        with tempfile.TemporaryDirectory() as folder:
            image = {"nfluid_program": f"{folder}/web", "nfluid_ports": '{"eth0": {"kind": "interface"}}'}
            made = instance(image, vifs=[vif(7)], folders=[folder])
        self.assertEqual(made["ports"]["eth0"]["addresses"], ["10.0.0.7/24"])


class Networks(unittest.TestCase):
    def test_a_network_is_a_switch_with_the_interface_of_its_physical_network(self):
        for details, interface in (({"nfluid_physical_network": "p"}, "eth1"), ({"nfluid_physical_network": "p", "nfluid_vlan": 7}, "eth1.7")):
            made = documents.networks([vif(1, details=details)], {"p": "eth1"}, "nova")
            self.assertEqual(made["switches"], {f"net-{NET}": {"owner": "nova"}})
            self.assertEqual(made["uplinks"], {f"ext-{NET}": {"interface": interface, "switch": f"net-{NET}", "ring": 256, "owner": "nova"}})
        self.assertEqual(documents.networks([vif(1)], {}, "nova")["uplinks"], {})

    def test_a_port_on_open_vswitch_has_a_switch_of_its_own(self):
        port = {**vif(1), "id": "0123456789abcdef", "type": "ovs"}
        for kind, more in (("system", {}), ("netdev", {"super": "off"})):
            made = documents.networks([{**port, "details": {"datapath_type": kind}}], {}, "nova")
            self.assertEqual(made["switches"], {"net-0123456789abcdef": {"owner": "nova"}})
            uplink = {"interface": "nf0123456789a", "switch": "net-0123456789abcdef", "ring": 256, "owner": "nova", **more}
            self.assertEqual(made["uplinks"], {"ext-0123456789abcdef": uplink})
        made = instance({"nfluid_nf": "bridge"}, vifs=[port])
        self.assertEqual(made["ports"]["in"]["switch"], "net-0123456789abcdef")

    def test_ports_that_nobody_plugs_are_refused(self):
        hybrid = {**vif(1, details={"ovs_hybrid_plug": True}), "type": "ovs"}
        for port, why in ((hybrid, "firewall_driver is to be nfluid"), ({**vif(1), "type": "bridge"}, "ports of type bridge")):
            with self.assertRaisesRegex(Unacceptable, why):
                documents.networks([port], {}, "nova")

    def test_a_physical_network_that_the_host_lacks_is_named(self):
        with self.assertRaisesRegex(Unacceptable, "physical network p"):
            documents.networks([vif(1, details={"nfluid_physical_network": "p"})], {}, "nova")


if __name__ == "__main__":
    unittest.main()
