"""The pipeline: the same line, bytes to lag, on Spark. The only room that imports pyspark."""

from koff.spark.spark_session import MissingJava, MissingSpark, session

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as failure:
    raise MissingSpark(f"no {failure.name}: pip install 'koff[spark]'") from failure

from koff.spark.rows.decoding import COMMITS, SCHEMA, DataLost, Decoder, decoded
from koff.spark.source.kafka import decode, register
from koff.spark.worker_errors import named

__all__ = [
    "COMMITS",
    "SCHEMA",
    "DataLost",
    "Decoder",
    "MissingJava",
    "MissingSpark",
    "decode",
    "decoded",
    "named",
    "register",
    "session",
]
