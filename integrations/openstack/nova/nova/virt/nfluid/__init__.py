# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Servers of Nova as instances of nfluid: `compute_driver = nfluid.NfluidDriver`."""


def __getattr__(name):
    # Nova asks this package for the class. What needs no Nova can be imported without it.
    if name == "NfluidDriver":
        from nova.virt.nfluid.driver import NfluidDriver

        return NfluidDriver
    raise AttributeError(name)
