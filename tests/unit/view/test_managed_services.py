"""Managed services by name: which names belong to which, and that each has a page."""

import re
from pathlib import Path

import pytest

from koff.view.managed_services import SERVICES, find_service

ROOT = Path(__file__).parents[3]
OVERVIEW = (ROOT / "docs" / "managed" / "README.md").read_text()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("b-1.demo.123z8u.c2.kafka.us-west-1.amazonaws.com", "Amazon MSK"),
        ("b-2-public.demo.v4ni96.c2.kafka.eu-central-1.amazonaws.com", "Amazon MSK"),
        ("boot-9ganydcu.c2.kafka-serverless.us-east-1.amazonaws.com", "Amazon MSK Serverless"),
        ("pkc-abc12.us-west-2.aws.confluent.cloud", "Confluent Cloud"),
        ("PKC-ABC12.US-WEST-2.AWS.CONFLUENT.CLOUD.", "Confluent Cloud"),
        ("lkc-abc12.eu-west-1.aws.accesspoint.glb.confluent.cloud", "Confluent Cloud"),
        ("demo.servicebus.windows.net", "Azure Event Hubs"),
        ("demo.servicebus.usgovcloudapi.net", "Azure Event Hubs"),
        ("seed-2f92c489.d040oh0mf339m7q5uu0g.byoc.prd.cloud.redpanda.com", "Redpanda"),
        ("demo-kafka.my-project.aivencloud.com", "Aiven for Apache Kafka"),
        ("api-0d2da3de.kafka.discoveryv2.prod-z.us-east-1.warpstream.com", "WarpStream"),
        ("0-kf-fcbb5380s8hv7iwt.nj1ba7u426owwxmm.automq.private", "AutoMQ"),
        ("kafka.internal", None),
        ("localhost", None),
        ("10.0.0.1", None),
        ("::1", None),
        ("ec2-1-2-3-4.us-west-1.compute.amazonaws.com", None),
        ("notconfluent.cloud", None),
        ("pkc.confluent.cloud.example.org", None),
        ("kafka-us-west-1-amazonaws.com", None),
    ],
)
def test_a_service_is_known_by_the_end_of_a_host_name(host, name):
    service = find_service([host])
    assert (service and service.name) == name


def test_one_of_several_hosts_is_enough():
    service = find_service(["10.0.0.1", "demo.servicebus.windows.net"])
    assert service.name == "Azure Event Hubs"
    assert find_service([]) is None


@pytest.mark.parametrize(
    ("cluster_id", "name"),
    [
        ("redpanda.3e2649b0-f84c-4c03-b5e3-d6d1643f65b2", "Redpanda"),
        ("lkc-redpanda.", None),
        ("Xgd_KoomSgyoRi5Gxjs3bQ", None),
        ("", None),
        (None, None),
    ],
)
def test_redpanda_is_known_by_the_id_of_its_clusters_too(cluster_id, name):
    service = find_service(["10.0.0.1"], cluster_id)
    assert (service and service.name) == name


def test_a_host_says_more_than_the_id_of_the_cluster():
    service = find_service(["demo.aivencloud.com"], "redpanda.1")
    assert service.name == "Aiven for Apache Kafka"


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_each_service_has_a_page_that_the_overview_links(service):
    page = (ROOT / service.page).read_text()
    assert service.name.removesuffix(" for Apache Kafka").removesuffix(" Serverless") in page.splitlines()[0]
    assert service.name in page
    assert f"]({service.file})" in OVERVIEW
    assert re.fullmatch(r"[^.!?]+(\.\d[^.!?]*)*", service.expect), "one sentence without its full stop"


def test_each_page_is_of_a_service():
    pages = {path.name for path in (ROOT / "docs" / "managed").glob("*.md")}
    assert pages - {"README.md"} == {service.file for service in SERVICES}
