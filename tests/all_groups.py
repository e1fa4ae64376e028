"""All groups of a cluster, over connections that are closed afterwards."""

from koff.client.cluster_conf import ClusterConf
from koff.client.groups.coordinators import fetch_from_coordinators
from koff.client.groups.fetch_options import FetchOptions
from koff.client.groups.responses import FetchedGroups
from koff.client.offsets.lister import OffsetLister
from koff.client.wire.credentials import TokenSource


def fetch_all_groups(
    conf: ClusterConf, options: FetchOptions | None = None, *, token: TokenSource | None = None
) -> FetchedGroups:
    """What `fetch_from_coordinators` returns."""
    with OffsetLister(conf, token=token) as lister:
        return fetch_from_coordinators(lister, options)
