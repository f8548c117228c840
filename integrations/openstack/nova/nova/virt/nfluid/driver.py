# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The driver: Nova's calls, in the order of `nova.virt.driver.ComputeDriver`. docs/guide/openstack.md says what an operator sees of it."""

import contextlib
import io
import os
import time

import eventlet.timeout
import os_resource_classes as orc
from nova import exception
from nova.compute import power_state, task_states
from nova.image import glance
from nova.objects import diagnostics, fields, migrate_data
from nova.virt import driver, hardware
from oslo_config import cfg
from oslo_log import log as logging

from nova.virt.nfluid import documents, options, ports, shelf, watch
from nova.virt.nfluid.api import REACH, ApiError, path_of
from nova.virt.nfluid.host import Host, daemons

CONF = cfg.CONF
options.register(CONF)
LOG = logging.getLogger(__name__)

POWER = {
    "starting": power_state.RUNNING,
    "running": power_state.RUNNING,
    "unhealthy": power_state.RUNNING,
    "paused": power_state.PAUSED,
    # It is about to be started again: nothing for Nova to do.
    "waiting": power_state.NOSTATE,
    "stopped": power_state.SHUTDOWN,
    "failed": power_state.SHUTDOWN,
}
# What waiting for Neutron ends with, by the release of Nova.
TIMEOUTS = (eventlet.timeout.Timeout, getattr(exception, "InstanceEventTimeout", eventlet.timeout.Timeout))
# Most bytes of a saved instance, as the daemon takes them, in base64.
SAVED_MAX = 64 << 20
PORT_PREFIX = "nfluid_port_"


@contextlib.contextmanager
def faults():
    """Turns what documents and daemons refuse into Nova's exceptions: what is wrong wherever it runs, and what another host may take."""
    try:
        yield
    except documents.Unacceptable as error:
        raise exception.InvalidInput(reason=str(error)) from error
    except ApiError as error:
        if error.problem.get("status") in (400, 413, 422) and not is_full(error.problem):
            raise exception.InvalidInput(reason=str(error)) from error
        raise exception.InstanceDeployFailure(reason=str(error)) from error


def in_a_line(error):
    """Returns an error for a log."""
    return "; ".join(str(error).splitlines())


def is_full(problem):
    """Returns true if a host has refused for want of something that another one may have."""
    return any(error.get("cause") == "no_room" for error in problem.get("errors", []))


def not_wired(event_name, instance):
    """Is called when Neutron cannot wire a port."""
    LOG.error("Neutron: %s failed", event_name, instance=instance)
    if CONF.vif_plugging_is_fatal:
        raise exception.VirtualInterfaceCreateException()


class Bounded(io.BytesIO):
    """The data of an image, in memory."""

    def __init__(self, image_id):
        super().__init__()
        self._image_id = image_id

    def write(self, data):
        if self.tell() + len(data) > SAVED_MAX:
            raise exception.ImageUnacceptable(image_id=self._image_id, reason=f"a saved instance has at most {SAVED_MAX} bytes")
        return super().write(data)


