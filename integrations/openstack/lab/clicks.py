#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What somebody does with a server in Horizon, by its pages and forms: clicks.py IMAGE FLAVOR NETWORK HOST HOST. The server moves live
from the host where it is to the other."""

import re
import sys
import time

import requests

PAGES = "http://127.0.0.1:8000"
PATIENCE = 120


class Browser:
    """Somebody who is logged in."""

    def __init__(self, user, password):
        self._session = requests.Session()
        self._wait_for_pages()
        self.submit("/auth/login/", username=user, password=password, domain="Default", region="default")
        if "sessionid" not in self._session.cookies:
            raise SystemExit("Horizon does not let the administrator in")

    def _wait_for_pages(self):
        for _ in range(PATIENCE):
            try:
                return self.page("/auth/login/")
            except requests.ConnectionError:
                time.sleep(1)
        raise SystemExit("Horizon does not answer")

    def page(self, path):
        """Returns the text of a page."""
        answer = self._session.get(PAGES + path)
        answer.raise_for_status()
        return answer.text

    def submit(self, path, **fields):
        """Submits a form, or a button of a table; returns the next page."""
        fields["csrfmiddlewaretoken"] = self._session.cookies["csrftoken"]
        answer = self._session.post(PAGES + path, data=fields, headers={"Referer": PAGES + path})
        answer.raise_for_status()
        refused = re.search(r'class="(?:alert alert-danger(?! text-center)|[^"]*has-error).*?</div>', answer.text, re.DOTALL)
        if refused:
            raise SystemExit(f"Horizon refuses: {words(refused.group(0))}")
        return answer.text

    def ask(self, path, document):
        """Has Horizon's own API make something, as its wizards do."""
        headers = {"X-CSRFToken": self._session.cookies["csrftoken"], "Referer": PAGES, "X-Requested-With": "XMLHttpRequest"}
        answer = self._session.post(PAGES + path, json=document, headers=headers)
        answer.raise_for_status()
        return answer.json()


def words(text):
    """Returns the words of a part of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


def until(what, look):
    """Looks until something is so."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if look():
            print(what, flush=True)
            return
        time.sleep(0.5)
    raise SystemExit(f"not so in Horizon: {what}")


def row(browser, server, path="/project/instances/"):
    """Returns the words of a server's row in the table of servers; empty: there is none."""
    _, _, rest = browser.page(path).partition(f'data-object-id="{server}"')
    # A row has tables within.
    return words(re.split(r'class="ajax-update|</form>', rest)[0])


def main(image, flavor, network, *hosts):
    browser = Browser("admin", "secret")
    wanted = {"name": "clicked", "source_id": image, "flavor_id": flavor, "nics": [{"net-id": network, "v4-fixed-ip": ""}], "instance_count": 1,
              "key_name": None, "user_data": "", "security_groups": ["default"], "block_device_mapping_v2": None, "block_device_mapping": None,
              "config_drive": False}
    server = browser.ask("/api/nova/servers/", wanted)
    server = (server[0] if isinstance(server, list) else server)["id"]
    until("the server is Active", lambda: " Active " in row(browser, server))
    for action, state in (("pause", "Paused"), ("pause", "Running"), ("suspend", "Suspended"), ("suspend", "Running")):
        browser.submit("/project/instances/", action=f"instances__{action}__{server}")
        until(f"after '{action}' it is {state}", lambda: f" {state} " in row(browser, server))
    log = browser.page(f"/project/instances/{server}/console")
    if "nfluid-nf" not in log:
        raise SystemExit(f"Horizon does not show the log: {log}")
    everywhere = lambda: row(browser, server, "/admin/instances/")
    here = everywhere()
    host = next(it for it in hosts if f" {it} " not in here)
    browser.submit(f"/admin/instances/{server}/live_migrate", instance_id=server, host=host)
    until(f"it is at {host}", lambda: f" {host} " in everywhere() and " Active " in row(browser, server))
    browser.submit("/project/instances/", action=f"instances__delete__{server}")
    until("it is gone", lambda: not row(browser, server))


main(*sys.argv[1:])
