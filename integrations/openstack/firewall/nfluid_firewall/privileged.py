# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Access to a bridge's socket, which root alone may open, for an agent that is not root."""

from oslo_privsep import capabilities, priv_context

from nfluid_firewall import openflow

context = priv_context.PrivContext(
    "nfluid_firewall", cfg_section="nfluid_firewall_privileged", pypath=__name__ + ".context", capabilities=[capabilities.CAP_DAC_OVERRIDE]
)


@context.entrypoint
def exchange(path, data, last, touch):
    openflow.exchange(path, data, last, touch)


@context.entrypoint
def read_flows(path, table):
    return openflow.read_flows(path, table)


ACCESS = (exchange, read_flows)
