# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The mechanism driver of Neutron's ML2 plug-in: it binds ports on hosts of nfluid, and gives these hosts the ports' security groups.

There is no agent on a host. What a port's interface needs to know for as long as it lives is in the details of its binding, which Nova hands to its driver; what
changes is in a security group of nfluid that is the port's own.
"""

import threading

from neutron.db.models import securitygroup as sg_models
from neutron.plugins.ml2 import db as ml2_db
from neutron.plugins.ml2 import models as ml2_models
from neutron_lib import constants
from neutron_lib import context as neutron_context
from neutron_lib import worker
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events, registry, resources
from neutron_lib.db import api as db_api
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api
from oslo_config import cfg
from oslo_log import log as logging

from networking_nfluid import groups, hosts, options
from networking_nfluid.api import REACH, ApiError

CONF = cfg.CONF
CONF.register_opts(options.OPTIONS, options.GROUP)
LOG = logging.getLogger(__name__)

# Nova leaves the plugging to its driver.
VIF_TYPE = "other"
# The key of a binding's profile in which Nova writes down where the port's server moves.
MIGRATING_TO = "migrating_to"
# The detail of a binding with the names of a port's groups.
DETAIL = "nfluid_security_groups"


class Groups:
    """The security groups of ports on the daemons."""

    def __init__(self):
        own = CONF.ml2_nfluid
        self.hosts = hosts.daemons(own.daemons, {option: own[option] for option in REACH})
        self.owner = own.owner

    def of_ports(self, context, port_ids):
        """Returns the groups of ports by their names, and those that stand for Neutron's in their rules."""
        plugin = directory.get_plugin()
        found = {port["id"]: port for port in ml2_db.get_ports_and_sgs(context, list(port_ids))}
        ports = {port_id: port for port_id, port in found.items() if port.get("port_security_enabled", True)}
        wanted = {groups.name_of(port_id): groups.open_group(self.owner) for port_id in found.keys() - ports.keys()}
        if not ports:
            return wanted
        info = plugin.security_group_info_for_ports(context, ports)
        for group, by_family in info["sg_member_ips"].items():
            members = {family: {member if isinstance(member, str) else member[0] for member in found} for family, found in by_family.items()}
            wanted[groups.remote_name_of(group)] = groups.remote_group(members, self.owner)
        for port_id, port in ports.items():
            rules = [rule for group in port["security_groups"] for rule in info["security_groups"].get(group, [])]
            wanted[groups.name_of(port_id)] = groups.group_of(port, rules, self.owner)
        return wanted

    def put(self, context, host, port_ids):
        """Gives the daemons of a host the groups of ports."""
        wanted = self.of_ports(context, port_ids)
        for daemon in self.hosts[host]:
            hosts.put(daemon, wanted)

    def remove(self, host, port_id):
        """Takes a port's group away from a host. One that is still used there goes with the next look."""
        for daemon in self.hosts.get(host, []):
            try:
                hosts.remove(daemon, groups.name_of(port_id))
            except ApiError as error:
                LOG.info("security group of port %s on %s: %s", port_id, host, error)

    def sync(self, context):
        """Makes the groups of all daemons what they are to be."""
        for host, found in self.hosts.items():
            wanted = self.of_ports(context, bound_ports(context, host))
            for daemon in found:
                try:
                    for refusal in hosts.sync(daemon, wanted, self.owner):
                        LOG.warning("host %s: security group %s", host, refusal)
                except ApiError as error:
                    LOG.error("host %s: security groups: %s", host, error)


def is_guarded(binding):
    """Returns the conditions that a port was bound by this driver, and with groups."""
    return binding.vif_type == VIF_TYPE, binding.vif_details.like(f"%{DETAIL}%")


@db_api.CONTEXT_READER
def bound_ports(context, host):
    """Returns the ids of the ports that are bound to a host with groups."""
    binding = ml2_models.PortBinding
    query = context.session.query(binding.port_id).filter(binding.host == host, *is_guarded(binding))
    return {port_id for (port_id,) in query}


@db_api.CONTEXT_READER
def ports_with(context, group_ids):
    """Returns the host and id of each port with groups whose rules may have changed with these groups: it is in one, or its rules name one."""
    rule, in_group, binding = sg_models.SecurityGroupRule, sg_models.SecurityGroupPortBinding, ml2_models.PortBinding
    naming = context.session.query(rule.security_group_id).filter(rule.remote_group_id.in_(group_ids))
    concerned = {*group_ids, *(group for (group,) in naming)}
    query = (
        context.session.query(binding.host, binding.port_id)
        .join(in_group, in_group.port_id == binding.port_id)
        .filter(in_group.security_group_id.in_(concerned), *is_guarded(binding))
    )
    return {(host, port_id) for host, port_id in query}


