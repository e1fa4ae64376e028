"""A headless Chromium for tests: pages in light and dark, what they complain of, pictures of them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_LAUNCH = """
import fcntl, os, sys
requests, answers = (fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3])
os.dup2(requests, 3)
os.dup2(answers, 4)
os.closerange(5, 1024)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Chromium takes its orders from descriptor 3 and answers to 4."""


def found() -> str | None:
    """The program, if there is one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A tab of a Chromium that ends with the block. Speaks DevTools' protocol through pipes: no port."""
    program = found()
    assert program, "no Chromium: apt-get install chromium"
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    command = [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
    ]
    command += [f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    launch = [sys.executable, "-c", _LAUNCH, str(to_read), str(from_write), *command]
    process = subprocess.Popen(launch, pass_fds=(to_read, from_write), stderr=subprocess.DEVNULL)
    os.close(to_read)
    os.close(from_write)
    with os.fdopen(to_write, "wb") as requests, os.fdopen(from_read, "rb") as answers:
        try:
            yield Tab(requests, answers)
        finally:
            process.terminate()
            process.wait(60)


class Tab:
    """One page. `events` is all that Chromium reported of it."""

    def __init__(self, requests: Any, answers: Any) -> None:
        self._requests, self._answers = requests, answers
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method of the protocol."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        self._requests.write(json.dumps(request).encode() + b"\0")
        self._requests.flush()
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def open(self, page: Path | str, *, colors: str, width: int = 1100) -> None:
        """Shows a file or a URL to a user who prefers `light` or `dark`, and waits until it is loaded."""
        features = [{"name": "prefers-color-scheme", "value": colors}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def complaints(self, origin: str = "file:") -> list[str]:
        """Errors and warnings of the console, exceptions, and what the page fetched from elsewhere."""
        said = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                said.append(json.dumps(params))
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith((origin, "data:")):
                    said.append(f"fetched {url}")
        return said

    def screenshot(self, box: dict[str, float] | None = None) -> bytes:
        """A PNG of the whole page, or of a box of it."""
        clip = {"clip": {**box, "scale": 1}} if box else {}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)
        return base64.b64decode(shot["data"])

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium ended"
            text += byte
        try:
            return json.loads(text)
        except ValueError as failure:
            raise AssertionError(f"Chromium answered {bytes(text[:200])!r}") from failure
