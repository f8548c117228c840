# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Nova's own tests of drivers, with its fixtures and database, on the driver and a daemon that runs: NFLUID_SOCKET is its socket."""

import json
import os
import pathlib

import nova.virt

# The driver lies in Nova's own folder when it is installed.
nova.virt.__path__.append(str(pathlib.Path(__file__).parent.parent / "nova/nova/virt"))

import fixtures
from nova import exception, objects, test
from nova.compute import power_state, provider_tree, task_states
from nova.tests.unit import utils
from nova.tests.unit.virt import test_virt_drivers
from nova.virt.nfluid.api import Daemon

SOCKET = os.environ["NFLUID_SOCKET"]


def of_nfluid(make):
    """Returns a function that makes the same networks, with nfluid's ports."""

    def made(*arguments, **named):
        vifs = make(*arguments, **named)
        for vif in vifs:
            vif["type"] = "other"
        return vifs

    return made


class NfluidDriverTestCase(test_virt_drivers._VirtDriverTestCase, test.TestCase):
    """What Nova asks of every driver. Nova's tests skip what a driver says that it has not."""

    driver_module = "nova.virt.nfluid.NfluidDriver"

    def setUp(self):
        super().setUp()
        # Nova's tests have ports on Open vSwitch, which is not there.
        self.useFixture(fixtures.MonkeyPatch("nova.tests.unit.utils.get_test_network_info", of_nfluid(utils.get_test_network_info)))
        self.flags(state_path=self.useFixture(fixtures.TempDir()).path, my_ip="127.0.0.1")
        self.flags(daemons=[f"myhostname={SOCKET}"], owner="nova", network_linger=0, group="nfluid")
        self.connection.init_host("myhostname")
        self.daemon = Daemon({"socket": SOCKET, "timeout": 60})
        self.addCleanup(self.daemon.request, "POST", "/v1/delete", {"everything": True})

    def _instance(self, image):
        instance = utils.get_test_instance(obj=True)
        instance.system_metadata.update({f"image_{name}": value for name, value in image.items()})
        instance.metadata, instance.user_data, instance.node = {}, None, "myhostname"
        instance.obj_reset_changes()
        return instance

    def _get_running_instance(self, obj=True, image=None):
        instance = self._instance(image or {"nfluid_nf": "firewall"})
        # Nova keeps what Neutron has said with the server.
        vifs = utils.get_test_network_info()
        instance.info_cache = objects.InstanceInfoCache(instance_uuid=instance.uuid, network_info=vifs)
        self.connection.spawn(self.ctxt, instance, None, [], "herp", {}, network_info=vifs)
        return instance, vifs

    def _power(self, instance):
        return self.connection.get_info(instance).state

    # Nova knows servers by their ids first; by names only those drivers that know no ids.

    def test_spawn(self):
        instance, _ = self._get_running_instance()
        self.assertEqual([instance.uuid], self.connection.list_instance_uuids())
        self.assertEqual(1, self.connection.get_num_instances())
        self.assertEqual(power_state.RUNNING, self._power(instance))
        self.assertEqual([it["name"] for it in self.daemon.request("GET", "/v1/instances")], [instance.uuid])

    def test_destroy_instance(self):
        instance, vifs = self._get_running_instance()
        for _ in range(2):
            self.connection.destroy(self.ctxt, instance, vifs)
            self.assertEqual([], self.connection.list_instance_uuids())
        self.assertEqual(self.daemon.request("GET", "/v1/switches"), [])
        self.assertRaises(exception.InstanceNotFound, self.connection.get_info, instance)

    def test_live_migration(self):
        instance, _ = self._get_running_instance()
        data = objects.LibvirtLiveMigrateData(target_connect_addr="127.0.0.1:1")
        called = []
        # This daemon has no certificate for others.
        self.assertRaises(
            exception.NovaException, self.connection.live_migration, self.ctxt, instance, "there", None, lambda *it: called.append(it), migrate_data=data
        )
        self.assertEqual(len(called), 1, "Nova is told to undo what it has prepared")
        self.assertEqual(power_state.RUNNING, self._power(instance))

    def test_live_migration_force_complete(self):
        self.skipTest("it looks into libvirt's driver")

    # What the driver says of its own.

    def test_power_states(self):
        instance, vifs = self._get_running_instance()
        self.connection.pause(instance)
        self.assertEqual(power_state.PAUSED, self._power(instance))
        self.connection.unpause(instance)
        self.assertEqual(power_state.RUNNING, self._power(instance))
        self.connection.suspend(self.ctxt, instance)
        self.assertEqual(power_state.SUSPENDED, self._power(instance))
        self.connection.resume(self.ctxt, instance, vifs)
        self.assertEqual(power_state.RUNNING, self._power(instance))
        self.connection.power_off(instance)
        self.assertEqual(power_state.SHUTDOWN, self._power(instance))
        self.assertEqual([instance.uuid], self.connection.list_instance_uuids(), "it is still a server of this host")
        self.connection.power_on(self.ctxt, instance, vifs)
        self.assertEqual(power_state.RUNNING, self._power(instance))

    def test_a_driver_that_starts_again_knows_what_is_off(self):
        instance, vifs = self._get_running_instance()
        self.connection.suspend(self.ctxt, instance)
        self.connection.init_host("myhostname")
        self.assertEqual(power_state.SUSPENDED, self._power(instance))
        self.connection.resume(self.ctxt, instance, vifs)
        self.connection.destroy(self.ctxt, instance, vifs)
        self.assertEqual([], self.connection.list_instance_uuids())

    def test_what_is_wrong_everywhere_is_not_tried_elsewhere(self):
        for image in ({"os_distro": "debian"}, {"nfluid_nf": "nothing"}, {"nfluid_nf": "firewall", "nfluid_config": '{"rules": "gibberish"}'}):
            self.assertRaises(exception.InvalidInput, self._get_running_instance, image=image)
            self.assertEqual(self.daemon.request("GET", "/v1/switches"), [])

    def test_what_another_host_may_have_is_tried_there(self):
        big = {"instances": {"big": {"nf": "bridge", "share": "100%", "cpus": [0]}, "other": {"nf": "bridge", "share": "100%", "cpus": [1]}}}
        self.daemon.request("POST", "/v1/apply", {"text": json.dumps({"version": 1, **big}), "merge": True})
        instance = self._instance({"nfluid_nf": "bridge"})
        instance.flavor.extra_specs = {"nfluid:share": "50%"}
        self.assertRaises(exception.InstanceDeployFailure, self.connection.spawn, self.ctxt, instance, None, [], "", {}, network_info=[])

    def test_a_daemon_that_is_away(self):
        self.flags(daemons=[f"myhostname={SOCKET}.away"], group="nfluid")
        self.assertRaises(exception.VirtDriverNotReady, self.connection.init_host, "myhostname")
        self.assertRaises(exception.HypervisorUnavailable, self.connection.list_instance_uuids)
        self.assertRaises(exception.HypervisorUnavailable, self.connection.get_available_resource, "myhostname")

    def test_configurations_that_are_wrong(self):
        self.flags(daemons=["nonsense"], group="nfluid")
        self.assertRaises(exception.InvalidConfiguration, self.connection.init_host, "myhostname")

    def test_placement_is_told_of_shares_and_functions(self):
        tree = provider_tree.ProviderTree()
        tree.new_root("myhostname", "11111111-2222-3333-4444-555555555555")
        tree.update_traits("myhostname", ["CUSTOM_RACK_7", "CUSTOM_NFLUID_NF_GONE"])
        self.connection.update_provider_tree(tree, "myhostname")
        found = tree.data("myhostname")
        self.assertGreaterEqual(found.inventory["CUSTOM_NFLUID_SHARE"]["total"], 1000)
        self.assertEqual(found.inventory["MEMORY_MB"]["allocation_ratio"], 1.0)
        self.assertIn("CUSTOM_NFLUID_NF_FIREWALL", found.traits)
        self.assertIn("CUSTOM_RACK_7", found.traits, "an operator's trait stays")
        self.assertNotIn("CUSTOM_NFLUID_NF_GONE", found.traits)

    def test_interfaces_come_and_go(self):
        instance, vifs = self._get_running_instance(image={"nfluid_nf": "bridge"})
        first = vifs[0]
        other = utils.get_test_network_info(2)[1]
        other["id"], other["address"] = "51a9642b-1414-4bd6-9a92-1320ddc55a64", "de:ad:be:ef:ca:ff"
        self.connection.attach_interface(self.ctxt, instance, None, other)
        ports = lambda: {it["name"].split(".")[1]: it["mac"] for it in self.daemon.request("GET", "/v1/ports") if it["name"].startswith(instance.uuid)}
        self.assertEqual(ports(), {"in": first["address"], "out": other["address"]})
        instance.info_cache.network_info.append(other)
        self.connection.detach_interface(self.ctxt, instance, first)
        self.assertEqual(ports()["out"], other["address"], "the other one keeps its port")
        self.assertNotEqual(ports()["in"], first["address"])

    def test_volumes_are_refused(self):
        instance = self._instance({"nfluid_nf": "bridge"})
        volumes = {"block_device_mapping": [{"connection_info": {}}]}
        self.assertRaises(
            exception.InvalidInput, self.connection.spawn, self.ctxt, instance, None, [], "", {}, network_info=[], block_device_info=volumes
        )

    def test_a_resize_and_its_way_back(self):
        instance, vifs = self._get_running_instance()
        saved = self.connection.migrate_disk_and_power_off(self.ctxt, instance, "dest", instance.flavor, vifs)
        self.assertTrue(saved)
        self.assertEqual(self.daemon.request("GET", "/v1/instances"), [])
        self.connection.finish_migration(self.ctxt, None, instance, saved, vifs, None, True, {})
        self.assertEqual(power_state.RUNNING, self._power(instance))
        self.connection.destroy(self.ctxt, instance, vifs)
        self.connection.finish_revert_migration(self.ctxt, instance, vifs, None)
        self.assertEqual(power_state.RUNNING, self._power(instance))

    def test_a_snapshot_is_an_image_of_its_state(self):
        instance, _ = self._get_running_instance()
        image = self.image_service.create(self.ctxt, {"name": "snap"})["id"]
        states = []
        self.connection.snapshot(self.ctxt, instance, image, lambda task_state, expected_state=None: states.append(task_state))
        self.assertEqual(states, [task_states.IMAGE_PENDING_UPLOAD, task_states.IMAGE_UPLOADING])
        self.assertEqual(self.image_service.show(self.ctxt, image)["properties"]["nfluid_saved"], "true")
