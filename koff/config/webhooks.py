"""The webhooks of `koff monitor`."""

from __future__ import annotations

from typing import Any

from koff.config.koff_yaml import KoffYaml
from koff.errors import ConfigError
from koff.serve.events.event import Severity
from koff.serve.events.webhook import WebhookConf

_NAMES = {"timeout": "timeout_s"}


def list_webhooks(file: KoffYaml) -> list[WebhookConf]:
    """A configuration for each webhook of the file. Raises `ConfigError`, whose text has no secret."""
    confs = []
    for index, values in enumerate(file.settings.get("webhooks", ())):
        given: dict[str, Any] = {_NAMES.get(name, name): value for name, value in values.items()}
        if "min_severity" in given:
            given["min_severity"] = Severity.parse(given["min_severity"])
        try:
            confs.append(WebhookConf(**given))
        except ConfigError as error:
            raise ConfigError(f"webhooks[{index}]: {error}") from None
    return confs
