"""The groups of one partition of `__consumer_offsets`, beside their offsets."""

from __future__ import annotations

from koff.records import GroupMetadata, Message
from koff.tracker.groups import GROUP_RECORDS, ConsumerState, Group, classic


class GroupTable:
    """Takes the records about groups in log order."""

    def __init__(self) -> None:
        self._metadata: dict[str, Group | ConsumerState] = {}

    def names(self) -> list[str]:
        return list(self._metadata)

    def get(self, name: str) -> Group | None:
        state = self._metadata.get(name)
        return state.view(name) if isinstance(state, ConsumerState) else state

    def apply(self, message: Message) -> None:
        record, name = message.record, message.consumer
        state = self._metadata.get(name)
        if isinstance(record, GroupMetadata):
            if record.value is not None:
                self._metadata[name] = classic(message)
            elif not isinstance(state, ConsumerState):
                self._metadata.pop(name, None)
        elif isinstance(record, GROUP_RECORDS):
            if message.tombstone and (not isinstance(state, ConsumerState) or record.type == 3):
                if isinstance(state, ConsumerState):
                    del self._metadata[name]
                return
            if not isinstance(state, ConsumerState):
                state = self._metadata[name] = ConsumerState()
            state.apply(record)
