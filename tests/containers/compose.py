"""Starts services of deploy/compose/compose.yaml through the engine: docker compose is not needed."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.models.containers import Container

FILE = Path(__file__).parents[2] / "deploy" / "compose" / "compose.yaml"
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_KEYS = {"build", "command", "entrypoint", "environment", "image", "ports", "restart", "volumes"}
_KEYS |= {"cap_drop", "read_only", "security_opt"}


def read_services(variables: Mapping[str, str] = os.environ) -> dict[str, dict[str, Any]]:
    """The services by name, with `variables` and their defaults filled in.

    Raises `ValueError` for a key that `start` would ignore.
    """
    text = _VARIABLE.sub(lambda match: variables.get(match[1]) or match[2], FILE.read_text())
    services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    for name, service in services.items():
        if unknown := service.keys() - _KEYS:
            raise ValueError(f"service {name}: tests/containers/compose.py does not know {sorted(unknown)}")
    return services


@contextlib.contextmanager
def start(
    engine: docker.DockerClient,
    network_id: str,
    name: str,
    service: Mapping[str, Any],
    ports: Mapping[int, int],
) -> Iterator[Container]:
    """Runs a service until the end of the body. `ports` are those of this machine by those of the service."""
    endpoint = engine.api.create_endpoint_config(aliases=[name])
    host = engine.api.create_host_config(
        port_bindings={inside: ("127.0.0.1", ports[inside]) for inside in _container_ports(service)},
        binds=[_absolute(bind) for bind in service.get("volumes", ())],
        read_only=service.get("read_only", False),
        cap_drop=service.get("cap_drop"),
        security_opt=service.get("security_opt"),
        restart_policy={"Name": service["restart"]} if "restart" in service else None,
    )
    made = engine.api.create_container(
        service["image"],
        command=service.get("command"),
        entrypoint=service.get("entrypoint"),
        environment={key: str(value) for key, value in service.get("environment", {}).items()},
        ports=_container_ports(service),
        host_config=host,
        networking_config=engine.api.create_networking_config({network_id: endpoint}),
    )
    container = engine.containers.get(made["Id"])
    try:
        container.start()
        yield container
    finally:
        container.remove(force=True, v=True)


def _container_ports(service: Mapping[str, Any]) -> list[int]:
    return [int(port.rpartition(":")[2]) for port in service.get("ports", ())]


def _absolute(bind: str) -> str:
    source, _, rest = bind.partition(":")
    path = (FILE.parent / source).resolve(strict=True)
    return f"{path}:{rest}"
