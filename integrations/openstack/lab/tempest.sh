#!/bin/bash
# Tempest's smoke tests of compute against a lab that runs, with nfluid's drivers. As root.
#
#   tempest.sh FOLDER [REGEX]   FOLDER is the lab's. Needs the Python package tempest beside the lab's OpenStack
#
# What the cloud has not is switched off below, and Tempest skips it: volumes (an instance has no disk), routers and floating addresses (the lab has no L3 agent),
# logins (a network function has no shell), consoles with a screen, rescue.
set -euo pipefail
d=$(realpath "$1")
regex=${2:-'^tempest\.api\.compute.*\[.*\bsmoke\b.*\]'}
run=$d/run

"$run" python3 - "$d/tempest.conf" <<'X'
import sys

import openstack

c = openstack.connect()
specs = {"resources:VCPU": "0", "resources:DISK_GB": "0", "resources:CUSTOM_NFLUID_SHARE": "10"}


def flavor(name, ram):
    made = c.compute.find_flavor(name) or c.compute.create_flavor(name=name, ram=ram, vcpus=1, disk=1)
    c.compute.create_flavor_extra_specs(made, specs)
    return made.id


def image(name):
    found = c.image.find_image(name)
    if not found:
        found = c.image.create_image(
            name, container_format="bare", disk_format="raw", data=b"\0", visibility="public", wait=True, validate_checksum=False, nfluid_nf="firewall"
        )
    return found.id


if not c.network.find_network("tempest"):
    network = c.network.create_network(name="tempest", shared=True)
    c.network.create_subnet(network_id=network.id, ip_version=4, cidr="10.50.0.0/16", enable_dhcp=False, gateway_ip=None)
open(sys.argv[1], "w").write(f"""
[DEFAULT]
log_file={sys.argv[1]}.log
[oslo_concurrency]
lock_path={sys.argv[1]}.locks
[auth]
admin_username=admin
admin_password=secret
admin_project_name=admin
admin_domain_name=Default
create_isolated_networks=false
[identity]
uri_v3=http://127.0.0.1:5000/v3
auth_version=v3
region=RegionOne
[compute]
image_ref={image("tempest-1")}
image_ref_alt={image("tempest-2")}
flavor_ref={flavor("tempest-1", 64)}
flavor_ref_alt={flavor("tempest-2", 128)}
fixed_network_name=tempest
min_compute_nodes=2
[compute-feature-enabled]
resize=true
live_migration=false
rescue=false
vnc_console=false
spice_console=false
attach_encrypted_volume=false
config_drive=false
volume_multiattach=false
[image-feature-enabled]
import_image=false
[network-feature-enabled]
floating_ips=false
[service_available]
cinder=false
swift=false
horizon=false
[validation]
run_validation=false
""")
X
export TEMPEST_CONFIG_DIR=$d TEMPEST_CONFIG=tempest.conf
cd "$d"
[ -d tempest ] || "$run" tempest init tempest >/dev/null
cp tempest.conf tempest/etc/tempest.conf
cd tempest
"$run" tempest run --serial --regex "$regex"
