"""The one list of koff's metric families, in the order in which they are served."""

from typing import Any

from koff.serve.metrics import (
    cluster,
    group_lags,
    group_member_lags,
    group_members,
    group_offsets,
    own,
    topics,
)
from koff.serve.metrics.family import Family

FAMILIES: tuple[Family[Any], ...] = tuple(
    declared
    for module in (group_lags, group_members, group_member_lags, group_offsets, topics, cluster, own)
    for declared in vars(module).values()
    if isinstance(declared, Family)
)
"""All families that the modules declare. docs/metrics.md is made of them."""
BY_NAME = {family.name: family for family in FAMILIES}
