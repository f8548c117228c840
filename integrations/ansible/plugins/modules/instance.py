#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0 OR MIT

from __future__ import annotations

DOCUMENTATION = r"""
module: instance
short_description: Manage one instance of a network function
description:
  - Makes, changes, removes, restarts, pauses or resumes one instance on a host with nfluid. Other objects of the host's deployment stay.
author: nfluid's authors (@nfluid)
options:
  name:
    description: Name of the instance.
    type: str
    required: true
  definition:
    description:
      - The instance, with the keys of a deployment's C(instances).
      - Required unless the instance exists. Without it an instance that exists is not changed.
    type: dict
  links:
    description: Links of its ports, as in a deployment - pairs such as C(["fw.in", "lan"]).
    type: list
    elements: list
    default: []
  attachments:
    description: Texts of the files that O(definition) names, by the name there.
    type: dict
    default: {}
  state:
    description:
      - V(present) makes the instance if it is missing, and changes it if O(definition) differs.
      - V(running) does so, and resumes the instance if it is paused.
      - V(paused) does so, and pauses the instance.
      - V(restarted) does so, and ends the instance and starts it again, unless it was made just now.
      - V(absent) removes the instance and the links of its ports.
    type: str
    choices: [present, running, paused, restarted, absent]
    default: present
extends_documentation_fragment: [nfluid.nfluid.daemon, nfluid.nfluid.daemon.changes]
"""

EXAMPLES = r"""
- name: A firewall between two uplinks
  nfluid.nfluid.instance:
    name: fw
    definition: {nf: firewall, share: 20%, config: {rules: [allow tcp from any to any 443]}}
    links: [[fw.in, lan], [fw.out, wan]]

- name: Start it anew
  nfluid.nfluid.instance:
    name: fw
    state: restarted

- name: Remove it
  nfluid.nfluid.instance:
    name: fw
    state: absent
"""

RETURN = r"""
changes:
  description: The changes that were made, or that would be made in check mode.
  returned: success
  type: list
  elements: dict
  sample: [{verb: created, kind: instance, name: fw}]
instance:
  description: The instance as it is now. Not in check mode.
  returned: if it exists
  type: dict
problem:
  description: What the daemon says is wrong (RFC 9457).
  returned: failure
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nfluid.nfluid.plugins.module_utils.api import ApiError, Daemon, path_of
from ansible_collections.nfluid.nfluid.plugins.module_utils.modules import ARGUMENTS, REQUIRED_BY, fail, result_of


class Instance:
    """An instance, and what was done to it."""

    def __init__(self, module):
        self.options = module.params
        self.dry_run = module.check_mode
        self.daemon = Daemon(module.params)
        self.path = path_of("instances", self.options["name"])
        self.changes = []
        self.warnings = []

    def find(self):
        return self.daemon.find(self.path)

    def _take(self, answer):
        self.changes += answer.get("changes", [])
        self.warnings += answer.get("warnings", [])

    def remove(self):
        if self.find() is not None:
            dry_run = str(self.dry_run).lower()
            self._take(self.daemon.request("DELETE", f"{self.path}?with_links=true&dry_run={dry_run}"))

    def make(self):
        """Makes it what the definition says."""
        options = self.options
        if options["definition"] is None:
            if self.find() is None:
                raise ApiError(f"there is no instance '{options['name']}': its definition is needed to make it")
            return
        request = {
            "instance": options["definition"],
            "links": options["links"],
            "attachments": options["attachments"],
            "dry_run": self.dry_run,
        }
        self._take(self.daemon.request("PUT", self.path, request))

    def is_new(self):
        """True if a process of it was started just now, or would be."""
        anew = ("created", "replaced")
        mine = (change for change in self.changes if change["kind"] == "instance")
        return any(change["name"] == self.options["name"] and change["verb"] in anew for change in mine)

    def _act(self, action, body, detail):
        if not self.dry_run:
            self.daemon.request("POST", f"{self.path}/{action}", body)
        change = {"verb": "changed", "kind": "instance", "name": self.options["name"], "details": [detail]}
        self.changes.append(change)

    def follow(self):
        """Pauses, resumes or restarts it."""
        state = self.options["state"]
        found = self.find() or {}
        is_paused = found.get("state") == "paused"
        if state == "paused" and not is_paused:
            self._act("pause", {}, "paused")
        elif state == "running" and is_paused:
            self._act("unpause", None, "resumed")
        elif state == "restarted" and not self.is_new():
            self._act("restart", None, "restarted")


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "definition": {"type": "dict"},
            "links": {"type": "list", "elements": "list", "default": []},
            "attachments": {"type": "dict", "default": {}},
            "state": {
                "type": "str",
                "choices": ["present", "running", "paused", "restarted", "absent"],
                "default": "present",
            },
            **ARGUMENTS,
        },
        required_by=REQUIRED_BY,
        supports_check_mode=True,
    )
    instance = Instance(module)
    found = None
    try:
        if module.params["state"] == "absent":
            instance.remove()
        else:
            instance.make()
            instance.follow()
            found = None if module.check_mode else instance.find()
    except ApiError as error:
        fail(module, error)
    result = result_of(module, {"changes": instance.changes, "warnings": instance.warnings})
    if found is not None:
        result["instance"] = found
    module.exit_json(**result)


if __name__ == "__main__":
    main()
