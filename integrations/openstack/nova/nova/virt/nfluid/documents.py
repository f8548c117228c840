# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a server and its networks are as documents of nfluid: instances, switches and uplinks.

Everything here is a function of plain values: no Nova, no daemon.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import os.path

# An image's property that begins so is a key of the instance.
IMAGE_PREFIX = "nfluid_"
# A flavor's extra spec that begins so is one.
FLAVOR_PREFIX = "nfluid:"
# A server's metadata that begins so is a key of the network function's configuration.
METADATA_PREFIX = "nfluid."
# Placement's resource: thousandths of a core.
SHARE = "CUSTOM_NFLUID_SHARE"

# Tenants make images: these keys give an instance nothing that its flavor does not.
IMAGE_KEYS = frozenset(
    ("nf", "program", "args", "api", "image", "entrypoint", "environment", "stop", "config", "ports", "tier", "frames", "health", "restart", "wake")
)
# And so do these keys of their ports: where a port is, and for whom it speaks, is Neutron's to say.
PORT_KEYS = frozenset(("kind", "mtu", "queues", "routes"))
# Network functions whose configuration names files of the host.
WITH_FILES = frozenset(("tls",))
# What Nova decides itself.
NOT_IN_FLAVORS = frozenset(("owner", "nf", "program", "image", "ports", "config"))
DEFAULT_PORTS = ("in", "out")


class Unacceptable(Exception):
    """The image, flavor or server makes no instance. `part` says which of them."""

    def __init__(self, part, message):
        super().__init__(f"{part}: {message}")
        self.part = part


def value_of(text):
    """Returns the value of a property, an extra spec or an item of metadata: JSON if it begins like a list or a mapping, else the text."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return text
    return json.loads(text)


def keys_of(part, pairs, prefix):
    """Returns the keys that have a prefix, without it."""
    keys = {}
    for name, text in pairs.items():
        if not name.startswith(prefix):
            continue
        try:
            keys[name[len(prefix) :]] = value_of(str(text))
        except ValueError as error:
            raise Unacceptable(part, f"{name} is no JSON: {error}") from error
    return keys


def image_keys(properties, folders):
    """Returns the keys that an image's properties give. Programs and container images lie below one of `folders`."""
    keys = keys_of("image", properties, IMAGE_PREFIX)
    # The driver reads the state of a saved server.
    keys.pop("saved", None)
    for key in keys:
        if key not in IMAGE_KEYS:
            raise Unacceptable("image", f"{IMAGE_PREFIX}{key} is for flavors, or no key of an instance")
    if len({"nf", "program", "image"} & keys.keys()) != 1:
        raise Unacceptable("image", f"one property of {IMAGE_PREFIX}nf, {IMAGE_PREFIX}program and {IMAGE_PREFIX}image is expected")
    if keys.get("nf") in WITH_FILES:
        raise Unacceptable("image", f"{IMAGE_PREFIX}nf: {keys['nf']} reads files of the host, which no image may name")
    for key in ("program", "image"):
        if key in keys and not lies_below(place_of(keys[key]), folders):
            raise Unacceptable("image", f"{IMAGE_PREFIX}{key}: {keys[key]} lies below no folder of [nfluid] image_folders")
    if isinstance(keys.get("args"), str):
        keys["args"] = keys["args"].split()
    keys["ports"] = ports_of(keys.get("ports"))
    return keys


def place_of(reference):
    """Returns the path in a program's or a container image's reference: `oci:DIR[:TAG]`, `oci-archive:FILE[:TAG]`, a path."""
    parts = str(reference).split(":")
    return parts[1] if len(parts) > 1 else parts[0]


def lies_below(path, folders):
    """Returns true if a path, with links followed, lies below one of the folders."""
    real = os.path.realpath(path)
    return os.path.isabs(path) and any(real.startswith(os.path.realpath(folder).rstrip("/") + "/") for folder in folders)


def ports_of(value):
    """Returns the ports that an image names: a mapping, a list, or names with commas between them."""
    if value is None:
        return {}
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if isinstance(value, list):
        value = dict.fromkeys(map(str, value))
    if not all(keys is None or isinstance(keys, dict) for keys in value.values()):
        raise Unacceptable("image", f"{IMAGE_PREFIX}ports: names, or a mapping from names to keys, are expected")
    ports = {name: dict(keys or {}) for name, keys in value.items()}
    for name, keys in ports.items():
        foreign = sorted(keys.keys() - PORT_KEYS)
        if foreign:
            raise Unacceptable("image", f"{IMAGE_PREFIX}ports: {name}.{foreign[0]} is not an image's to say")
    return ports


def flavor_keys(memory_mb, extra_specs):
    """Returns the keys that a flavor gives."""
    keys = {"memory": f"{memory_mb}MiB"}
    share = extra_specs.get(f"resources:{SHARE}")
    if share is not None:
        keys["share"] = f"{int(share) / 10:g}%"
    own = keys_of("flavor", extra_specs, FLAVOR_PREFIX)
    for key in own:
        if key in NOT_IN_FLAVORS:
            raise Unacceptable("flavor", f"{FLAVOR_PREFIX}{key} is for images")
    return {**keys, **own}


def config_of(image_config, metadata, user_data):
    """Returns an NF's configuration: the image's, over it the user data, over it the server's metadata."""
    config = dict(image_config or {})
    if user_data:
        try:
            text = base64.b64decode(user_data, validate=True).decode()
            given = value_of(text)
        except (binascii.Error, ValueError) as error:
            raise Unacceptable("server", f"user data is neither rules nor a configuration in JSON: {error}") from error
        if isinstance(given, list):
            raise Unacceptable("server", "user data: rules, or a configuration as a mapping, is expected")
        config.update(given if isinstance(given, dict) else {"rules": text})
    config.update(keys_of("server", metadata, METADATA_PREFIX))
    return config