class Resync(worker.BaseWorker):
    """Looks at every daemon now and then: one that was away has missed changes."""

    def __init__(self, interval):
        super().__init__(worker_process_count=1, desc="nfluid resync worker")
        self._interval = interval
        self._ended = threading.Event()
        self._thread = None

    def start(self):
        super().start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        own = Groups()
        while not self._ended.wait(self._interval):
            try:
                own.sync(neutron_context.get_admin_context())
            except Exception:
                LOG.exception("security groups were not looked at")

    def stop(self):
        self._ended.set()

    def wait(self):
        if self._thread:
            self._thread.join(self._interval)

    def reset(self):
        pass


class NfluidMechanismDriver(api.MechanismDriver):
    """Binds the ports of Nova's servers on hosts of nfluid."""

    def initialize(self):
        try:
            self._groups = Groups()
        except ValueError as error:
            raise cfg.ConfigFileValueError(str(error)) from error
        for event in (events.AFTER_CREATE, events.AFTER_DELETE):
            registry.subscribe(self._rule_changed, resources.SECURITY_GROUP_RULE, event)

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def get_workers(self):
        interval = CONF.ml2_nfluid.resync_interval
        return [Resync(interval)] if interval else []

    def bind_port(self, context):
        port = context.current
        if context.host not in self._groups.hosts:
            return
        if port.get(portbindings.VNIC_TYPE, portbindings.VNIC_NORMAL) != portbindings.VNIC_NORMAL:
            LOG.debug("port %s: an instance has no function of a NIC", port["id"])
            return
        for segment in context.segments_to_bind:
            details = details_of(segment)
            if details is None:
                continue
            if port.get("port_security_enabled", True):
                details[DETAIL] = [groups.name_of(port["id"])]
            context.set_binding(segment[api.ID], VIF_TYPE, details, status=constants.PORT_STATUS_ACTIVE)
            return
        LOG.warning("port %s: networks of nfluid are of type local, flat or vlan", port["id"])

    def create_port_postcommit(self, context):
        self._tell(context)

    def update_port_postcommit(self, context):
        self._tell(context)
        if context.original_host and context.original_host != context.host:
            self._groups.remove(context.original_host, context.current["id"])

    def delete_port_postcommit(self, context):
        self._groups.remove(context.host, context.current["id"])
        self._tell_others(context._plugin_context, context.current)

    def _tell(self, context):
        """Gives a port's host its group before Nova hears of the binding, and others theirs if the port's addresses or groups have changed."""
        port, before = context.current, context.original
        if context.vif_type == VIF_TYPE and context.host in self._groups.hosts:
            if DETAIL in context.vif_details:
                # Nova says where a server is about to move, live: its guard is made there while it still runs here.
                for host in {context.host, context.current[portbindings.PROFILE].get(MIGRATING_TO)} & self._groups.hosts.keys():
                    self._put(context._plugin_context, host, [port["id"]])
            elif port.get("port_security_enabled", True):
                LOG.warning("port %s was bound without port security: its groups hold when it is bound again", port["id"])
        keys = ("fixed_ips", "security_groups", "allowed_address_pairs")
        if before is None or any(port.get(key) != before.get(key) for key in keys):
            self._tell_others(context._plugin_context, port, before)

    def _tell_others(self, context, *states):
        named = {group for port in states if port for group in port.get("security_groups", [])}
        if named:
            self._groups_changed(context, named)

    def _rule_changed(self, resource, event, trigger, payload):
        rule = payload.latest_state if event == events.AFTER_CREATE else payload.metadata
        self._groups_changed(payload.context, {rule["security_group_id"]})

    def _groups_changed(self, context, group_ids):
        by_host = {}
        for host, port_id in ports_with(context.elevated(), group_ids):
            by_host.setdefault(host, set()).add(port_id)
        for host in by_host.keys() & self._groups.hosts.keys():
            self._put(context, host, by_host[host])

    def _put(self, context, host, port_ids):
        try:
            self._groups.put(context.elevated(), host, port_ids)
        except ApiError as error:
            # The next look tells it again. A server cannot be made there meanwhile: its group is missing.
            LOG.error("host %s: security groups: %s", host, error)


def details_of(segment):
    """Returns the details of a binding to a segment of a network, None if nfluid has no such networks."""
    kind = segment[api.NETWORK_TYPE]
    if kind not in (constants.TYPE_LOCAL, constants.TYPE_FLAT, constants.TYPE_VLAN):
        return None
    details = {portbindings.CAP_PORT_FILTER: True}
    if segment.get(api.PHYSICAL_NETWORK):
        details["nfluid_physical_network"] = segment[api.PHYSICAL_NETWORK]
    if kind == constants.TYPE_VLAN:
        details["nfluid_vlan"] = segment[api.SEGMENTATION_ID]
    return details
