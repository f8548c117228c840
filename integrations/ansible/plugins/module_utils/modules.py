# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the modules have in common: their options, and how they tell what became of them."""

from __future__ import annotations

# What the options of doc_fragments/daemon.py are.
ARGUMENTS = {
    "socket": {"type": "path", "default": "/run/nfluid/nfluidd.sock"},
    "host": {"type": "str"},
    "client_cert": {"type": "path"},
    "client_key": {"type": "path"},
    "ca_cert": {"type": "path"},
    "timeout": {"type": "int", "default": 130},
}
REQUIRED_BY = {"host": ("client_cert", "client_key", "ca_cert")}


def in_words(change):
    """Returns a change as 'nfluid apply' prints it."""
    details = f" ({', '.join(change['details'])})" if change.get("details") else ""
    return f"{change['kind']} {change['name']} {change['verb']}{details}"


def result_of(module, answer):
    """Returns a module's result from the answer to a change."""
    for warning in answer.get("warnings", []):
        module.warn(": ".join(part for part in (warning.get("path"), warning.get("message")) if part))
    changes = answer.get("changes", [])
    result = {"changed": bool(changes), "changes": changes}
    if module._diff and changes:
        result["diff"] = {"prepared": "".join(f"{in_words(change)}\n" for change in changes)}
    return result


def fail(module, error):
    """Ends the module with what the daemon has said."""
    module.fail_json(msg=str(error), problem=error.problem)
