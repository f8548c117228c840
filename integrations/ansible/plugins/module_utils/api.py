# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A client of the daemon's API: over its UNIX socket, or over TCP with certificates."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from urllib.parse import quote


# The options of a daemon beside the one that says where it is.
REACH = ("client_cert", "client_key", "ca_cert", "timeout")


class ApiError(Exception):
    """The daemon was not reached, or has refused or failed. `problem` is the daemon's word (RFC 9457), if there is one."""

    def __init__(self, message, problem=None):
        super().__init__(message)
        self.problem = problem or {}


class OverSocket(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """A daemon.

    `options`: `socket`, the path of its socket, or `host`, `HOST:PORT` of its API over TCP, with `client_cert`, `client_key` and `ca_cert`; and
    `timeout`, in seconds.
    """

    def __init__(self, options):
        self.options = options
        self.place = options.get("host") or options["socket"]

    def _connection(self):
        options = self.options
        if not options.get("host"):
            return OverSocket(options["socket"], options["timeout"])
        name, separator, port = options["host"].rpartition(":")
        if not separator or not port.isdigit():
            raise ApiError(f"host: '{options['host']}' has no port: HOST:PORT is expected")
        context = ssl.create_default_context(cafile=options["ca_cert"])
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(options["client_cert"], options["client_key"])
        name = name.strip("[]")
        return http.client.HTTPSConnection(name, int(port), timeout=options["timeout"], context=context)

    def request(self, method, path, body=None):
        """Returns the JSON of the answer, None if it is empty. Raises ApiError."""
        try:
            connection = self._connection()
            try:
                text = None if body is None else json.dumps(body)
                connection.request(method, path, text, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, text = answer.status, answer.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"cannot reach the daemon at {self.place}: {error}") from error
        try:
            value = json.loads(text) if text else None
        except ValueError as error:
            raise ApiError(f"the answer of {self.place} is no JSON: {error}") from error
        if status >= 400:
            problem = value if isinstance(value, dict) else {}
            raise ApiError(explain(problem) or f"{method} {path}: status {status}", {"status": status, **problem})
        return value

    def request_if_there(self, method, path, body=None):
        """As `request`; None if there is no such object."""
        try:
            return self.request(method, path, body)
        except ApiError as error:
            if error.problem.get("status") == 404:
                return None
            raise

    def find(self, path):
        """Returns an object, None if there is none."""
        return self.request_if_there("GET", path)

    def merge(self, document):
        """Adds the objects of a document to the deployment, or changes them to what the document says."""
        return self.request("POST", "/v1/apply", {"text": json.dumps(document), "merge": True})


def named_daemons(entries, options, option, form):
    """Yields the name and the daemon of each entry `NAME=PLACE`: a place is the path of a socket, or `HOST:PORT`.

    `options`: the other options of the daemons. Raises ValueError, with the words `option` and `form` for where the entries stand and what is expected there.
    """
    for entry in entries:
        name, equals, place = entry.partition("=")
        if not equals or not name or not place:
            raise ValueError(f"{option}: '{entry}': {form} is expected")
        where = "socket" if place.startswith("/") else "host"
        yield name, Daemon({**options, where: place})


def path_of(kind, name):
    """Returns the path of an object in the API."""
    return f"/v1/{kind}/{quote(name, safe='')}"


def explain(problem):
    """Returns a problem in words: the reason, the remedy, and each error with its place."""
    lines = [problem.get("detail", "")]
    for error in problem.get("errors", []):
        place = ":".join(str(error[key]) for key in ("line", "column") if error.get(key))
        parts = [place, error.get("path", ""), error.get("message", "")]
        lines.append(": ".join(part for part in parts if part))
        if error.get("remedy"):
            lines.append(f"  {error['remedy']}")
    if problem.get("remedy"):
        lines.append(problem["remedy"])
    return "\n".join(line for line in lines if line)
