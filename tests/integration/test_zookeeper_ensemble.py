"""Sessions and groups on three ZooKeeper servers, of which one is cut off or killed."""

import time

import pytest
from kazoo.client import KazooClient

from koff.client.zookeeper.session import Session
from koff.kafkatest import LocalZooKeeper, wait_until
from tests.zookeeper_ensemble import run_ensemble

pytestmark = pytest.mark.kafka


def test_the_session_uses_the_timeout_that_the_server_granted():
    with LocalZooKeeper(tick_ms=500) as zookeeper, Session(zookeeper.hosts, timeout_s=20.0) as session:
        session.connect()
        assert session.timeout_s == pytest.approx(10.0)  # 20 ticks are the most
        before = time.monotonic()
        session.renew_lease("/")
        assert session.trusted
        assert session.lease_until < time.monotonic() + 10.0
        assert session.lease_until >= before + 7.5


def test_a_follower_that_is_cut_off_answers_reads_but_renews_no_lease():
    with run_ensemble(tick_ms=500, sync_limit=120) as ensemble:
        follower = ensemble.find("follower")
        others = [ensemble.host(server) for server in (1, 2, 3) if server != follower]
        session = Session(ensemble.host(follower), timeout_s=6.0)
        watcher = KazooClient(",".join(others))
        watcher.start()
        try:
            session.connect()
            session.call("create", "/member", b"", ephemeral=True)
            assert session.renew_lease("/member")
            ensemble.cut_off(follower)
            wait_until(lambda: watcher.exists("/member") is None, what="the session to expire")
            # The follower does not know, and still answers from its own copy.
            assert session.call("exists", "/member") is not None
            assert not session.trusted
            with pytest.raises(Exception, match="ZooKeeper at"):
                session.renew_lease("/member")
            assert not session.trusted
        finally:
            watcher.stop()
            watcher.close()
            session.close()
