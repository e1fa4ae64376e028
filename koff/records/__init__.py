"""Decodes the records of `__consumer_offsets` and `__share_group_state`. No I/O, no clock, no log.

The formats are described in docs/records-format.md. All structs of the record types are public here; of other
names, `as` tells that to type checkers.
"""

from koff.proto.buffers import Binary as Binary
from koff.proto.buffers import Text as Text
from koff.proto.primitives import Malformed as Malformed
from koff.records.classic_records import *
from koff.records.columns import RecordColumns as RecordColumns
from koff.records.columns import decode_columns as decode_columns
from koff.records.commit_values import CommitValues as CommitValues
from koff.records.commit_values import decode_commit_values as decode_commit_values
from koff.records.consumer_protocol import Assignment as Assignment
from koff.records.consumer_protocol import Subscription as Subscription
from koff.records.consumer_protocol import UndecodableBlob as UndecodableBlob
from koff.records.consumer_protocol import decode_assignment as decode_assignment
from koff.records.consumer_protocol import decode_subscription as decode_subscription
from koff.records.consumer_records import *
from koff.records.decoded_message import DecodedMessage as DecodedMessage
from koff.records.decoded_message import GroupMember as GroupMember
from koff.records.decoded_message import GroupMessage as GroupMessage
from koff.records.decoded_message import OffsetMessage as OffsetMessage
from koff.records.decoded_message import TopicAndPartition as TopicAndPartition
from koff.records.decoder import decode as decode
from koff.records.decoder import decode_share_state as decode_share_state
from koff.records.decoder import encode as encode
from koff.records.key_codes import KeyCodes as KeyCodes
from koff.records.message_json import as_dict as as_dict
from koff.records.message_json import kafka_json as kafka_json
from koff.records.message_json import kafka_line as kafka_line
from koff.records.record import DecodedRecord as DecodedRecord
from koff.records.record import OffsetsRecord as OffsetsRecord
from koff.records.record import Record as Record
from koff.records.record import ShareStateRecord as ShareStateRecord
from koff.records.record import Undecodable as Undecodable
from koff.records.record import Unknown as Unknown
from koff.records.record_types import RECORD_TYPES as RECORD_TYPES
from koff.records.record_types import SHARE_STATE_TYPES as SHARE_STATE_TYPES
from koff.records.record_types import type_name as type_name
from koff.records.share_records import *
from koff.records.share_state_records import *
from koff.records.streams_records import *
from koff.records.text import text_line as text_line
