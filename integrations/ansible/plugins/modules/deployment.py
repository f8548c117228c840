#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0 OR MIT

from __future__ import annotations

DOCUMENTATION = r"""
module: deployment
short_description: Apply a deployment to a host with nfluid
description:
  - Makes the host's network functions, switches, uplinks, links and chains what a deployment says, completely or not at all.
  - Instances of engines (those with an C(owner)) are left as they are.
author: nfluid's authors (@nfluid)
options:
  definition:
    description:
      - The deployment, as data or as a text in YAML.
      - Required unless O(state=absent), where it names what is removed; without it everything is removed.
    type: raw
  attachments:
    description: Texts of the files that the deployment names (C(rules_file), C(routes_file)), by the name in the deployment.
    type: dict
    default: {}
  state:
    description:
      - V(present) makes O(definition) the whole deployment.
      - V(merged) adds the objects of O(definition), and replaces those of the same names.
      - V(absent) removes the objects that O(definition) names.
    type: str
    choices: [present, merged, absent]
    default: present
extends_documentation_fragment: [nfluid.nfluid.daemon, nfluid.nfluid.daemon.changes]
"""

EXAMPLES = r"""
- name: A firewall between two interfaces
  nfluid.nfluid.deployment:
    definition:
      version: 1
      uplinks:
        lan: {interface: eth1}
        wan: {interface: eth2}
      instances:
        fw: {nf: firewall, share: 20%, config: {rules_file: rules}}
      chains:
        edge: {from: lan, to: wan, via: [fw]}
    attachments:
      rules: "{{ lookup('ansible.builtin.file', 'rules') }}"

- name: Remove it
  nfluid.nfluid.deployment:
    definition: "{{ lookup('ansible.builtin.file', 'edge.yaml') }}"
    state: absent
"""

RETURN = r"""
changes:
  description: The changes that were made, or that would be made in check mode.
  returned: success
  type: list
  elements: dict
  sample: [{verb: created, kind: instance, name: fw}]
problem:
  description: What the daemon says is wrong (RFC 9457), with every error of the deployment and its line.
  returned: failure
  type: dict
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nfluid.nfluid.plugins.module_utils.api import ApiError, Daemon
from ansible_collections.nfluid.nfluid.plugins.module_utils.modules import ARGUMENTS, REQUIRED_BY, fail, result_of


def text_of(definition):
    """Returns a definition as a text: JSON is YAML too."""
    return definition if isinstance(definition, str) else json.dumps(definition)


def change(daemon, options, dry_run):
    definition = options["definition"]
    if options["state"] == "absent":
        what = {"everything": True} if definition is None else {"text": text_of(definition)}
        return daemon.request("POST", "/v1/delete", {**what, "dry_run": dry_run})
    request = {
        "text": text_of(definition),
        "attachments": options["attachments"],
        "merge": options["state"] == "merged",
        "dry_run": dry_run,
    }
    return daemon.request("POST", "/v1/apply", request)


def main():
    module = AnsibleModule(
        argument_spec={
            "definition": {"type": "raw"},
            "attachments": {"type": "dict", "default": {}},
            "state": {"type": "str", "choices": ["present", "merged", "absent"], "default": "present"},
            **ARGUMENTS,
        },
        required_by=REQUIRED_BY,
        required_if=[("state", "present", ["definition"]), ("state", "merged", ["definition"])],
        supports_check_mode=True,
    )
    try:
        answer = change(Daemon(module.params), module.params, module.check_mode)
    except ApiError as error:
        fail(module, error)
    module.exit_json(**result_of(module, answer))


if __name__ == "__main__":
    main()
