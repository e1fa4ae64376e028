"""A key distribution center of Kerberos on loopback, with its principals and their keytabs."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from koff.kafkatest import free_ports, wait_until

REALM = "KOFF.TEST"
TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local")
CONFIG = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""
KDC_CONFIG = """\
[kdcdefaults]
  kdc_ports = {port}
  kdc_tcp_ports = {port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    max_life = 1h
  }}
"""


def find_tool(name: str) -> str | None:
    """The path of a tool of krb5-kdc, which Debian installs where only root looks."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(frozen=True, slots=True)
class Kdc:
    """A center that runs. `config` is the krb5.conf of clients and brokers."""

    folder: Path
    config: Path
    env: dict[str, str]

    def add(self, principal: str) -> Path:
        """Adds a principal with a random key. Returns its keytab."""
        keytab = self.folder / f"{principal.replace('/', '-')}.keytab"
        for query in (f"addprinc -randkey {principal}", f"ktadd -k {keytab} {principal}"):
            self.run("kadmin.local", "-r", REALM, "-q", query)
        return keytab

    def run(self, tool: str, *args: str) -> None:
        path = find_tool(tool)
        assert path is not None
        subprocess.run([path, *args], env=self.env, check=True, capture_output=True, timeout=60)


@contextmanager
def run_kdc(folder: Path) -> Iterator[Kdc]:
    """Runs a center with its files in the folder."""
    (port,) = free_ports(1)
    config, kdc_config = folder / "krb5.conf", folder / "kdc.conf"
    config.write_text(CONFIG.format(realm=REALM, port=port))
    kdc_config.write_text(KDC_CONFIG.format(realm=REALM, port=port, folder=folder))
    env = {**os.environ, "KRB5_CONFIG": str(config), "KRB5_KDC_PROFILE": str(kdc_config)}
    kdc = Kdc(folder, config, env)
    kdc.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of-this-test")
    path = find_tool("krb5kdc")
    assert path is not None
    with subprocess.Popen([path, "-n"], env=env) as process:
        try:
            wait_until(lambda: is_listening(port), what="the center")
            yield kdc
        finally:
            process.kill()


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
