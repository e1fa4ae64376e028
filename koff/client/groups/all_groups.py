"""Fetches all groups of a cluster: over koff's own connections where that is possible, else by librdkafka."""

from __future__ import annotations

from dataclasses import replace

from koff.client.cluster import ClusterConf
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import FetchedGroups
from koff.client.log_ins import check_log_in, note_refusal
from koff.client.own_process import call_in_own_process
from koff.client.wire.connection import UnsupportedVersion
from koff.client.wire.credentials import TokenSource, check_support
from koff.errors import LogInRefused

_PROCESS_START_S = 5.0
"""How much longer than its work a process of its own may take."""


def fetch_groups(
    conf: ClusterConf, options: FetchOptions | None = None, *, token: TokenSource | None = None
) -> FetchedGroups:
    """All groups and offsets by `fetch_from_coordinators` if possible, else by `fetch_through_admin`.

    `source` of the result is "wire" or "admin"; `reason` is why koff's own connections were not used.
    The admin client works in a process of its own, so `group_filter` has to be picklable. When a coordinator
    responds NOT_COORDINATOR to OffsetFetch, which happens while coordinators move, librdkafka follows a null
    pointer (its issue 5040; seen with 2.16.1) and that process ends.
    """
    from koff.client.groups.admin import fetch_through_admin  # imported late: it is rarely needed

    options = options or FetchOptions()
    reason = check_support(conf, token=token).reason
    if not reason:
        try:
            return fetch_from_coordinators(conf, options, token=token)
        except UnsupportedVersion as error:
            reason = str(error)
    timeout_s = options.deadline_s + _PROCESS_START_S
    check_log_in(conf)
    try:
        fetched = call_in_own_process(fetch_through_admin, conf, options, timeout_s=timeout_s)
    except LogInRefused as error:
        note_refusal(conf, error)  # the other process has noted it for itself
        raise
    return replace(fetched, reason=reason)
