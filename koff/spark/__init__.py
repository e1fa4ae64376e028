"""The pipeline: the same line, bytes to lag, on Spark. The only room that imports pyspark."""

from koff.spark.session import MissingJava, MissingSpark, session

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError as failure:
    raise MissingSpark(f"no {failure.name}: pip install 'koff[spark]'") from failure

from koff.spark.decoding import COMMITS, SCHEMA, DataLost, Decoder, decoded
from koff.spark.failures import named
from koff.spark.source import decode, register

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
