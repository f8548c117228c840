# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The section [ml2_nfluid] of Neutron's configuration."""

from oslo_config import cfg

GROUP = "ml2_nfluid"
OPTIONS = [
    cfg.ListOpt(
        "daemons",
        default=[],
        help="The daemons, each with the name of its host as Nova knows it: HOST=HOST:PORT, or HOST=/PATH/OF/ITS/SOCKET. A host may have several. "
        "Ports on other hosts are for other drivers.",
    ),
    cfg.StrOpt("client_cert", help="Certificate of Neutron, for daemons that are reached over TCP (PEM)."),
    cfg.StrOpt("client_key", help="Key of the certificate (PEM)."),
    cfg.StrOpt("ca_cert", help="Authority of the daemons' certificates (PEM)."),
    cfg.IntOpt("timeout", default=30, min=1, help="Seconds in which a daemon has to answer."),
    cfg.StrOpt("owner", default="neutron", help="Owner of the security groups that Neutron makes. Two clouds that share a daemon need two."),
    cfg.IntOpt("resync_interval", default=60, min=0, help="Seconds between two looks whether the daemons have all security groups; 0: none."),
]


def list_opts():
    """For oslo-config-generator."""
    return [(GROUP, OPTIONS)]
