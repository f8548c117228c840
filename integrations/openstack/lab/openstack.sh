#!/bin/bash
# An OpenStack on one machine, for tests and measurements of nfluid's drivers: MariaDB, RabbitMQ, keystone, glance, placement, nova (API, scheduler, conductor,
# a nova-compute for each host) and neutron. All of it lies below one folder and in one network namespace of its own, and nothing else can reach it. As root.
#
#   openstack.sh packages         install what it needs: Debian 12's OpenStack (Zed: nova 26); with VENV, a current one from PyPI (nova 34)
#   openstack.sh start [FOLDER]   make the databases, start everything, register everything
#   openstack.sh stop  [FOLDER]   end what 'start' began; the folder stays
#   openstack.sh restart FOLDER SERVICE   kill a service, such as nova-compute-node1, and start it again
#   openstack.sh dashboard FOLDER         start Horizon at 127.0.0.1:8000 in its namespace
#   openstack.sh trace FOLDER SECONDS     print what RabbitMQ carries meanwhile, for 'nfluid-orchestra analyse --openstack-trace'
#   FOLDER/run COMMAND...         run a command beside it as its administrator: FOLDER/run openstack server list
#
# VENV             the folder of a Python environment, which is made if it is not there, instead of Debian's OpenStack
# COMPUTE_DRIVER   Nova's driver; default nfluid.NfluidDriver
# HOSTS            the names of hosts; default "node1"
# OVS              the one of them whose ports are on Open vSwitch, by Neutron's agent with nfluid's firewall; its nova-compute is beside both
# NETNS            a network namespace that is there, such as that of a host's daemon, instead of one that is made
# CONFIG           a folder: nova-HOST.conf of it is added to that host's nova-compute; nova.conf, neutron.conf, glance.conf, placement.conf and
#                  keystone.conf to these services
#                  (a memcached runs at 127.0.0.1:11211, which nobody uses unless one of these says so)
set -euo pipefail
verb=${1:?packages, start or stop}
d=$(realpath -m "${2:-/tmp/openstack}")
driver=${COMPUTE_DRIVER:-nfluid.NfluidDriver}
integrations=$(realpath "$(dirname "$0")/..")
netns=${NETNS:-$(cat "$d/netns" 2>/dev/null || echo "nfl-$(basename "$d")")}
pw=secret
my=3306 mq=5672
export ERL_EPMD_ADDRESS=127.0.0.1 PYTHONPATH=$d/py
uwsgi=uwsgi_python3 paste=/etc
python=$(command -v python3)
export PATH=/usr/sbin:/usr/bin:/sbin:/bin # not another Python's
if [ -n "${VENV:-}" ]; then
    VENV=$(realpath -m "$VENV") uwsgi=uwsgi
    paste=$VENV/etc PATH=$VENV/bin:$PATH
fi

if [ "$verb" = packages ]; then
    packages='mariadb-server rabbitmq-server memcached openvswitch-switch sudo'
    [ -n "${VENV:-}" ] || packages+=' keystone placement-api glance-api nova-api nova-conductor nova-scheduler nova-compute neutron-server neutron-openvswitch-agent
        openstack-dashboard uwsgi-plugin-python3 python3-openstackclient python3-pymysql python3-memcache python3-pymemcache'
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
    [ -z "${VENV:-}" ] || [ -e "$VENV/bin/nova-compute" ] || {
        "$python" -m venv "$VENV"
        pip install nova==34.0.0 neutron==29.0.0 keystone==30.0.0 glance==33.0.0 openstack-placement==16.0.0 pyuwsgi PyMySQL \
            python-openstackclient python-memcached pymemcache
    }
    exit
fi