def names_of_ports(declared, vifs, known):
    """Returns the name of each VIF's port, by the id of the VIF: those that are known, then the declared ones in their order."""
    names = {vif["id"]: known[vif["id"]] for vif in vifs if vif["id"] in known}
    candidates = list(declared) or list(DEFAULT_PORTS)
    free = [name for name in candidates if name not in names.values()]
    index = 0
    for vif in vifs:
        if vif["id"] in names:
            continue
        while not free:
            if f"port{index}" not in names.values():
                free.append(f"port{index}")
            index += 1
        names[vif["id"]] = free.pop(0)
    return names


def is_on_ovs(vif):
    """Returns true for a port on Open vSwitch."""
    return vif.get("type") == "ovs"


def interface_of(vif):
    """Returns the name of the interface that joins a port on Open vSwitch to nfluid."""
    return f"nf{vif['id'][:11]}"


def segment_of(vif):
    """Returns the id of what a VIF shares a switch with: its network, or nothing else where Open vSwitch has the network."""
    return vif["id"] if is_on_ovs(vif) else vif["network"]["id"]


def switch_of(segment):
    """Returns the name of a segment's switch."""
    return f"net-{segment}"


def uplink_of(segment):
    """Returns the name of the uplink of a segment."""
    return f"ext-{segment}"


def fixed_addresses(vif):
    """Returns the fixed addresses of a VIF with the lengths of their prefixes."""
    addresses = []
    for subnet in vif["network"].get("subnets", []):
        length = ipaddress.ip_network(subnet["cidr"]).prefixlen
        addresses += [f"{ip['address']}/{length}" for ip in subnet.get("ips", [])]
    return addresses


def port_keys(vif, declared):
    """Returns the keys of a VIF's port."""
    keys = {**declared, "mac": vif["address"], "switch": switch_of(segment_of(vif))}
    mtu = vif["network"].get("meta", {}).get("mtu")
    if mtu:
        keys.setdefault("mtu", mtu)
    if keys.get("kind") == "interface":
        keys.setdefault("addresses", fixed_addresses(vif))
    groups = (vif.get("details") or {}).get("nfluid_security_groups")
    if groups is None:
        # Without port security an instance may forward what others have sent.
        keys["learn"] = True
        return keys
    keys["security_groups"] = groups
    allowed = vif["details"].get("nfluid_allowed_addresses", [])
    keys["allowed_addresses"] = allowed or [address.split("/")[0] for address in fixed_addresses(vif)]
    return keys


def instance(image, flavor, server, vifs, owner, folders):
    """Returns an instance.

    `image`: the properties of the image. `flavor`: `memory_mb` and `extra_specs`. `server`: `metadata`, `user_data` (in base64) and `port_names` (the names of ports
    by the ids of their VIFs, where they are known). `vifs`: as Nova's network_info.
    """
    keys = image_keys(image, folders)
    declared = keys.pop("ports")
    names = names_of_ports(declared, vifs, server["port_names"])
    if "nf" in keys:
        config = config_of(keys.pop("config", None), server["metadata"], server["user_data"])
        if keys["nf"] == "router" and "addresses" not in config:
            config["addresses"] = {names[vif["id"]]: fixed_addresses(vif) for vif in vifs}
        if config:
            keys["config"] = config
    ports = {name: dict(own) for name, own in declared.items()}
    if not declared and set(names.values()) <= set(DEFAULT_PORTS):
        ports = {name: {} for name in DEFAULT_PORTS}
    for vif in vifs:
        name = names[vif["id"]]
        ports[name] = port_keys(vif, ports.get(name, {}))
    keys.update(flavor_keys(flavor["memory_mb"], flavor["extra_specs"]))
    keys["ports"] = ports
    keys["owner"] = owner
    return keys


def networks(vifs, interfaces, owner, ring=256):
    """Returns the switches of the networks of VIFs, and their uplinks with rings of so many slots, as a document. `interfaces`: by the names of physical networks."""
    switches, uplinks = {}, {}
    for vif in vifs:
        segment = segment_of(vif)
        switches[switch_of(segment)] = {"owner": owner}
        interface, more = outside(vif, interfaces)
        if interface:
            uplinks[uplink_of(segment)] = {"interface": interface, "switch": switch_of(segment), "ring": ring, "owner": owner, **more}
    return {"version": 1, "switches": switches, "uplinks": uplinks}


def outside(vif, interfaces):
    """Returns the interface by which a VIF's segment goes on outside of nfluid, None if it does not, and further keys of its uplink."""
    details, network = vif.get("details") or {}, vif["network"]["id"]
    if is_on_ovs(vif):
        if details.get("ovs_hybrid_plug"):
            raise Unacceptable("network", f"{network} has bridges in front of Open vSwitch: its agent's firewall_driver is to be nfluid or openvswitch")
        # Only the kernel's Open vSwitch takes what has no checksum yet.
        return interface_of(vif), {"super": "off"} if details.get("datapath_type") == "netdev" else {}
    if vif.get("type", "other") != "other":
        raise Unacceptable("network", f"{network} has ports of type {vif['type']}: nfluid has its own, and those of Open vSwitch")
    physical = details.get("nfluid_physical_network")
    if not physical:
        return None, {}
    if physical not in interfaces:
        raise Unacceptable("network", f"{network} is on the physical network {physical}, which [nfluid] physical_networks does not name")
    vlan = details.get("nfluid_vlan")
    return interfaces[physical] + (f".{vlan}" if vlan else ""), {}
