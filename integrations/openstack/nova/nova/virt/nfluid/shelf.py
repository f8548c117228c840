# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Servers that have no instance at present: a file for each, with the state that it goes on with, if that is known."""

from __future__ import annotations

import os
import tempfile

OFF = "off"
SUSPENDED = "suspended"
RESIZED = "resized"


class Shelf:
    """A folder of such files: `UUID.WHY`."""

    def __init__(self, folder):
        self._folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def _path(self, uuid, why):
        return os.path.join(self._folder, f"{uuid}.{why}")

    def put(self, uuid, why, state=None):
        """Writes a file, whole or not at all."""
        with tempfile.NamedTemporaryFile("w", dir=self._folder, prefix=".new-", delete=False) as file:
            file.write(state or "")
            file.flush()
            os.fsync(file.fileno())
        os.rename(file.name, self._path(uuid, why))

    def get(self, uuid, why):
        """Returns the state of a file, None if it has none, or if there is no file."""
        try:
            with open(self._path(uuid, why)) as file:
                return file.read() or None
        except FileNotFoundError:
            return None

    def has(self, uuid, why):
        """Returns true if there is a file."""
        return os.path.exists(self._path(uuid, why))

    def uuids(self):
        """Returns the servers that are off or suspended."""
        parts = [name.rpartition(".") for name in os.listdir(self._folder)]
        return {uuid for uuid, _, why in parts if why in (OFF, SUSPENDED) and not uuid.startswith(".")}

    def drop(self, uuid, *whys):
        """Removes files, if they are there."""
        for why in whys:
            try:
                os.remove(self._path(uuid, why))
            except FileNotFoundError:
                pass
