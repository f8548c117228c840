# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ports on Open vSwitch: Neutron's agent for it does their networks and security groups. A pair of interfaces joins each to a switch of nfluid of its own."""

import os

import os_vif
from nova.network import os_vif_util
from vif_plug_ovs import linux_net

from nova.virt.nfluid import documents


def initialize():
    os_vif.initialize()


def plug(instance, vif):
    """Plugs a port, if it is not yet, by os-vif."""
    port, own = port_of(vif), documents.interface_of(vif)
    if not os.path.exists(f"/sys/class/net/{own}"):
        linux_net.create_veth_pair(own, port.vif_name, (vif["network"].get("meta") or {}).get("mtu"))
    os_vif.plug(port, os_vif_util.nova_to_osvif_instance(instance))


def unplug(instance, vif):
    """Unplugs a port, if it is plugged."""
    os_vif.unplug(port_of(vif), os_vif_util.nova_to_osvif_instance(instance))
    linux_net.delete_net_dev(documents.interface_of(vif))


def port_of(vif):
    """Returns a VIF as os-vif has it."""
    port = os_vif_util.nova_to_osvif_vif(vif)
    # With libvirt, that one makes the bridge's port.
    port.port_profile.create_port = True
    return port
