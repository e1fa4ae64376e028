"""The names of Kafka's internal topics that hold the state of groups."""

OFFSETS_TOPIC = "__consumer_offsets"
"""Commits and group metadata. Coordinators write to no other topic; a mirrored copy may have another name."""
SHARE_STATE_TOPIC = "__share_group_state"
"""Where share groups stand (KIP-932)."""
