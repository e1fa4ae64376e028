"""The names of Kafka's internal topics that hold the state of groups."""

OFFSETS_TOPIC = "__consumer_offsets"
"""Offset commits and group metadata. Coordinators write to this topic alone, but a mirrored copy of it may
have another name."""
SHARE_STATE_TOPIC = "__share_group_state"
"""The delivery state of share groups (KIP-932)."""
