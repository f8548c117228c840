#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0 OR MIT

from __future__ import annotations

DOCUMENTATION = r"""
module: info
short_description: Facts of a host with nfluid
description:
  - Returns what the daemon tells of its host and of what runs there. Changes nothing.
author: nfluid's authors (@nfluid)
options:
  gather:
    description:
      - What is returned.
      - V(all) is everything but V(deployment), V(stats) and V(doctor), which are long.
    type: list
    elements: str
    choices:
      - all
      - version
      - capacity
      - health
      - instances
      - ports
      - switches
      - links
      - chains
      - uplinks
      - groups
      - pools
      - templates
      - io
      - deployment
      - stats
      - doctor
    default: [all]
extends_documentation_fragment: [nfluid.nfluid.daemon]
attributes:
  check_mode:
    description: It changes nothing.
    support: full
  diff_mode:
    description: It changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: What is left of the host
  nfluid.nfluid.info:
    gather: [capacity, health]
  register: nfluid

- name: Stop if the host is not as it should be
  ansible.builtin.assert:
    that: nfluid.health.status == 'ok'
"""

RETURN = r"""
capacity:
  description: What the host has, and how much of it is promised. The other parts are named as in O(gather).
  returned: if it is among O(gather)
  type: dict
problem:
  description: What the daemon says is wrong (RFC 9457).
  returned: failure
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nfluid.nfluid.plugins.module_utils.api import ApiError, Daemon
from ansible_collections.nfluid.nfluid.plugins.module_utils.modules import ARGUMENTS, REQUIRED_BY, fail

SHORT = [
    "version",
    "capacity",
    "health",
    "instances",
    "ports",
    "switches",
    "links",
    "chains",
    "uplinks",
    "groups",
    "pools",
    "templates",
    "io",
]
LONG = ["deployment", "stats", "doctor"]


def main():
    module = AnsibleModule(
        argument_spec={
            "gather": {"type": "list", "elements": "str", "choices": ["all", *SHORT, *LONG], "default": ["all"]},
            **ARGUMENTS,
        },
        required_by=REQUIRED_BY,
        supports_check_mode=True,
    )
    gather = module.params["gather"]
    wanted = [part for part in SHORT if part in gather or "all" in gather] + [part for part in LONG if part in gather]
    daemon = Daemon(module.params)
    try:
        facts = {part: daemon.request("GET", f"/v1/{part}") for part in wanted}
    except ApiError as error:
        fail(module, error)
    module.exit_json(changed=False, **facts)


if __name__ == "__main__":
    main()
