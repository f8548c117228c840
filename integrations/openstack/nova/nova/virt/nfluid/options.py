# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The section [nfluid] of nova.conf."""

from oslo_config import cfg

GROUP = "nfluid"
OPTIONS = [
    cfg.ListOpt(
        "daemons",
        default=[],
        item_type=cfg.types.String(),
        help="The daemons that this service stands for, each a node: NODE=/PATH/OF/ITS/SOCKET or NODE=HOST:PORT. "
        "Default: the daemon of this host, as a node with the name of the service's host.",
    ),
    cfg.StrOpt("client_cert", help="Certificate of this service, for daemons that are reached over TCP (PEM)."),
    cfg.StrOpt("client_key", help="Key of the certificate (PEM)."),
    cfg.StrOpt("ca_cert", help="Authority of the daemons' certificates (PEM)."),
    cfg.IntOpt("timeout", default=130, min=1, help="Seconds in which a daemon has to answer."),
    cfg.StrOpt("owner", default="nova", help="Owner of what this service makes. Two clouds that share a daemon need two."),
    cfg.DictOpt("physical_networks", default={}, help="Interfaces of the host by the names of Neutron's physical networks: physnet1:eth1"),
    cfg.ListOpt(
        "image_folders",
        default=[],
        help="Folders of the host with the programs and container images that images of Glance may name. Without any, images name network functions alone.",
    ),
    cfg.IntOpt("uplink_ring", default=256, help="Slots of the rings of physical networks' interfaces: 64, 128, 256, 512 or 1024."),
    cfg.IntOpt(
        "network_linger",
        default=300,
        min=0,
        help="Seconds for which a host keeps a network's switch and interface after the last server on it: the next one is there sooner.",
    ),
    cfg.StrOpt("migration_address", help="HOST:PORT at which other daemons reach the daemon of this service (nfluidd --migrate-listen)."),
]


def register(conf):
    conf.register_opts(OPTIONS, GROUP)


def list_opts():
    """For oslo-config-generator."""
    return [(GROUP, OPTIONS)]
