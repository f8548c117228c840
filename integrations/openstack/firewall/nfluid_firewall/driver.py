# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The firewall driver of Neutron's Open vSwitch agent: `firewall_driver = nfluid` in its configuration."""

import os

from neutron.agent import firewall as neutron_firewall
from neutron.agent.common import ovs_lib
from neutron.agent.linux.openvswitch_firewall import iptables
from neutron_lib import constants
from neutron_lib.callbacks import events, registry, resources
from neutron_lib.plugins.ml2 import ovs_constants
from oslo_config import cfg
from oslo_log import log as logging

from nfluid_firewall import flows, openflow, rules
from nfluid_firewall.firewall import Firewall

LOG = logging.getLogger(__name__)

OPTIONS = [
    cfg.StrOpt(
        "rundir",
        default=os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"),
        help="The folder of Open vSwitch's sockets, in which BRIDGE.mgmt is the integration bridge's.",
    )
]
GROUP = "nfluid_firewall"


def list_opts():
    return [(GROUP, OPTIONS)]


cfg.CONF.register_opts(OPTIONS, GROUP)


class NoPort(Exception):
    """The bridge has no such port, or the agent has not given it a network yet."""


class NfluidFirewallDriver(neutron_firewall.FirewallDriver):
    """Neutron's calls, told to `Firewall`. The agent makes them one after the other."""

    provides_arp_spoofing_protection = True

    def __init__(self, integration_bridge):
        """integration_bridge: the agent's, of Neutron's class `OVSBridge`."""
        # By this name, others of Neutron find the bridge in its firewall driver.
        self.int_br = integration_bridge.deferred(full_ordered=True, use_bundle=True)
        self._bridge = integration_bridge
        self._bridge.add_protocols(ovs_constants.OPENFLOW10, ovs_constants.OPENFLOW13, ovs_constants.OPENFLOW14)
        if cfg.CONF.AGENT.explicitly_egress_direct:
            LOG.warning("explicitly_egress_direct: this driver does without; packets between ports of a host never take the action NORMAL")
        # Ports that had the rules of the hybrid driver lose them.
        self.iptables_helper = iptables.Helper(self._bridge)
        self.iptables_helper.load_driver_if_needed()
        self._dicts = {}
        self._firewall = Firewall(self._switch(), ethertypes(cfg.CONF.SECURITYGROUP.permitted_ethertypes))
        registry.subscribe(self._ovs_restarted, resources.AGENT, events.OVS_RESTARTED)

    def _switch(self):
        path = os.path.join(cfg.CONF[GROUP].rundir, f"{self._bridge.br_name}.mgmt")
        cookie = lambda: self._bridge.default_cookie
        if os.geteuid() == 0:
            return openflow.Switch(path, cookie)
        from nfluid_firewall import privileged

        return openflow.Switch(path, cookie, privileged.ACCESS)

    def _ovs_restarted(self, *_, **__):
        LOG.info("Open vSwitch was started again: security groups begin anew")
        self._dicts.clear()
        self._firewall.start()

    @property
    def ports(self):
        return dict(self._dicts)

    def prepare_port_filter(self, port):
        self.iptables_helper.cleanup_port(port)
        self._set(port)

    def update_port_filter(self, port):
        self._set(port)

    def _set(self, port):
        port_id = port["device"]
        try:
            if not neutron_firewall.port_sec_enabled(port):
                self._remove(port_id)
                self._trust(port_id, self._bridge.get_vif_port_by_id(port_id))
                return
            applied = self._port_of(port)
        except NoPort as why:
            LOG.info("port %s: %s", port_id, why)
            self._remove(port_id)
            return
        self._firewall.distrust(port_id)
        self._firewall.set_port(port_id, applied, port["security_groups"])
        self._dicts[port_id] = port.copy()

    def remove_port_filter(self, port):
        self._remove(port["device"])

    def _remove(self, port_id):
        self._dicts.pop(port_id, None)
        self._firewall.remove_port(port_id)

    def update_security_group_rules(self, sg_id, rules):
        self._firewall.set_rules(sg_id, read_rules(sg_id, rules))

    def update_security_group_members(self, sg_id, sg_members):
        found = {(it if isinstance(it, str) else tuple(it)) for members in sg_members.values() for it in members}
        self._firewall.set_members(sg_id, found)

    def security_group_updated(self, action_type, sec_group_ids, device_ids=None):
        """The agent updates the ports itself."""

    def process_trusted_ports(self, port_ids):
        found = self._bridge.get_vifs_by_ids(port_ids)
        for port_id in port_ids:
            try:
                self._trust(port_id, found.get(port_id))
            except NoPort as why:
                LOG.warning("trusted port %s: %s", port_id, why)

    def _trust(self, port_id, vif):
        self._firewall.trust(port_id, number_of(vif), self._net_of(vif))

    def remove_trusted_ports(self, port_ids):
        for port_id in port_ids:
            self._firewall.distrust(port_id)

    def filter_defer_apply_on(self):
        self._firewall.defer()

    def filter_defer_apply_off(self):
        self._firewall.apply()

    def _port_of(self, port):
        """Returns a port as flows need it."""
        vif = self._bridge.get_vif_port_by_id(port["device"])
        number, net = number_of(vif), self._net_of(vif)
        addresses = {(vif.vif_mac, address) for address in port.get("fixed_ips", ())}
        addresses |= {(pair["mac_address"], pair["ip_address"]) for pair in port.get("allowed_address_pairs", ())}
        return flows.Port(number, net, vif.vif_mac, tuple(sorted(addresses)))

    def _net_of(self, vif):
        """Returns the VLAN of a port's network on this host, which the agent has written down."""
        config = self._bridge.db_get_val("Port", vif.port_name, "other_config") or {}
        try:
            return int(config["tag"])
        except (KeyError, ValueError):
            raise NoPort(f"{vif.port_name} has no network yet") from None


def number_of(vif):
    """Returns OpenFlow's number of a port."""
    if not vif or vif.ofport in (ovs_lib.UNASSIGNED_OFPORT, ovs_lib.INVALID_OFPORT):
        raise NoPort("it is not on the bridge")
    return vif.ofport


def ethertypes(texts):
    """Returns the Ethernet types that pass unlooked at."""
    found = []
    for text in texts:
        try:
            found.append(int(text, 16))
        except ValueError:
            LOG.warning("permitted_ethertypes: %s is no hexadecimal number", text)
    return found


def read_rules(group, found):
    """Returns a group's rules. One that cannot be had permits nothing."""
    read = []
    for rule in found:
        try:
            read.append(rules.read(rule, constants.IP_PROTOCOL_MAP))
        except (KeyError, ValueError) as error:
            LOG.warning("security group %s: the rule %s permits nothing: %s", group, rule, error)
    return read
