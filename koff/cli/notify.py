"""`koff notify`: shows and sends what webhooks get, to see whether it arrives."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from click import option

from koff.config.kinds import FILE
from koff.config.koff_yaml import read_koff_yaml
from koff.config.monitors import list_webhooks
from koff.errors import ConfigError
from koff.serve.events.event import ClusterEvent
from koff.serve.events.examples import build_examples
from koff.serve.events.templates import TEMPLATES, Filling, NoticeTemplate, WebhookRequest
from koff.serve.events.webhook_conf import WebhookConf
from koff.serve.events.webhook_post import build_tls, post

_CURES = {
    "failed": "is the address right, and can this machine reach it?",
    "refused": "are the path of the URL, the token and the template those of the service?",
}


@click.group()
def notify() -> None:
    """Try the webhooks of a koff.yaml, and show what they get."""


@notify.command("test")
@option("--config", default="koff.yaml", type=FILE, help="The koff.yaml with the webhook.", show_default=True)
@option("--webhook", metavar="NAME", help="The `name` of the webhook, if the file has several.")
@option("--print", "only_prints", is_flag=True, help="Print requests. Without --webhook: of each template.")
def send_test(config: Path, webhook: str | None, only_prints: bool) -> None:
    """Send an example of each kind of notice to a webhook, whatever its filters are.

    Each text begins with TEST. Prints what came of each request; the exit code is 1 if one failed. With
    --print, nothing is sent, and no koff.yaml is needed unless --webhook names one of its webhooks.

    \b
    Examples:
      koff notify test --webhook payments
      koff notify test --print | less
    """
    examples = build_examples(round(time.time() * 1000))
    if only_prints and webhook is None:
        for name, template in TEMPLATES.items():
            _print(name, template, Filling("ROUTING_KEY"), examples)
        return
    conf = _find_webhook(config, webhook)
    if only_prints:
        filling = conf.filling._replace(routing_key="ROUTING_KEY")
        _print(conf.name or conf.place, conf.notices, filling, examples)
        return
    requests = _build(conf.notices, conf.filling, examples)
    if False in [_send(conf, name, request) for name, request in requests]:
        sys.exit(1)


def _find_webhook(config: Path, name: str | None) -> WebhookConf:
    """The webhook of that name, or the only one. Raises `ConfigError`."""
    confs = list_webhooks(read_koff_yaml(config, os.environ))
    found = [conf for conf in confs if name in (None, conf.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(conf.name for conf in confs if conf.name) or "none of its webhooks has a name"
    raise ConfigError(f"--webhook must name one of {len(confs)} webhooks of {config}: {names}")


def _build(
    template: NoticeTemplate, filling: Filling, examples: Mapping[str, ClusterEvent]
) -> Iterator[tuple[str, WebhookRequest]]:
    for name, event in examples.items():
        if event.kind != "summary" or not template.keeps_alerts:  # it gets none
            yield name, template.build([event], filling)


def _print(
    title: str, template: NoticeTemplate, filling: Filling, examples: Mapping[str, ClusterEvent]
) -> None:
    for name, request in _build(template, filling, examples):
        body = request.body.decode()
        if request.content_type == "application/json":
            body = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
        head = f"POST URL{request.path}\nContent-Type: {request.content_type}"
        click.echo(f"# {title}: {name}\n{head}\n\n{body}\n")


def _send(conf: WebhookConf, name: str, request: WebhookRequest) -> bool:
    """Sends a request, and prints what came of it. Returns whether it was accepted."""
    result, why = post(conf, request, build_tls(conf))
    click.echo(f"{name}: {f'{result}: {why}: {_CURES[result]}' if why else 'ok'}")
    return result == "ok"
