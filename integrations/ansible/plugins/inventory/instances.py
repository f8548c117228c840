# SPDX-License-Identifier: Apache-2.0 OR MIT

from __future__ import annotations

DOCUMENTATION = r"""
name: instances
short_description: Instances of hosts with nfluid
description:
  - Each instance of each daemon is a host C(INSTANCE@DAEMON), with the daemon's word of it in C(nfluid_instance) and the daemon's name in C(nfluid_daemon).
  - Instances of a daemon are in the group C(nfluid_DAEMON), and all of them in C(nfluid_instances).
  - The file's name ends with C(nfluid.yml) or C(nfluid.yaml).
author: nfluid's authors (@nfluid)
extends_documentation_fragment: [ansible.builtin.constructed]
options:
  plugin:
    description: Has to be V(nfluid.nfluid.instances).
    required: true
    choices: [nfluid.nfluid.instances]
  daemons:
    description:
      - The daemons, by a name. Each has the keys C(socket), or C(host), C(client_cert), C(client_key) and C(ca_cert), and C(timeout), as in the modules.
    type: dict
    required: true
"""

EXAMPLES = r"""
plugin: nfluid.nfluid.instances
daemons:
  edge1:
    host: edge1.example:7444
    client_cert: ops.crt
    client_key: ops.key
    ca_cert: hosts.ca
  here: {}
keyed_groups:
  - key: nfluid_instance.nf
    prefix: nf
  - key: nfluid_instance.state
    prefix: state
"""

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible_collections.nfluid.nfluid.plugins.module_utils.api import ApiError, Daemon
from ansible_collections.nfluid.nfluid.plugins.module_utils.modules import ARGUMENTS, REQUIRED_BY

ALL = "nfluid_instances"


class InventoryModule(BaseInventoryPlugin, Constructable):
    NAME = "nfluid.nfluid.instances"

    def verify_file(self, path):
        return super().verify_file(path) and path.endswith(("nfluid.yml", "nfluid.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        inventory.add_group(ALL)
        for name, options in self.get_option("daemons").items():
            daemon = Daemon(self._complete(name, options or {}))
            try:
                instances = daemon.request("GET", "/v1/instances")
            except ApiError as error:
                raise AnsibleParserError(f"daemons.{name}: {error}") from error
            for instance in instances:
                self._add(name, instance)

    def _complete(self, name, given):
        """Returns a daemon's options, with what is not given."""
        if not isinstance(given, dict):
            raise AnsibleParserError(f"daemons.{name}: keys and values are expected")
        unknown = sorted(set(given) - set(ARGUMENTS))
        if unknown:
            raise AnsibleParserError(f"daemons.{name}: '{unknown[0]}' is no key; there are {', '.join(ARGUMENTS)}")
        missing = [key for key in REQUIRED_BY["host"] if given.get("host") and not given.get(key)]
        if missing:
            raise AnsibleParserError(f"daemons.{name}: 'host' needs '{missing[0]}'")
        return {**{key: spec.get("default") for key, spec in ARGUMENTS.items()}, **given}

    def _add(self, daemon, instance):
        host = f"{instance['name']}@{daemon}"
        group = self._sanitize_group_name(f"nfluid_{daemon}")
        self.inventory.add_group(group)
        self.inventory.add_host(host, group=group)
        self.inventory.add_host(host, group=ALL)
        variables = {"nfluid_daemon": daemon, "nfluid_instance": instance}
        for key, value in variables.items():
            self.inventory.set_variable(host, key, value)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, host, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, host, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host, strict=strict)
