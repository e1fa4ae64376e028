"""A real `koff monitor` that gets SIGHUP, with files that are no configuration. No Kafka is there."""

import json
import shutil
import signal
from pathlib import Path

from koff.kafkatest import free_ports, wait_until
from tests.koff_process import Monitor, monitoring

WRONG = "the configuration is wrong, and is not applied"


def hang_up(monitor: Monitor, event: str) -> str:
    """Sends SIGHUP. Returns the `why` of the next event of that name."""
    before = len(monitor.events(event))
    monitor.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: len(monitor.events(event)) > before or monitor.process.poll() is not None, what="the reload"
    )
    assert monitor.process.poll() is None, monitor.text
    return str(monitor.events(event)[-1].get("why"))


def test_no_file_ends_koff_and_the_old_configuration_stays_in_force(tmp_path: Path):
    file = tmp_path / "koff.yaml"
    right = (
        f"wait: true\nclusters:\n- {{name: a, brokers: '127.0.0.1:{free_ports(1)[0]}', labels: {{b: c}}}}\n"
    )
    file.write_text(right)
    with monitoring(None, "--config", str(file)) as monitor:
        wait_until(lambda: monitor.events("waiting"), what="the first attempt to connect")
        for wrong, told in (
            ("webhooks: [{}]\n", "line 4: webhooks[0] has no url"),
            ("state_dir: /dev/null/x\n", "cannot use --state-dir /dev/null/x/cluster-a"),
        ):
            file.write_text(right + wrong)
            assert told in hang_up(monitor, WRONG)
        file.unlink()
        assert "No such file" in hang_up(monitor, WRONG)
        file.mkdir()
        assert "Is a directory" in hang_up(monitor, WRONG)
        assert monitor.metrics()["koff_up"] == {("a", "c"): 0}

        # The next file that is right is applied.
        shutil.rmtree(file)
        file.write_text(right.replace("b: c", "b: d"))
        hang_up(monitor, "the configuration was read again")
        wait_until(lambda: monitor.metrics()["koff_up"] == {("a", "d"): 0}, what="the new label")
        assert monitor.stop() == 0, monitor.text
    # Each error was one line of the log.
    assert all(json.loads(line) for line in monitor.text.splitlines())
    assert len(monitor.events(WRONG)) == 4


def test_a_reload_changes_how_koff_logs_and_names_what_waits_for_a_restart(tmp_path: Path):
    file = tmp_path / "koff.yaml"
    clusters = f"clusters: [{{name: a, brokers: '127.0.0.1:{free_ports(1)[0]}'}}]\n"
    applied, waiting = "the configuration was read again", "some changes take effect when koff is restarted"
    file.write_text(clusters + "families: default\n")
    with monitoring(None, "--config", str(file)) as monitor:
        began_s = read_reload(monitor)[1]
        assert read_reload(monitor) == (1, began_s)
        file.write_text(clusters + "famlies: default\n")
        hang_up(monitor, WRONG)
        wait_until(lambda: read_reload(monitor) == (0, began_s), what="the failed reload")
        file.write_text(clusters + "max_series: 7\ngranularity: group\n")
        hang_up(monitor, waiting)
        assert monitor.events(waiting)[-1]["settings"] == ["granularity", "max_series"]
        wait_until(lambda: read_reload(monitor)[0] == 1, what="the reload that is right")
        assert read_reload(monitor)[1] > began_s
        # What is logged at a lower level is not seen any more.
        file.write_text(clusters + "log_level: error\n")
        hang_up(monitor, applied)
        hang_up_seen = len(monitor.events(applied))
        file.write_text(clusters + "log_level: error\nfamlies: x\n")
        hang_up(monitor, WRONG)
        assert len(monitor.events(applied)) == hang_up_seen
        file.write_text(clusters)
        monitor.process.send_signal(signal.SIGHUP)
        wait_until(lambda: read_reload(monitor)[0] == 1, what="the last reload")


def read_reload(monitor: Monitor) -> tuple[float, float]:
    """Whether the last reload was successful, and when one was."""
    metrics = monitor.metrics()
    names = ("successful", "success_timestamp_seconds")
    first, second = (next(iter(metrics[f"koff_config_last_reload_{name}"].values())) for name in names)
    return first, second