class NfluidDriver(driver.ComputeDriver):
    """Servers of Nova as instances of nfluid."""

    capabilities = dict(
        driver.ComputeDriver.capabilities,
        supports_attach_interface=True,
        supports_evacuate=True,
        supports_migrate_to_same_host=True,
        supports_image_type_raw=True,
    )

    def init_host(self, host):
        own = CONF.nfluid
        try:
            found = daemons(own.daemons, host, {option: own[option] for option in REACH})
        except ValueError as error:
            raise exception.InvalidConfiguration(str(error)) from error
        of_networks = (own.physical_networks, own.uplink_ring, own.network_linger)
        self._hosts = {node: Host(daemon, own.owner, *of_networks) for node, daemon in found.items()}
        self._shelf = shelf.Shelf(os.path.join(CONF.state_path, "nfluid"))
        self._images = glance.API()
        ports.initialize()
        for node, it in self._hosts.items():
            try:
                it.sweep()
            except ApiError as error:
                LOG.error("node %s: %s", node, in_a_line(error))
                raise exception.VirtDriverNotReady() from error
        for it in self._hosts.values():
            watch.start(it, self.emit_event)

    # ---- what there is

    def _host(self, instance):
        """Returns the daemon of a server. While a server moves, its node is still that of the other host."""
        if instance.node in self._hosts:
            return self._hosts[instance.node]
        return self._only_host()

    def _only_host(self):
        if len(self._hosts) != 1:
            raise exception.HypervisorUnavailable(host=CONF.host)
        return next(iter(self._hosts.values()))

    def get_info(self, instance, use_cache=True):
        found = self._find(instance)
        if found:
            return hardware.InstanceInfo(state=POWER.get(found["state"], power_state.NOSTATE))
        for why, state in ((shelf.SUSPENDED, power_state.SUSPENDED), (shelf.OFF, power_state.SHUTDOWN)):
            if self._shelf.has(instance.uuid, why):
                return hardware.InstanceInfo(state=state)
        raise exception.InstanceNotFound(instance_id=instance.uuid)

    def _find(self, instance):
        try:
            return self._host(instance).find(instance.uuid)
        except ApiError as error:
            LOG.error("%s", in_a_line(error), instance=instance)
            raise exception.HypervisorUnavailable(host=instance.node or CONF.host) from error

    def list_instances(self):
        return self.list_instance_uuids()

    def list_instance_uuids(self):
        uuids = self._shelf.uuids()
        for node, host in self._hosts.items():
            try:
                uuids.update(it["name"] for it in host.own())
            except ApiError as error:
                LOG.error("node %s: %s", node, in_a_line(error))
                raise exception.HypervisorUnavailable(host=node) from error
        return list(uuids)

    def get_available_nodes(self, refresh=False):
        return list(self._hosts)

    def _capacity(self, nodename):
        try:
            return self._hosts[nodename].daemon.request("GET", "/v1/capacity")
        except ApiError as error:
            LOG.error("node %s: %s", nodename, in_a_line(error))
            raise exception.HypervisorUnavailable(host=nodename) from error

    def get_available_resource(self, nodename):
        capacity = self._capacity(nodename)
        try:
            # Nova asks every minute.
            self._hosts[nodename].sweep()
        except ApiError as error:
            LOG.warning("node %s: networks that nothing uses: %s", nodename, error)
        memory = capacity["memory_bytes"]
        kind = capacity["architecture"]
        return {
            "vcpus": len(capacity["cpus"]),
            "vcpus_used": 0,
            "memory_mb": memory["total"] >> 20,
            "memory_mb_used": memory["used"] >> 20,
            "local_gb": 0,
            "local_gb_used": 0,
            "disk_available_least": 0,
            "hypervisor_type": "nfluid",
            "hypervisor_version": 1,
            "hypervisor_hostname": nodename,
            "cpu_info": "{}",
            "numa_topology": None,
            # Nova has a closed list of kinds. Programs in sandboxes come nearest to containers.
            "supported_instances": [(fields.Architecture.canonicalize(kind), fields.HVType.LXC, fields.VMMode.EXE)],
        }

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        capacity = self._capacity(nodename)
        totals = {
            orc.VCPU: len(capacity["cpus"]),
            orc.MEMORY_MB: capacity["memory_bytes"]["total"] >> 20,
            documents.SHARE: capacity["share_per_mille"]["total"],
        }
        inventory = provider_tree.data(nodename).inventory
        ratios = {**self._get_allocation_ratios(inventory), documents.SHARE: 1.0}
        if not CONF.ram_allocation_ratio:
            # Nova's initial ratio is above 1. A daemon gives no memory that it does not have.
            ratios[orc.MEMORY_MB] = 1.0
        reserved = {orc.VCPU: CONF.reserved_host_cpus, orc.MEMORY_MB: CONF.reserved_host_memory_mb}
        provider_tree.update_inventory(
            nodename,
            {
                name: {
                    "total": total,
                    "min_unit": 1,
                    "max_unit": total,
                    "step_size": 1,
                    "allocation_ratio": ratios[name],
                    "reserved": min(reserved.get(name, 0), total),
                }
                for name, total in totals.items()
                if total
            },
        )
        traits = {"CUSTOM_NFLUID"}
        traits.update(f"CUSTOM_NFLUID_TIER_{tier.upper()}" for tier in capacity["tiers"])
        traits.update(f"CUSTOM_NFLUID_NF_{nf.upper().replace('-', '_')}" for nf in capacity["nfs"])
        present = provider_tree.data(nodename).traits
        gone = {trait for trait in present if trait.startswith("CUSTOM_NFLUID")} - traits
        provider_tree.remove_traits(nodename, *gone)
        provider_tree.add_traits(nodename, *traits)

    def get_host_ip_addr(self):
        return CONF.my_ip

    # ---- life

    def _keys(self, instance, vifs):
        """Returns a server as an instance."""
        known = instance.system_metadata
        image = {name[len("image_") :]: value for name, value in known.items() if name.startswith("image_")}
        ports = {name[len(PORT_PREFIX) :]: value for name, value in known.items() if name.startswith(PORT_PREFIX)}
        flavor = {"memory_mb": instance.flavor.memory_mb, "extra_specs": instance.flavor.extra_specs or {}}
        server = {"metadata": instance.metadata or {}, "user_data": instance.user_data, "port_names": ports}
        return documents.instance(image, flavor, server, vifs, CONF.nfluid.owner, CONF.nfluid.image_folders)

    def _make(self, instance, network_info, saved=None):
        """Makes the instance of a server, or makes it what it is to be."""
        vifs = network_info or []
        self.plug_vifs(instance, vifs)
        with faults():
            self._host(instance).make(instance.uuid, self._keys(instance, vifs), vifs, saved)
        self._shelf.drop(instance.uuid, shelf.OFF, shelf.SUSPENDED)

    def spawn(
        self,
        context,
        instance,
        image_meta,
        injected_files,
        admin_password,
        allocations,
        network_info=None,
        block_device_info=None,
        power_on=True,
        accel_info=None,
    ):
        if block_device_info and driver.block_device_info_get_mapping(block_device_info):
            raise exception.InvalidInput(reason="an instance of nfluid has no volumes")
        # Nova asks Neutron meanwhile: this waits for the answer.
        network_info = list(network_info or [])
        begun = time.monotonic()
        saved = self._download(context, instance) if instance.system_metadata.get("image_nfluid_saved") else None
        if power_on:
            with self._wired(instance, network_info):
                self._make(instance, network_info, saved)
        else:
            self._shelf.put(instance.uuid, shelf.OFF, saved)
        LOG.info("spawned in %.1f ms", (time.monotonic() - begun) * 1e3, instance=instance)

    def _download(self, context, instance):
        """Returns the state that an image has."""
        data = Bounded(instance.image_ref)
        # Without a file to write to, Nova closes what it returns.
        self._images.download(context, instance.image_ref, data=data)
        try:
            return data.getvalue().decode("ascii")
        except UnicodeDecodeError as error:
            raise exception.ImageUnacceptable(image_id=instance.image_ref, reason="it is no saved instance") from error

    def destroy(self, context, instance, network_info, block_device_info=None, destroy_disks=True, destroy_secrets=True):
        with faults():
            self._host(instance).remove(instance.uuid, network_info or [])
        self.unplug_vifs(instance, network_info)
        self._shelf.drop(instance.uuid, shelf.OFF, shelf.SUSPENDED)

    def cleanup(
        self,
        context,
        instance,
        network_info,
        block_device_info=None,
        destroy_disks=True,
        migrate_data=None,
        destroy_vifs=True,
        destroy_secrets=True,
    ):
        # 'destroy' leaves nothing.
        with faults():
            self._host(instance).clear(network_info or [])
        if destroy_vifs:
            self.unplug_vifs(instance, network_info)

    def reboot(
        self,
        context,
        instance,
        network_info,
        reboot_type,
        block_device_info=None,
        bad_volumes_callback=None,
        accel_info=None,
        share_info=None,
    ):
        if reboot_type == "SOFT" and self._find(instance):
            with faults():
                self._host(instance).act(instance.uuid, "restart")
            return
        with faults():
            self._host(instance).remove(instance.uuid, network_info, signal="SIGKILL")
        self._make(instance, network_info)

    def get_console_output(self, context, instance):
        with faults():
            logs = self._host(instance).daemon.request("GET", path_of("instances", instance.uuid) + "/logs?tail=1000")
        # Nova takes Latin-1 and makes ASCII of it.
        return "".join(f"{line}\n" for line in logs["lines"]).encode("ascii", "replace").decode()

    def get_diagnostics(self, instance):
        with faults():
            return self._host(instance).daemon.request("GET", path_of("instances", instance.uuid) + "/stats")["instance"]

    def get_instance_diagnostics(self, instance):
        found = self.get_diagnostics(instance)
        result = diagnostics.Diagnostics(
            state="paused" if found.get("paused") else "running",
            # Nova's list of drivers is closed: 'driver' stays unset.
            config_drive=False,
            num_cpus=1,
            cpu_details=[],
            nic_details=[],
            disk_details=[],
        )
        result.add_cpu(id=0, time=found.get("cpu_ns"))
        result.memory_details = diagnostics.MemoryDiagnostics(
            maximum=found["memory_limit_bytes"] >> 20 if found.get("memory_limit_bytes") else None,
            used=found["memory_bytes"] >> 20 if found.get("memory_bytes") is not None else None,
        )
        return result

    # ---- interfaces

    def plug_vifs(self, instance, network_info):
        for vif in network_info or []:
            # Other interfaces are parts of the instance.
            if documents.is_on_ovs(vif):
                ports.plug(instance, vif)

    def unplug_vifs(self, instance, network_info):
        for vif in network_info or []:
            if documents.is_on_ovs(vif):
                ports.unplug(instance, vif)

    @contextlib.contextmanager
    def _wired(self, instance, vifs):
        """Waits at its end until Neutron says that the ports on Open vSwitch, which are plugged within it, are wired."""
        deadline = CONF.vif_plugging_timeout
        events = [("network-vif-plugged", vif["id"]) for vif in vifs if deadline and documents.is_on_ovs(vif) and not vif.get("active", True)]
        if not events:
            yield
            return
        try:
            with self.virtapi.wait_for_instance_event(instance, events, deadline=deadline, error_callback=not_wired):
                yield
        except TIMEOUTS as error:
            if CONF.vif_plugging_is_fatal:
                raise exception.VirtualInterfaceCreateException() from error
            LOG.warning("Neutron has not wired its ports within %s s", deadline, instance=instance)

    def _replug(self, instance, before, vifs):
        """Makes an instance anew with other interfaces than before. It goes on with its state where that is known, and is silent meanwhile."""
        kept = {vif["id"] for vif in vifs}
        gone = [vif for vif in before if vif["id"] not in kept]
        host = self._host(instance)
        names = host.ports(instance.uuid)
        for vif in before:
            if vif["address"] in names:
                instance.system_metadata[PORT_PREFIX + vif["id"]] = names[vif["address"]]
        keys, former = self._keys(instance, vifs), self._keys(instance, before)
        saved = host.save(instance.uuid)
        self.plug_vifs(instance, vifs)
        host.remove(instance.uuid, [])
        try:
            host.make(instance.uuid, keys, vifs, saved)
        except ApiError:
            host.make(instance.uuid, former, before, saved)
            raise
        host.clear(gone)
        self.unplug_vifs(instance, gone)
        named = {port["mac"]: name for name, port in keys["ports"].items() if "mac" in port}
        for vif in gone:
            instance.system_metadata.pop(PORT_PREFIX + vif["id"], None)
        for vif in vifs:
            instance.system_metadata[PORT_PREFIX + vif["id"]] = named[vif["address"]]
        instance.save()

    def attach_interface(self, context, instance, image_meta, vif):
        others = [it for it in instance.get_network_info() if it["id"] != vif["id"]]
        if not self._find(instance):
            return
        try:
            self._replug(instance, others, [*others, vif])
        except (ApiError, documents.Unacceptable) as error:
            LOG.error("%s", in_a_line(error), instance=instance)
            raise exception.InterfaceAttachFailed(instance_uuid=instance.uuid) from error

    def detach_interface(self, context, instance, vif):
        others = [it for it in instance.get_network_info() if it["id"] != vif["id"]]
        if not self._find(instance):
            return
        try:
            self._replug(instance, [*others, vif], others)
        except (ApiError, documents.Unacceptable) as error:
            LOG.error("%s", in_a_line(error), instance=instance)
            raise exception.InterfaceDetachFailed(instance_uuid=instance.uuid) from error

    # ---- resize and cold migration

    def migrate_disk_and_power_off(
        self, context, instance, dest, flavor, network_info, block_device_info=None, timeout=0, retry_interval=0
    ):
        host = self._host(instance)
        with faults():
            saved = host.save(instance.uuid) if host.find(instance.uuid) else self._shelf.get(instance.uuid, shelf.OFF)
            # What the server goes back to, if it does. It is written before the instance goes.
            self._shelf.put(instance.uuid, shelf.RESIZED, saved)
            host.remove(instance.uuid, network_info)
        self.unplug_vifs(instance, network_info)
        self._shelf.drop(instance.uuid, shelf.OFF)
        return saved or ""

    def finish_migration(
        self,
        context,
        migration,
        instance,
        disk_info,
        network_info,
        image_meta,
        resize_instance,
        allocations,
        block_device_info=None,
        power_on=True,
        share_info=None,
    ):
        if power_on:
            self._make(instance, network_info, disk_info or None)
        else:
            self._shelf.put(instance.uuid, shelf.OFF, disk_info)

    def confirm_migration(self, context, migration, instance, network_info):
        self._shelf.drop(instance.uuid, shelf.RESIZED)

    def finish_revert_migration(
        self, context, instance, network_info, migration, block_device_info=None, power_on=True, share_info=None
    ):
        saved = self._shelf.get(instance.uuid, shelf.RESIZED)
        if power_on:
            self._make(instance, network_info, saved)
        else:
            self._shelf.put(instance.uuid, shelf.OFF, saved)
        self._shelf.drop(instance.uuid, shelf.RESIZED)

    # ---- states

    def pause(self, instance):
        self._act_unless(instance, power_state.PAUSED, "pause")

    def unpause(self, instance):
        self._act_unless(instance, power_state.RUNNING, "unpause")

    def _act_unless(self, instance, state, action):
        if self.get_info(instance).state != state:
            with faults():
                self._host(instance).act(instance.uuid, action, {})

    def suspend(self, context, instance):
        host = self._host(instance)
        with faults():
            saved = host.save(instance.uuid)
        if saved is None:
            raise exception.InstanceSuspendFailure(reason="it is a program whose state nfluid does not know: pause or stop it")
        self._shelf.put(instance.uuid, shelf.SUSPENDED, saved)
        with faults():
            host.remove(instance.uuid, instance.get_network_info() or [])

    def resume(self, context, instance, network_info, block_device_info=None, share_info=None):
        self._make(instance, network_info, self._shelf.get(instance.uuid, shelf.SUSPENDED))

    def resume_state_on_host_boot(self, context, instance, network_info, block_device_info=None, share_info=None):
        # The daemon starts its instances itself.
        if not self._find(instance):
            self._make(instance, network_info)

    def power_off(self, instance, timeout=0, retry_interval=0):
        self._shelf.put(instance.uuid, shelf.OFF)
        with faults():
            # With a timeout its program is asked to end, and killed later if it does not.
            self._host(instance).remove(instance.uuid, instance.get_network_info() or [], signal=None if timeout else "SIGKILL")

    def power_on(self, context, instance, network_info, block_device_info=None, accel_info=None, share_info=None):
        self._make(instance, network_info, self._shelf.get(instance.uuid, shelf.OFF))

    # ---- images

    def snapshot(self, context, instance, image_id, update_task_state):
        if not self._find(instance):
            raise exception.InstanceNotRunning(instance_id=instance.uuid)
        update_task_state(task_state=task_states.IMAGE_PENDING_UPLOAD)
        with faults():
            saved = self._host(instance).save(instance.uuid)
        if saved is None:
            raise exception.InstanceNotReady(instance_id=instance.uuid)
        update_task_state(task_state=task_states.IMAGE_UPLOADING, expected_state=task_states.IMAGE_PENDING_UPLOAD)
        described = {
            "status": "active",
            "disk_format": "raw",
            "container_format": "bare",
            "properties": {"nfluid_saved": "true", "image_location": "snapshot", "image_state": "available", "owner_id": instance.project_id},
        }
        self._images.update(context, image_id, described, io.BytesIO(saved.encode()), purge_props=False)

    # ---- live migration (S: called at the source, D: at the destination)

    def check_can_live_migrate_destination(  # D
        self, context, instance, src_compute_info, dst_compute_info, block_migration=False, disk_over_commit=False
    ):
        address = CONF.nfluid.migration_address
        if len(self._hosts) != 1 or not address:
            reason = "[nfluid] migration_address of the destination's nova.conf names no address" if not address else "the destination stands for several daemons"
            raise exception.MigrationPreCheckError(reason=reason)
        # Nova's conductor passes on only classes that it knows.
        return migrate_data.LibvirtLiveMigrateData(
            is_shared_instance_path=True, is_shared_block_storage=True, block_migration=False, target_connect_addr=address
        )

    def cleanup_live_migration_destination_check(self, context, dest_check_data):  # D
        pass

    def check_can_live_migrate_source(self, context, instance, dest_check_data, block_device_info=None):  # S
        return dest_check_data

    def pre_live_migration(self, context, instance, block_device_info, network_info, disk_info, migrate_data):  # D
        self.plug_vifs(instance, network_info)
        with faults():
            self._only_host().prepare(instance.uuid, network_info or [])
        return migrate_data

    def live_migration(self, context, instance, dest, post_method, recover_method, block_migration=False, migrate_data=None):  # S
        try:
            with faults():
                report = self._host(instance).act(instance.uuid, "migrate", {"to": migrate_data.target_connect_addr})
        except Exception:
            recover_method(context, instance, dest, migrate_data)
            raise
        LOG.info("moved to %s: silent for %.1f ms", dest, report["blocked_us"] / 1e3, instance=instance)
        post_method(context, instance, dest, block_migration, migrate_data)

    def post_live_migration(self, context, instance, block_device_info, migrate_data=None):  # S
        pass

    def post_live_migration_at_source(self, context, instance, network_info):  # S
        with faults():
            self._host(instance).clear(network_info or [])
        self.unplug_vifs(instance, network_info)

    def post_live_migration_at_destination(self, context, instance, network_info, block_migration=False, block_device_info=None):  # D
        host = self._only_host()
        host.arrived(instance.uuid)
        if not host.find(instance.uuid):
            raise exception.InstanceNotFound(instance_id=instance.uuid)

    def rollback_live_migration_at_destination(  # D
        self, context, instance, network_info, block_device_info, destroy_disks=True, migrate_data=None
    ):
        with faults():
            self._only_host().abandon(instance.uuid, network_info or [])
        self.unplug_vifs(instance, network_info)
