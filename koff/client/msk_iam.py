"""Log-in to Amazon MSK with IAM: SASL/OAUTHBEARER with tokens that are signed with the credentials of AWS.

`sasl.mechanism: AWS_MSK_IAM`, as in Java's clients. The signer finds the credentials as all programs for AWS
do: in the environment, in files, from the machine or the pod.
"""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from koff.errors import ConfigError, ConnectError
from koff.logs import get_logger

log = get_logger("client")

MECHANISM = "AWS_MSK_IAM"
RETRY_S = 10.0
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def uses_iam(properties: Mapping[str, str]) -> bool:
    """Whether the properties choose this log-in."""
    return (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").upper() == MECHANISM


def check(brokers: str) -> None:
    """Raises `ConfigError` without the library or a region."""
    _find_signer()
    _find_region(brokers)


def sign_token(brokers: str) -> tuple[str, float]:
    """A token, and the time at which it expires, in seconds since the epoch.

    Raises `ConfigError` without the library or a region, and `ConnectError` without credentials.
    """
    signer, region = _find_signer(), _find_region(brokers)
    try:
        token, expires_ms = signer.generate_auth_token(region)
    except Exception as error:  # the library and botocore have no common family of errors
        raise ConnectError(f"cannot sign a token for {MECHANISM}: {type(error).__name__}: {error}") from error
    return str(token), float(expires_ms) / 1000


class TokenCallback:
    """librdkafka's `oauth_cb` for a client.

    Without a token, the client could not be made, and koff could not try again. So the first token may be one
    that the broker refuses; librdkafka requests the next after a few seconds.
    """

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._has_token = False

    def __call__(self, _: str) -> tuple[str, float]:
        """A token, and when it expires. Raises `ConnectError`: librdkafka then keeps the token before."""
        try:
            signed = sign_token(self._brokers)
        except ConnectError as error:
            log.warning("no token for Amazon MSK", why=str(error))
            if self._has_token:
                raise
            return "none", time.time() + RETRY_S
        self._has_token = True
        return signed


def _find_signer() -> Any:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise ConfigError(f"{MECHANISM} needs a library: pip install 'koff[aws]'") from None
    return MSKAuthTokenProvider


def _find_region(brokers: str) -> str:
    found = _REGION.search(brokers)
    region = found[1] if found else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(f"{MECHANISM} needs a region: set the environment variable AWS_REGION")
    return region
