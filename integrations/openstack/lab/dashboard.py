#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Debian's Horizon for the lab's cloud, and its settings: see `openstack.sh dashboard`."""

import os
import sys

if __name__ == "__main__":
    from django.core import management

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard"
    management.execute_from_command_line([sys.argv[0], "runserver", "--noreload", "127.0.0.1:8000"])
else:
    from openstack_dashboard.settings import *

    ALLOWED_HOSTS = ["127.0.0.1"]
    OPENSTACK_KEYSTONE_URL = os.environ["OS_AUTH_URL"]
    OPENSTACK_ENDPOINT_TYPE = "publicURL"
    SECRET_KEY = "of the lab"
    SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    WEBROOT = "/"
    LOGIN_URL, LOGOUT_URL, LOGIN_REDIRECT_URL = "/auth/login/", "/auth/logout/", "/"
    # Styles are made with the first page, and kept in this folder.
    COMPRESS_OFFLINE, COMPRESS_ENABLED, COMPRESS_ROOT = False, True, os.environ["STYLES"]
    LOGGING = {"version": 1, "disable_existing_loggers": False}
