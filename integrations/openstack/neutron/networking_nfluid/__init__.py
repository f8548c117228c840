# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Ports of Neutron on hosts of nfluid."""
