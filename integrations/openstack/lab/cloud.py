#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A client of the lab's OpenStack for tests and measurements: one process, as each start of the `openstack` command takes two seconds.

    FOLDER/run python3 cloud.py

Reads lines of JSON, `["METHOD", ARGUMENT...]`, and answers each with a line: `{"ok": RESULT}` or `{"error": "WHY"}`. METHOD is one of those below.
"""

import base64
import json
import sys
import time

import openstack
import pymysql

# Seconds between two looks, and after which nothing will come. A look at the API takes tens of milliseconds of a core, and would slow down what is looked at: the
# end of a server's creation is looked for in the database.
PAUSE = 0.1
LOOK = 0.004
PATIENCE = 90


def until(what, look, pause=PAUSE):
    """Looks until there is something to see, and returns that."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > end:
            raise RuntimeError(f"not within {PATIENCE} s: {what}")
        time.sleep(pause)
    return found


class Cloud:
    """The methods."""

    def __init__(self):
        self._c = openstack.connect()
        self._c.compute.default_microversion = "2.60"
        self._database = pymysql.connect(host="127.0.0.1", user="os", password="secret", database="nova", autocommit=True)

    # ---- what servers are made of

    def flavor(self, name, ram, specs):
        """Makes a flavor without a disk."""
        flavor = self._c.compute.create_flavor(name=name, ram=ram, vcpus=1, disk=0)
        self._c.compute.create_flavor_extra_specs(flavor, specs)
        return flavor.id

    def image(self, name, properties):
        """Makes an image of these properties, whose data says nothing."""
        image = self._c.image.create_image(
            name, container_format="bare", disk_format="raw", data=b"\0", visibility="public", wait=True, validate_checksum=False, **properties
        )
        return image.id

    def network(self, name, physical, cidr, port_security=True):
        """Makes a network on a physical network, or without one, with a subnet."""
        where = {"provider_network_type": "flat", "provider_physical_network": physical} if physical else {}
        network = self._c.network.create_network(name=name, port_security_enabled=port_security, **where)
        self._c.network.create_subnet(network_id=network.id, ip_version=4, cidr=cidr, enable_dhcp=False, gateway_ip=None)
        return network.id

    def port(self, network, address, **more):
        """Makes a port with a fixed address."""
        port = self._c.network.create_port(network_id=network, fixed_ips=[{"ip_address": address}], **more)
        return port.id

    # ---- servers

    def begin(self, name, image, flavor, networks, host=None, hints=None, **more):
        """Asks for a server, and does not wait for it; returns its id. `networks`: ids of networks, or {"port": ID}. `hints`: for Nova's scheduler."""
        networks = [it if isinstance(it, dict) else {"uuid": it} for it in networks]
        body = {"name": name, "imageRef": image, "flavorRef": flavor, "networks": networks or "none"}
        if host:
            body["availability_zone"] = f"nova:{host}"
        if "user_data" in more:
            more["user_data"] = base64.b64encode(more["user_data"].encode()).decode()
        body.update(more)
        answer = self._c.compute.post("/servers", json={"server": body, "os:scheduler_hints": hints or {}}, microversion="2.60")
        openstack.exceptions.raise_from_response(answer)
        return answer.json()["server"]["id"]

    def create(self, name, image, flavor, networks, host=None, **more):
        """Makes a server and waits until it is active. Returns its id, and milliseconds from the request until the answer and until it is seen ACTIVE."""
        begun = time.monotonic()
        server = self.begin(name, image, flavor, networks, host, **more)
        answered = time.monotonic()
        until("the server is made", lambda: self._stored(server) in (("active", None), ("error", None)), LOOK)
        self.wait(server, "ACTIVE")
        active = time.monotonic()
        return {"id": server, "answered_ms": (answered - begun) * 1e3, "active_ms": (active - begun) * 1e3}

    def _stored(self, server):
        with self._database.cursor() as cursor:
            cursor.execute("select vm_state, task_state from instances where uuid = %s", server)
            return cursor.fetchone()

    def _server(self, server):
        answer = self._c.compute.get(f"/servers/{server}", microversion="2.60")
        if answer.status_code == 404:
            return None
        openstack.exceptions.raise_from_response(answer)
        return answer.json()["server"]

    def show(self, server):
        """Returns a server's status, host, power state, task and fault."""
        found = self._server(server)
        if not found:
            return {"status": "GONE"}
        return {
            "status": found["status"],
            "host": found["OS-EXT-SRV-ATTR:host"],
            "power": found["OS-EXT-STS:power_state"],
            "task": found["OS-EXT-STS:task_state"],
            "fault": (found.get("fault") or {}).get("message"),
        }

    def wait(self, server, status):
        """Waits until a server has a status, with no task under way."""

        def look():
            now = self.show(server)
            if now["status"] == "ERROR" and status != "ERROR" and not now["task"]:
                raise RuntimeError(f"the server is in error: {now['fault']}")
            return now if now["status"] == status and not now.get("task") else None

        return until(f"the server is {status}", look)

    def settled(self, server):
        """Waits until nothing is under way with a server, or its service has given it up; returns its status."""

        def look():
            now = self.show(server)
            return now if now["status"] in ("ACTIVE", "ERROR", "GONE") and not now.get("task") else None

        return until("nothing is under way with the server", look)

    def act(self, server, action, detail, status):
        """Asks for an action, and waits for the status after it."""
        answer = self._c.compute.post(f"/servers/{server}/action", json={action: detail}, microversion="2.60")
        openstack.exceptions.raise_from_response(answer)
        return self.wait(server, status)

    def console(self, server):
        """Returns a server's log."""
        answer = self._c.compute.post(f"/servers/{server}/action", json={"os-getConsoleOutput": {}}, microversion="2.60")
        openstack.exceptions.raise_from_response(answer)
        return answer.json()["output"]

    def snapshot(self, server, name):
        """Makes an image of a server; returns the image's id."""
        answer = self._c.compute.post(f"/servers/{server}/action", json={"createImage": {"name": name}}, microversion="2.60")
        openstack.exceptions.raise_from_response(answer)
        image = answer.json()["image_id"]
        until("the image is active", lambda: self._c.image.get_image(image).status == "active")
        self.wait(server, "ACTIVE")
        return image

    def live_migrate(self, server, host):
        """Moves a server to a host while it runs, and waits for the end of that; returns the server's status, and the migration's."""
        migrations = lambda: self._c.compute.get(f"/os-migrations?instance_uuid={server}", microversion="2.59").json()["migrations"]
        before = {it["id"] for it in migrations()}
        answer = self._c.compute.post(
            f"/servers/{server}/action", json={"os-migrateLive": {"host": host, "block_migration": "auto"}}, microversion="2.60"
        )
        openstack.exceptions.raise_from_response(answer)
        ended = ("completed", "error", "failed", "cancelled")
        new = lambda: [it["status"] for it in migrations() if it["id"] not in before and it["status"] in ended]
        found = until("the migration has ended", new)
        return {**self.show(server), "migration": found[0]}

    def attach(self, server, port):
        """Attaches a port."""
        answer = self._c.compute.post(f"/servers/{server}/os-interface", json={"interfaceAttachment": {"port_id": port}}, microversion="2.60")
        openstack.exceptions.raise_from_response(answer)

    def detach(self, server, port):
        """Detaches a port, and waits until it is."""
        answer = self._c.compute.delete(f"/servers/{server}/os-interface/{port}", microversion="2.60")
        openstack.exceptions.raise_from_response(answer)
        attached = lambda: self._c.compute.get(f"/servers/{server}/os-interface").json()["interfaceAttachments"]
        until("the port is detached", lambda: all(it["port_id"] != port for it in attached()))

    def delete(self, server):
        """Deletes a server, and waits until it is gone. Returns the milliseconds."""
        begun = time.monotonic()
        answer = self._c.compute.delete(f"/servers/{server}")
        openstack.exceptions.raise_from_response(answer)
        self.wait(server, "GONE")
        return (time.monotonic() - begun) * 1e3

    def traits(self, host):
        """Returns the traits and the inventory of a host's resource provider."""
        provider = self._c.placement.get(f"/resource_providers?name={host}").json()["resource_providers"][0]["uuid"]
        get = lambda what: self._c.placement.get(f"/resource_providers/{provider}/{what}", microversion="1.6").json()
        return {"traits": get("traits")["traits"], "inventories": get("inventories")["inventories"]}

    def server_group(self, name, policy):
        """Makes a group of servers; returns its id."""
        body = {"server_group": {"name": name, "policies": [policy]}}
        answer = self._c.compute.post("/os-server-groups", json=body, microversion="2.60")
        openstack.exceptions.raise_from_response(answer)
        return answer.json()["server_group"]["id"]

    def zone(self, name, host):
        """Makes an availability zone of a host."""
        aggregate = self._c.compute.create_aggregate(name=name, availability_zone=name)
        self._c.compute.add_host_to_aggregate(aggregate, host)

    def services(self):
        """Returns the hosts whose nova-compute is up."""
        found = self._c.compute.get("/os-services?binary=nova-compute").json()["services"]
        return [it["host"] for it in found if it["state"] == "up"]

    # ---- security groups

    def group(self, name):
        """Makes a group without rules for what comes in."""
        return self._c.network.create_security_group(name=name).id

    def permit(self, group, **rule):
        """Adds a rule; returns its id."""
        return self._c.network.create_security_group_rule(security_group_id=group, **rule).id

    def withdraw(self, rule):
        """Removes a rule."""
        self._c.network.delete_security_group_rule(rule)

    def change_port(self, port, **keys):
        """Changes a port."""
        self._c.network.update_port(port, **keys)

    def drop_port(self, port):
        """Deletes a port."""
        self._c.network.delete_port(port)

    def port_status(self, port):
        """Returns a port's status."""
        return self._c.network.get_port(port).status

    def port_mac(self, port):
        """Returns a port's hardware address."""
        return self._c.network.get_port(port).mac_address


def main():
    cloud = Cloud()
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        more = arguments.pop() if arguments and isinstance(arguments[-1], dict) and arguments[-1].pop("**", None) else {}
        try:
            if method.startswith("_"):
                raise ValueError(f"there is no method {method}")
            answer = {"ok": getattr(cloud, method)(*arguments, **more)}
        except Exception as error:
            answer = {"error": f"{method}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
