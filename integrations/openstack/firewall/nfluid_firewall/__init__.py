# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Security groups on Open vSwitch, as a firewall driver of Neutron's agent."""