if [ "$verb" = stop ]; then
    for f in $(ls -r "$d"/pid/* 2>/dev/null); do
        kill -TERM -- "-$(cat "$f")" 2>/dev/null || true # its process group: some servers leave workers behind
    done
    sleep 3
    for f in $(ls -r "$d"/pid/* 2>/dev/null); do
        kill -KILL -- "-$(cat "$f")" 2>/dev/null || true
        rm -f "$f"
    done
    sleep 1
    ip netns exec "$netns" epmd -kill >/dev/null 2>&1 || true # RabbitMQ's
    [ -e "$d/netns" ] || ip netns del "$netns" 2>/dev/null || true
    exit
fi

# spawn NAME FILE: starts the service whose command is written down, its process id in FILE
spawn() {
    ip netns exec "$netns" setsid bash "$d/command/$1" >>"$d/log/$1" 2>&1 </dev/null &
    echo $! >"$2"
}

if [ "$verb" = restart ]; then
    file=$(echo "$d"/pid/*-"$3")
    kill -KILL -- "-$(cat "$file")" 2>/dev/null || true
    spawn "$3" "$file"
    exit
fi

if [ "$verb" = dashboard ]; then
    mkdir -p "$d/styles"
    { cat "$d/admin"; printf '%q ' exec env "STYLES=$d/styles" /usr/bin/python3 "$integrations/lab/dashboard.py"; echo; } >"$d/command/horizon"
    spawn horizon "$d/pid/99-horizon"
    exit
fi

if [ "$verb" = trace ]; then
    ctl() {
        ip netns exec "$netns" env ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_NODENAME=nfluid@localhost rabbitmqctl --quiet \
            --erlang-cookie "$(cat "$d/lib/.erlang.cookie")" "$1" >&2
    }
    ctl trace_on
    trap 'ctl trace_off' EXIT
    "$d/run" python3 "$integrations/lab/trace.py" amqp://guest:guest@127.0.0.1:$mq// "$3"
    exit
fi

# Everything below is in a network namespace of its own: its ports are nobody else's.
if [ "$(ip netns identify $$)" != "$netns" ]; then
    if [ -z "${NETNS:-}" ]; then
        ip netns del "$netns" 2>/dev/null || true
        ip netns add "$netns"
    else
        mkdir -p "$d"
        echo "$NETNS" >"$d/netns"
    fi
    ip -n "$netns" link set lo up
    exec ip netns exec "$netns" "$0" "$@"
fi

n=10
# run NAME COMMAND...: in the background, its output in log/NAME, its process id in pid/NN-NAME
run() {
    local name=$1
    shift
    { declare -x; printf '%q ' exec "$@"; echo; } >"$d/command/$name"
    spawn "$name" "$d/pid/$n-$name"
    n=$((n + 1))
}
# until_ok SECONDS COMMAND...
until_ok() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "gave up: $*" >&2; exit 1; }
        sleep 0.3
    done
}
port() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }
say() { printf '%4d s  %s\n' $SECONDS "$*"; }

mkdir -p "$d"/{pid,log,command,etc/keystone,etc/placement,etc/glance,etc/nova,lib,py,images}

# ---- MariaDB and RabbitMQ
# As root, as the rest: another user may have no access to where the folder is.
mkdir -p "$d/mysql"
[ -d "$d/mysql/mysql" ] || mariadb-install-db --no-defaults --user=root --datadir="$d/mysql" --auth-root-authentication-method=socket \
    >"$d/log/mysql-install" 2>&1
run mysql mariadbd --no-defaults --user=root --datadir="$d/mysql" --socket="$d/mysql/sock" --bind-address=127.0.0.1 --port=$my \
    --pid-file="$d/mysql/pid" --skip-name-resolve --innodb-flush-log-at-trx-commit=0 --max-connections=300
export HOME=$d/lib
RABBITMQ_NODENAME=nfluid@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_NODE_PORT=$mq RABBITMQ_MNESIA_BASE=$d/lib/mnesia \
    RABBITMQ_LOG_BASE=$d/log RABBITMQ_PLUGINS_EXPAND_DIR=$d/lib/plugins RABBITMQ_ENABLED_PLUGINS_FILE=$d/lib/enabled_plugins \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}" run rabbit /usr/lib/rabbitmq/bin/rabbitmq-server
run memcached memcached -u nobody -l 127.0.0.1 -p 11211
until_ok 60 mariadb --no-defaults -S "$d/mysql/sock" -e 'select 1'
for db in keystone glance placement nova_api nova_cell0 nova neutron; do
    echo "create database if not exists $db character set utf8; grant all on $db.* to 'os'@'%' identified by '$pw';"
done | mariadb --no-defaults -S "$d/mysql/sock"
say 'database'
sql() { echo "mysql+pymysql://os:$pw@127.0.0.1:$my/$1?charset=utf8"; }
rabbit=rabbit://guest:guest@127.0.0.1:$mq/

# ---- nfluid's drivers: Neutron's lie on the path. Nova's belongs into Nova's own folder, where a wheel puts it; the lab leaves that folder alone
on_path() { # on_path FOLDER PACKAGE
    ln -sfn "$integrations/$1/$2" "$d/py/$2"
    mkdir -p "$d/py/$2-0.1.0.dist-info"
    printf 'Metadata-Version: 2.1\nName: %s\nVersion: 0.1.0\n' "$2" >"$d/py/$2-0.1.0.dist-info/METADATA"
    sed -n '/^\[project.entry-points/,/^$/{s/^\[project.entry-points."\(.*\)"\]/[\1]/;s/"//g;p}' "$integrations/$1/pyproject.toml" \
        >"$d/py/$2-0.1.0.dist-info/entry_points.txt"
}
on_path neutron networking_nfluid
on_path firewall nfluid_firewall
cat >"$d/py/sitecustomize.py" <<X
import importlib.util
import sys

FOLDER = "$integrations/nova/nova/virt/nfluid"


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "nova.virt.nfluid":
            return importlib.util.spec_from_file_location(name, FOLDER + "/__init__.py", submodule_search_locations=[FOLDER])


sys.meta_path.insert(0, Finder)
X

# ---- configuration files
# config FILE: what the caller adds
config() { [ -z "${CONFIG:-}" ] || cat "$CONFIG/$1" 2>/dev/null || true; }
auth() { # auth SECTION USER
    printf '[%s]\nauth_url=http://127.0.0.1:5000/v3\nauth_type=password\nproject_domain_name=Default\nuser_domain_name=Default\n' "$1"
    printf 'project_name=service\nusername=%s\npassword=%s\nregion_name=RegionOne\n' "$2" $pw
}
cat >"$d/etc/keystone/keystone.conf" <<X
[DEFAULT]
transport_url=$rabbit
[database]
connection=$(sql keystone)
[token]
provider=fernet
[fernet_tokens]
key_repository=$d/lib/fernet
[credential]
key_repository=$d/lib/credential
$(config keystone.conf)
X
cat >"$d/etc/glance/glance-api.conf" <<X
[DEFAULT]
bind_host=127.0.0.1
workers=0
enabled_backends=f:file
[database]
connection=$(sql glance)
[glance_store]
default_backend=f
[f]
filesystem_store_datadir=$d/images
[paste_deploy]
flavor=keystone
config_file=$paste/glance/glance-api-paste.ini
$(auth keystone_authtoken glance)
$(config glance.conf)
X
cat >"$d/etc/placement/placement.conf" <<X
[api]
auth_strategy=keystone
[placement_database]
connection=$(sql placement)
$(auth keystone_authtoken placement)
$(config placement.conf)
X
cat >"$d/etc/nova/nova.conf" <<X
[DEFAULT]
host=node1
my_ip=127.0.0.1
state_path=$d/lib/nova
transport_url=$rabbit
compute_driver=$driver
enabled_apis=osapi_compute
osapi_compute_listen=127.0.0.1
osapi_compute_workers=1
[api_database]
connection=$(sql nova_api)
[database]
connection=$(sql nova)
[conductor]
workers=1
[scheduler]
workers=1
[wsgi]
api_paste_config=$paste/nova/api-paste.ini
[oslo_concurrency]
lock_path=$d/lib/lock
[oslo_messaging_notifications]
driver=messagingv2
[notifications]
notification_format=versioned
notify_on_state_change=vm_and_task_state
[glance]
api_servers=http://127.0.0.1:9292
$(auth keystone_authtoken nova)
$(auth placement nova)
$(auth neutron nova)
$(auth service_user nova)
# A tenant may not delete the port of a server; Nova may for him.
send_service_user_token=true
$(config nova.conf)
X
cat >"$d/etc/neutron.conf" <<X
[DEFAULT]
bind_host=127.0.0.1
core_plugin=ml2
service_plugins=
api_workers=1
rpc_workers=1
transport_url=$rabbit
state_path=$d/lib/neutron
api_paste_config=$paste/neutron/api-paste.ini
[database]
connection=$(sql neutron)
[oslo_concurrency]
lock_path=$d/lib/lock
[ml2]
type_drivers=local,flat,vlan
tenant_network_types=local
mechanism_drivers=nfluid${OVS:+,openvswitch}
extension_drivers=port_security
[ml2_type_flat]
flat_networks=*
$(auth keystone_authtoken neutron)
service_token_roles=service
service_token_roles_required=true
$(auth nova nova)
$(config neutron.conf)
X
cat >"$d/etc/ovs-agent.conf" <<X
[DEFAULT]
host=${OVS:-}
transport_url=$rabbit
state_path=$d/lib/neutron
[ovs]
ovsdb_connection=tcp:127.0.0.1:6640
datapath_type=netdev
[agent]
root_helper=sudo
[securitygroup]
firewall_driver=nfluid
[nfluid_firewall]
rundir=$d/ovs
[oslo_concurrency]
lock_path=$d/lib/lock
$(config ovs-agent.conf)
X
cat >"$d/admin" <<X
export OS_AUTH_URL=http://127.0.0.1:5000/v3 OS_USERNAME=admin OS_PASSWORD=$pw OS_PROJECT_NAME=admin OS_USER_DOMAIN_NAME=Default
export OS_PROJECT_DOMAIN_NAME=Default OS_IDENTITY_API_VERSION=3 OS_REGION_NAME=RegionOne
X
cat >"$d/run" <<X
#!/bin/bash
. "$d/admin"
export PATH="$PATH"
exec ip netns exec "$netns" "\$@"
X
chmod +x "$d/run"

# ---- schemas: five at once, they are one Python process each
k="--config-file $d/etc/keystone/keystone.conf"
nv="--config-file $d/etc/nova/nova.conf"
keystone-manage $k db_sync >"$d/log/sync-keystone" 2>&1 &
glance-manage --config-file "$d/etc/glance/glance-api.conf" db_sync >"$d/log/sync-glance" 2>&1 &
placement-manage --config-dir "$d/etc/placement" db sync >"$d/log/sync-placement" 2>&1 &
(
    nova-manage $nv api_db sync
    nova-manage $nv cell_v2 map_cell0 --database_connection "$(sql nova_cell0)"
    nova-manage $nv db sync
    nova-manage $nv cell_v2 list_cells | grep -q cell1 || nova-manage $nv cell_v2 create_cell --name cell1
) >"$d/log/sync-nova" 2>&1 &
neutron-db-manage --config-file "$d/etc/neutron.conf" upgrade head >"$d/log/sync-neutron" 2>&1 &
for j in $(jobs -rp); do
    grep -qx "$j" "$d"/pid/* || wait "$j" || { echo "a schema failed: $d/log/sync-*" >&2; exit 1; }
done
say 'schemas'

# ---- keystone
keystone-manage $k fernet_setup --keystone-user root --keystone-group root >>"$d/log/sync-keystone" 2>&1
keystone-manage $k credential_setup --keystone-user root --keystone-group root >>"$d/log/sync-keystone" 2>&1
u=http://127.0.0.1:5000/v3/
keystone-manage $k bootstrap --bootstrap-password $pw --bootstrap-admin-url $u --bootstrap-internal-url $u --bootstrap-public-url $u \
    --bootstrap-region-id RegionOne >>"$d/log/sync-keystone" 2>&1
wsgi() { # wsgi NAME PORT FILE MODULE
    local app="--wsgi-file $3"
    [ -z "${VENV:-}" ] || app="--module $4:application --http-chunked-input" # an image's upload is chunked
    run "$1" $uwsgi --master --processes 2 --lazy-apps --enable-threads --buffer-size 65535 --die-on-term --rem-header Content-Length \
        --http-socket "127.0.0.1:$2" $app --need-app --add-header "Connection: close"
}
OS_KEYSTONE_CONFIG_DIR=$d/etc/keystone wsgi keystone 5000 /usr/bin/keystone-wsgi-public keystone.wsgi.api
OS_PLACEMENT_CONFIG_DIR=$d/etc/placement wsgi placement 8778 /usr/bin/placement-api placement.wsgi.api
. "$d/admin"
until_ok 60 curl -sf http://127.0.0.1:5000/v3
# One Python process for all of it: the openstack command takes 2 s to start, and there are 20 calls.
python3 - <<X
import openstack
c = openstack.connect()
i = c.identity
project = i.find_project('service') or i.create_project(name='service', domain_id='default')
# With neutron 29 a service's token counts only with the role service (401 else).
roles = [i.find_role(r) or i.create_role(name=r) for r in ('admin', 'service')]
for name, kind, url in (('glance', 'image', 'http://127.0.0.1:9292'), ('placement', 'placement', 'http://127.0.0.1:8778'),
                        ('nova', 'compute', 'http://127.0.0.1:8774/v2.1'), ('neutron', 'network', 'http://127.0.0.1:9696')):
    user = i.find_user(name) or i.create_user(name=name, password='$pw', domain_id='default', default_project_id=project.id)
    for role in roles:
        i.assign_project_role_to_user(project, user, role)
    if not i.find_service(name):
        s = i.create_service(name=name, type=kind)
        for interface in 'public', 'internal', 'admin':
            i.create_endpoint(service_id=s.id, interface=interface, url=url, region_id='RegionOne')
X
say 'keystone'

# ---- the rest
until_ok 90 port $mq
if [ -z "${VENV:-}" ]; then
    run glance glance-api --config-file "$d/etc/glance/glance-api.conf"
    run neutron neutron-server --config-file "$d/etc/neutron.conf"
    run nova-api nova-api $nv
else # nova 34, neutron 29 and glance 33 have no servers of their own any more: WSGI for the API, the rest of neutron beside it
    cp "$paste/nova/api-paste.ini" "$d/etc/nova/"
    OS_GLANCE_CONFIG_DIR=$d/etc/glance wsgi glance 9292 - glance.wsgi.api
    OS_NEUTRON_CONFIG_FILES=$d/etc/neutron.conf wsgi neutron 9696 - neutron.wsgi.api
    run neutron-rpc neutron-rpc-server --config-file "$d/etc/neutron.conf"
    run neutron-periodic neutron-periodic-workers --config-file "$d/etc/neutron.conf"
    OS_NOVA_CONFIG_DIR=$d/etc/nova wsgi nova-api 8774 - nova.wsgi.osapi_compute
fi
if [ -n "${OVS:-}" ]; then
    mkdir -p "$d/ovs"
    [ -e "$d/ovs/conf.db" ] || ovsdb-tool create "$d/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
    export OVS_RUNDIR=$d/ovs
    run ovsdb ovsdb-server "$d/ovs/conf.db" --remote="punix:$d/ovs/db.sock" --remote=ptcp:6640:127.0.0.1 --unixctl="$d/ovs/db.ctl"
    until_ok 30 ovs-vsctl --db=tcp:127.0.0.1:6640 --no-wait init
    run ovs /usr/lib/openvswitch-switch/ovs-vswitchd "unix:$d/ovs/db.sock" --unixctl="$d/ovs/ovs-vswitchd.ctl"
    run ovs-agent neutron-openvswitch-agent --config-file "$d/etc/neutron.conf" --config-file "$d/etc/ovs-agent.conf"
fi
run nova-conductor nova-conductor $nv
run nova-scheduler nova-scheduler $nv
for p in 9292 9696 8774; do until_ok 120 port $p; done
# nova-compute must not see the databases: it logs an error for each try.
# One for each host of HOSTS: live migration is between two processes on one machine.
for h in ${HOSTS:-node1}; do
    sed -e '/^\[api_database\]/,/^\[conductor\]/{/^\[conductor\]/!d}' -e "s/^host=.*/host=$h/" -e "s#^state_path=.*#state_path=$d/lib/nova-$h#" \
        "$d/etc/nova/nova.conf" >"$d/etc/nova-$h.conf"
    config "nova-$h.conf" >>"$d/etc/nova-$h.conf"
    run "nova-compute-$h" nova-compute --config-file "$d/etc/nova-$h.conf"
done
up() { [ "$(openstack compute service list --service nova-compute -f value -c State | grep -c up)" = "$1" ]; }
set -- ${HOSTS:-node1}
until_ok 120 up $#
nova-manage $nv cell_v2 discover_hosts >"$d/log/discover" 2>&1
agent() { openstack network agent list -f value -c Alive -c Binary | grep -q 'True neutron-openvswitch-agent'; }
[ -z "${OVS:-}" ] || until_ok 90 agent
say 'nova and neutron'
