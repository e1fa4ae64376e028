"""What tools, proxies and stand-ins of brokers need. `as` tells type checkers that a name is public."""

from kio.schema.errors import ErrorCode as ErrorCode

from koff.proto.messages import Batch as Batch
from koff.proto.messages import Codec as Codec
from koff.proto.messages import Record as Record
from koff.proto.messages import decode_batches as decode_batches
from koff.proto.messages import encode_batch as encode_batch
from koff.proto.primitives import Malformed as Malformed
from koff.proto.primitives import Truncated as Truncated
from koff.proto.requests import Api as Api
from koff.proto.requests import EncodedRequest as EncodedRequest
from koff.proto.requests import Frames as Frames
from koff.proto.requests import RequestHeader as RequestHeader
from koff.proto.requests import build_request as build_request
from koff.proto.requests import build_response as build_response
from koff.proto.requests import build_struct as build_struct
from koff.proto.requests import decode_request as decode_request
from koff.proto.requests import decode_response as decode_response
from koff.proto.requests import encode_request as encode_request
from koff.proto.requests import encode_response as encode_response
from koff.proto.requests import kio_versions as kio_versions
