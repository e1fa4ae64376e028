"""docs/client.md: its examples run, and its table of names is complete and true."""

from __future__ import annotations

import importlib
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from koff.kafkatest import LocalZooKeeper

DOC = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
SECTIONS = dict(re.findall(r"### (\w+): [^\n]*\n\n(\| Go \| koff \|.*?)(?=\n### |\Z)", DOC, re.DOTALL))

EXPORTED = {
    "koff": """NewConsumer Consumer Consumer.Close Consumer.Messages Decode Message Message.Consumer
        Message.OffsetMessage Message.GroupMessage OffsetMessage OffsetMessage.Topic OffsetMessage.Partition
        OffsetMessage.Offset OffsetMessage.Metadata OffsetMessage.CommittedAt OffsetMessage.ExpiresAt
        GroupMessage GroupMessage.ProtocolType GroupMessage.GenerationID GroupMessage.LeaderID
        GroupMessage.Protocol GroupMessage.Members GroupMessage.Complete GroupMember GroupMember.ID
        GroupMember.ClientID GroupMember.ClientHost GroupMember.SessionTimeout GroupMember.RebalanceTimeout
        GroupMember.Subscription GroupMember.Assignment TopicAndPartition TopicAndPartition.Topic
        TopicAndPartition.Partition cmd/printer""",
    "consumer": """Consumer.Close Consumer.Name Consumer.Topics Consumer.Errors Consumer.Closed
        Consumer.Messages Consumer.CommitUpTo Message Message.Key Message.Value Message.Topic
        Message.Partition Message.Offset Message.Ack Message.Nack Message.Cluster""",
    "zookeeper": """AlreadyClosing UncleanClose Config Config.Zookeeper Config.Offsets.Initial
        Config.Offsets.ProcessingTimeout Config.Offsets.CommitInterval Config.Offsets.ResetOffsets
        ConsumerGroup JoinConsumerGroup ConsumerGroup.Close ConsumerGroup.Closed ConsumerGroup.CommitUpto
        ConsumerGroup.Errors ConsumerGroup.FlushOffsets ConsumerGroup.InstanceRegistered ConsumerGroup.Logf
        ConsumerGroup.Messages OffsetManager OffsetManager.InitializePartition OffsetManager.MarkAsProcessed
        OffsetManager.Flush OffsetManager.FinalizePartition OffsetManager.Close NewZookeeperOffsetManager
        OffsetManagerConfig OffsetManagerConfig.CommitInterval OffsetManagerConfig.VerboseLogging
        NewOffsetManagerConfig""",
    "multicluster": """RWMode Reader NewReader Reader.Close Reader.Lag Reader.Offset Reader.ReadLag
        Reader.ReadMessage Reader.FetchMessage Reader.CommitMessages Reader.SetOffset Reader.SetOffsetAt
        Reader.Stats FirstOffset LastOffset WriteErrors WriteErrors.Count WriteErrors.Error Writer
        Writer.Close Writer.Stats Writer.WriteMessages""",
    "broker": """StartOffsetNewest StartOffsetOldest ErrClosed ErrMxClosed ErrNoData Broker Dial Broker.Close
        Broker.Consumer Broker.Metadata Broker.OffsetCoordinator Broker.OffsetEarliest Broker.OffsetLatest
        Broker.PartitionCount Broker.Producer BrokerConf BrokerConf.ClientID BrokerConf.LeaderRetryLimit
        BrokerConf.LeaderRetryWait BrokerConf.AllowTopicCreation BrokerConf.DialTimeout
        BrokerConf.DialRetryLimit BrokerConf.DialRetryWait BrokerConf.Log BrokerConf.Logger NewBrokerConf
        Client Consumer Consumer.Consume ConsumerConf ConsumerConf.Topic ConsumerConf.Partition
        ConsumerConf.RequestTimeout ConsumerConf.RetryLimit ConsumerConf.RetryWait ConsumerConf.RetryErrLimit
        ConsumerConf.RetryErrWait ConsumerConf.MinFetchSize ConsumerConf.MaxFetchSize ConsumerConf.StartOffset
        ConsumerConf.Logger NewConsumerConf DistributingProducer DistributingProducer.Distribute
        NewHashProducer NewRandomProducer NewRoundRobinProducer Logger Mx Merge Mx.Close Mx.Consume
        OffsetCoordinator OffsetCoordinator.Commit OffsetCoordinator.Offset OffsetCoordinatorConf
        OffsetCoordinatorConf.ConsumerGroup OffsetCoordinatorConf.RetryErrLimit
        OffsetCoordinatorConf.RetryErrWait OffsetCoordinatorConf.Logger NewOffsetCoordinatorConf Producer
        Producer.Produce ProducerConf ProducerConf.Compression ProducerConf.RequestTimeout
        ProducerConf.RequiredAcks ProducerConf.RetryLimit ProducerConf.RetryWait ProducerConf.Logger
        NewProducerConf kafkatest proto""",
}


def rows(section: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", SECTIONS[section], re.MULTILINE))


@pytest.mark.parametrize("section", EXPORTED)
def test_below_each_table_is_an_example(section):
    assert len(re.findall("```python\n", SECTIONS[section])) == 1


@pytest.mark.parametrize("section", EXPORTED)
def test_every_name_of_the_go_library_is_in_the_table(section):
    assert set(EXPORTED[section].split()) - set(rows(section)) == set()


@pytest.mark.parametrize("section", EXPORTED)
def test_every_name_of_ours_in_the_table_exists(section):
    for theirs, ours in rows(section).items():
        names = re.findall(r"`([^`]+)`", ours)
        assert names or ours.startswith("—"), theirs
        for name in names:
            assert found(name) is not None, f"{theirs}: {name}"


def found(name: str) -> object:
    """What a dotted name stands for: the longest part that is a module, then its attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as missing:
            if missing.name not in {".".join(parts[:n]) for n in range(1, end + 1)}:
                raise
            continue
        for part in parts[end:]:
            thing = getattr(thing, part)
        return thing
    raise ModuleNotFoundError(name)


@pytest.mark.kafka
def test_the_examples_run(more_kafka, capsys, monkeypatch):
    kafka = more_kafka()
    for topic, partitions in (("my-messages", 1), ("fruits", 3), ("vegetables", 1)):
        kafka.create_topic(topic, partitions)
    assert len(EXAMPLES) == 24
    handlers: dict[int, Callable[[], None]] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "raise_signal", lambda number: handlers[number]())
    with LocalZooKeeper() as zookeeper:
        for example in EXAMPLES:
            real = example.replace("localhost:9092", kafka.bootstrap).replace(
                "localhost:2181", zookeeper.hosts
            )
            exec(compile(real, "docs/client.md", "exec"), {})
    assert "hello" in capsys.readouterr().out
