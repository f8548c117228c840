# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The options that lead to a daemon, and the modes of modules that change something."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  socket:
    description:
      - UNIX socket of the daemon, on the machine that the module runs on.
    type: path
    default: /run/nfluid/nfluidd.sock
  host:
    description:
      - C(HOST:PORT) of a daemon that serves its API over TCP (C(nfluidd --api-listen)). The socket is not used then.
      - The daemon's certificate has to be for HOST.
    type: str
  client_cert:
    description: Certificate that the daemon is shown, PEM. Required with O(host).
    type: path
  client_key:
    description: Private key of O(client_cert), PEM. Required with O(host).
    type: path
  ca_cert:
    description: Certificates of the authorities that sign the daemon's certificate, PEM. Required with O(host).
    type: path
  timeout:
    description: Seconds without an answer after which a request is given up.
    type: int
    default: 130
"""

    CHANGES = r"""
attributes:
  check_mode:
    description: The daemon plans the change and makes none.
    support: full
  diff_mode:
    description: The changes, one in each line.
    support: full
"""
