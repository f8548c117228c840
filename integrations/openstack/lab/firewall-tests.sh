#!/bin/bash
# Neutron's own functional tests of firewall drivers, unchanged, with nfluid's driver on Open vSwitch in user space. As root, in a network namespace of their own.
#
#   firewall-tests.sh packages       install what they need (Debian 12)
#   firewall-tests.sh [PART...]      run those whose names have a part; all without one
#
# DRIVER   the class; default nfluid_firewall.driver.NfluidFirewallDriver. Neutron's own: neutron.agent.linux.openvswitch_firewall.OVSFirewallDriver
set -euo pipefail
integrations=$(realpath "$(dirname "$0")/..")
if [ "${1:-}" = packages ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends neutron-openvswitch-agent openvswitch-switch python3-oslotest \
        python3-testscenarios python3-testresources python3-ddt python3-requests-mock python3-webtest sudo netcat-openbsd ncat arping conntrack
    exit
fi
if [ -z "${WITHIN:-}" ]; then
    netns=nfl-firewall-$$
    d=$(mktemp -d)
    export WITHIN=$d
    ip netns add "$netns"
    trap 'kill $(cat "$d"/*.pid 2>/dev/null) 2>/dev/null || true; ip netns del "$netns"; rm -rf "$d"' EXIT
    ip netns exec "$netns" unshare --mount "$0" "$@"
    exit
fi
d=$WITHIN
ip link set lo up
mkdir -p /var/run/openvswitch "$d/log"
mount --bind "$d" /var/run/openvswitch # in a mount namespace of this script's own: the tests look for Open vSwitch here
ovsdb-tool create "$d/conf.db" /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server "$d/conf.db" --remote=punix:/var/run/openvswitch/db.sock --remote=ptcp:6640:127.0.0.1 --unixctl="$d/db.ctl" --detach \
    --pidfile="$d/db.pid" -vconsole:off --log-file="$d/log/db"
ovs-vsctl --no-wait init
/usr/lib/openvswitch-switch/ovs-vswitchd unix:/var/run/openvswitch/db.sock --unixctl="$d/ovs-vswitchd.ctl" --detach --pidfile="$d/switch.pid" \
    -vconsole:off --log-file="$d/log/switch"
export OS_SUDO_TESTING=1 OS_ROOTWRAP_CMD=sudo OS_ROOTWRAP_DAEMON_CMD= OS_LOG_PATH=$d/log OS_TEST_TIMEOUT=120 PYTHONPATH=$integrations/firewall
cd "$d"
/usr/bin/python3 -B -W ignore - "$@" <<X
import os
import sys
import unittest

import eventlet

eventlet.monkey_patch()

from neutron.agent.common import ovs_lib
from neutron.agent.linux import openvswitch_firewall
from oslo_utils import importutils

# There is no module of the kernel here.
ovs_lib.BaseOVS.add_bridge.__defaults__ = ("netdev",)
ovs_lib.OVSBridge.__init__.__defaults__ = ("netdev",)
openvswitch_firewall.OVSFirewallDriver = importutils.import_class(os.environ.get("DRIVER", "nfluid_firewall.driver.NfluidFirewallDriver"))


def tests(suite):
    for test in suite:
        yield from tests(test) if isinstance(test, unittest.TestSuite) else [test]


found = unittest.defaultTestLoader.loadTestsFromNames(["neutron.tests.functional.agent.test_firewall"])
parts = sys.argv[1:] or [""]
chosen = [test for test in tests(found) if "OVS Firewall Driver" in test.id() and any(part in test.id() for part in parts)]
result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
sys.exit(not result.wasSuccessful())
X
