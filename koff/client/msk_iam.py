"""Log-in to Amazon MSK with IAM: SASL/OAUTHBEARER with tokens that are signed with the credentials of AWS.

`sasl.mechanism: AWS_MSK_IAM`, as in Java's clients. The signer finds the credentials as all programs for AWS
do: in the environment, in files, from the machine or the pod.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from koff.errors import ConfigError, ConnectError

MECHANISM = "AWS_MSK_IAM"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def uses_iam(properties: Mapping[str, str]) -> bool:
    """Whether the properties ask for this log-in."""
    return (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").upper() == MECHANISM


def sign_token(brokers: str) -> tuple[str, float]:
    """A token, and the time at which it expires, in seconds since the epoch.

    Raises `ConfigError` without the library or a region, and `ConnectError` without credentials.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError:
        raise ConfigError(f"{MECHANISM} needs a library: pip install 'koff[aws]'") from None
    region = _find_region(brokers)
    try:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except Exception as error:  # the library and botocore have no common family of errors
        raise ConnectError(f"cannot sign a token for {MECHANISM}: {type(error).__name__}: {error}") from error
    return str(token), float(expires_ms) / 1000


def _find_region(brokers: str) -> str:
    found = _REGION.search(brokers)
    region = found[1] if found else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(f"{MECHANISM} needs a region: set the environment variable AWS_REGION")
    return region
