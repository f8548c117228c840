# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A daemon as a node of Nova: instances, networks, capacity. Raises ApiError."""

from __future__ import annotations

import threading
import time

from nova.virt.nfluid import documents
from nova.virt.nfluid.api import ApiError, named_daemons, path_of

# Seconds for which networks wait for an instance that another host is about to send.
AWAITED = 600

DEFAULT_SOCKET = "/run/nfluid/nfluidd.sock"


def daemons(entries, host, options):
    """Returns the daemons by the names of their nodes. `entries`: `NODE=PLACE`; `options`: the other options of a daemon."""
    found = {}
    entries = entries or [f"{host}={DEFAULT_SOCKET}"]
    for node, daemon in named_daemons(entries, options, "[nfluid] daemons", "NODE=/PATH/OF/ITS/SOCKET or NODE=HOST:PORT"):
        if node in found:
            raise ValueError(f"[nfluid] daemons: node {node} is there twice")
        found[node] = daemon
    return found


class Host:
    """A daemon, and what Nova has on it."""

    def __init__(self, daemon, owner, interfaces, ring=256, linger=0):
        """`interfaces`: by the names of physical networks, with rings of so many slots. `linger`: the seconds for which a network that nothing uses stays: to take an
        interface over takes longer than to make an instance."""
        self.daemon = daemon
        self.owner = owner
        self.interfaces = interfaces
        self.ring = ring
        self.linger = linger
        # When networks were left that are still there.
        self._left = {}
        # Until when networks wait for instances that are about to come: by the instance, the time and the networks.
        self._awaited = {}
        # A switch is made before an instance on it, and removed after the last one: not in between.
        self._networks = threading.Lock()

    def own(self):
        """Returns the instances of this cloud."""
        found = self.daemon.request("GET", "/v1/instances")
        return [it for it in found if it.get("owner") == self.owner]

    def find(self, name):
        """Returns an instance of this cloud, None if there is none."""
        found = self.daemon.find(path_of("instances", name))
        return found if found and found.get("owner") == self.owner else None

    def make(self, name, keys, vifs, saved=None):
        """Makes an instance with its networks, from a saved state if there is one. What is there already becomes as it is to be."""
        with self._networks:
            missing = self._missing_networks(vifs)
            try:
                if saved is not None and not self.find(name):
                    if missing:
                        self.daemon.merge(missing)
                    self.daemon.request("POST", "/v1/restore", {"image": saved, "name": name, "instance": keys})
                elif missing:
                    # Uplinks are made as what the instance needs: in one change with it.
                    self.daemon.merge({**missing, "instances": {name: keys}})
                else:
                    self.daemon.request("PUT", path_of("instances", name), {"instance": keys})
            except ApiError:
                self._clear_networks(vifs)
                raise

    def prepare(self, name, vifs):
        """Makes the networks of an instance that is about to come, and keeps them for it."""
        with self._networks:
            now = time.monotonic()
            self._awaited = {other: it for other, it in self._awaited.items() if now < it[0]}
            self._awaited[name] = (now + AWAITED, {documents.segment_of(vif) for vif in vifs})
            missing = self._missing_networks(vifs)
            if missing:
                self.daemon.merge(missing)

    def arrived(self, name):
        """Says that an instance has come for which networks were prepared."""
        with self._networks:
            self._awaited.pop(name, None)

    def abandon(self, name, vifs):
        """Says that it will not come."""
        with self._networks:
            self._awaited.pop(name, None)
            self._clear_networks(vifs)

    def remove(self, name, vifs, signal=None):
        """Removes an instance, if it is there, and the networks that nothing uses any more."""
        with self._networks:
            if self.find(name):
                query = "?with_links=true" + (f"&stop_signal={signal}&stop_wait_ms=0" if signal else "")
                self.daemon.request_if_there("DELETE", path_of("instances", name) + query)
            self._clear_networks(vifs)

    def clear(self, vifs):
        """Removes those networks that nothing uses."""
        with self._networks:
            self._clear_networks(vifs)

    def sweep(self):
        """Removes the networks of this cloud that nothing has used for a while, and those that a service which was killed has left."""
        with self._networks:
            for switch in self.daemon.request("GET", "/v1/switches"):
                network = switch["name"].removeprefix(documents.switch_of(""))
                if network != switch["name"] and self._left.get(network, 0) + self.linger <= time.monotonic():
                    self._clear_switch(network, switch)

    def save(self, name):
        """Returns an instance's present state, None for a program whose state nobody knows."""
        try:
            return self.daemon.request("GET", path_of("instances", name) + "/image")["image"]
        except ApiError as error:
            if error.problem.get("status") in (404, None) or error.problem["status"] >= 500:
                raise
            return None

    def act(self, name, action, body=None):
        """Pauses, resumes or restarts an instance."""
        return self.daemon.request("POST", f"{path_of('instances', name)}/{action}", body)

    def ports(self, name):
        """Returns the names of an instance's ports by their hardware addresses."""
        instance = self.find(name) or {"ports": []}
        found = [self.daemon.request("GET", path_of("ports", port)) for port in instance["ports"]]
        return {port["mac"]: port["name"].split(".", 1)[1] for port in found}

    def _missing_networks(self, vifs):
        """Returns the networks that are not there, as a document; None if all are."""
        document = documents.networks(vifs, self.interfaces, self.owner, self.ring)
        is_there = lambda kind, name: self.daemon.find(path_of(kind, name)) is not None
        if all(is_there(kind, name) for kind in ("switches", "uplinks") for name in document[kind]):
            return None
        return document

    def _clear_networks(self, vifs):
        for network in {documents.segment_of(vif) for vif in vifs}:
            if self.linger:
                self._left[network] = time.monotonic()
            else:
                self._clear_network(network)

    def _clear_network(self, network):
        switch = self.daemon.find(path_of("switches", documents.switch_of(network)))
        if switch:
            self._clear_switch(network, switch)

    def _clear_switch(self, network, switch):
        """Removes the switch of a network, as the daemon has told it, with its uplink: unless something uses it, or is about to."""
        now = time.monotonic()
        uplink = documents.uplink_of(network)
        is_awaited = any(now < until and network in networks for until, networks in self._awaited.values())
        if is_awaited:
            return
        self._left.pop(network, None)
        if switch.get("owner") != self.owner or set(switch["ports"]) - {uplink}:
            return
        objects = [{"kind": "uplink", "name": uplink}] if uplink in switch["ports"] else []
        objects.append({"kind": "switch", "name": switch["name"]})
        self.daemon.request_if_there("POST", "/v1/delete", {"objects": objects})
