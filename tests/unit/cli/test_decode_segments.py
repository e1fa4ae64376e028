"""Which folders of a broker `koff decode segments` reads."""

from pathlib import Path

import pytest

from koff.cli.decode_segments import find_logs
from koff.errors import ConfigError


def test_of_a_brokers_folder_the_partitions_of_the_topic_are_read_in_order(tmp_path: Path):
    for name in ("t-10", "t-2", "t-7.0f3c-delete", "t-3.0f3c-future", "t-eu-3", "other-1", "t-4"):
        folder = tmp_path / name
        folder.mkdir()
        if name != "t-4":
            (folder / "00000000000000000000.log").touch()
    assert [(log.topic, log.partition) for log in find_logs([tmp_path], "t")] == [("t", 2), ("t", 10)]
    with pytest.raises(ConfigError, match="no folders such as absent-7"):
        list(find_logs([tmp_path], "absent"))
