"""The koff of which this one is the standby. It is asked in a thread of its own, so it delays nothing."""

import http.client
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing
from urllib.parse import quote, urlsplit

from koff.client.calls import call_in_thread, get_result
from koff.serve.events.standby import FirstAnswer
from koff.serve.events.webhook_post import prepare_connection

INSTANCE_HEADER = "koff-instance"
"""The header of `/readyz` that names the process."""
TIMEOUT_S = 2.0
_LONGEST_WHY = 300

Answers = Mapping[str, FirstAnswer]


class FirstKoff:
    """Asks the koff at `url` how it is. Not thread-safe."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._asked: Future[Answers] | None = None

    def ask(self, clusters: Iterable[str]) -> None:
        """Asks whether it sees these clusters. Returns at once."""
        self._asked = call_in_thread(_ask_all, self.url, tuple(clusters))

    def take_answers(self) -> Answers | None:
        """What has come since `ask`, by cluster; None if nobody has asked."""
        if self._asked is None:
            return None
        return get_result(self._asked) if self._asked.done() else {}


def _ask_all(url: str, clusters: Iterable[str]) -> Answers:
    answers: dict[str, FirstAnswer] = {}
    for cluster in clusters:
        answers[cluster] = _ask(url, cluster)
        if answers[cluster].instance is None:  # do not wait for it as often as there are clusters
            return dict.fromkeys(clusters, answers[cluster])
    return answers


def _ask(url: str, cluster: str) -> FirstAnswer:
    path = f"{urlsplit(url).path.rstrip('/')}/readyz?cluster={quote(cluster, safe='')}"
    try:
        # As for probes: the name in the certificate is that of the service, and no secret is sent.
        tls = ssl._create_unverified_context() if urlsplit(url).scheme == "https" else None  # noqa: S323
        with closing(prepare_connection(url, TIMEOUT_S, tls)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read(_LONGEST_WHY).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return FirstAnswer(why=f"{type(error).__name__}: {error}")
    instance = response.getheader(INSTANCE_HEADER)
    if instance is None:
        return FirstAnswer(why=f"there is no koff at that address (HTTP status {response.status})")
    return FirstAnswer(instance, response.status == 200, text)
