"""A broker that names no brokers in its metadata for a while, as one may that is starting or stopping."""

import dataclasses
from typing import Any

from tests.broker_proxy import BrokerProxy


class Forgetful(BrokerProxy):
    """While `forgets`, its metadata names the topics and no broker. `empty_responses` counts them."""

    def __init__(self, bootstrap: str) -> None:
        self.forgets = False
        self.empty_responses = 0
        super().__init__(bootstrap)

    def _change_metadata(self, told: Any) -> Any:
        self.empty_responses += self.forgets
        return dataclasses.replace(told, brokers=()) if self.forgets else super()._change_metadata(told)
