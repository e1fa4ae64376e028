"""The rules of lag, as pure functions of numbers and arrays. No other package states a rule of lag.

`as` tells type checkers that a name is public.
"""

from koff.lag.curves import Ages as Ages
from koff.lag.curves import Curves as Curves
from koff.lag.end_history import EndHistory as EndHistory
from koff.lag.late_causes import Cause as Cause
from koff.lag.offsets import UNKNOWN as UNKNOWN
from koff.lag.offsets import Lags as Lags
from koff.lag.offsets import lag as lag
from koff.lag.offsets import lag_to_stable as lag_to_stable
from koff.lag.offsets import lags as lags
from koff.lag.offsets import lost as lost
from koff.lag.offsets import published_lag as published_lag
from koff.lag.offsets import readable as readable
from koff.lag.offsets import share_committed_offset as share_committed_offset
from koff.lag.rates import NEVER as NEVER
from koff.lag.rates import CatchUps as CatchUps
from koff.lag.rates import Rates as Rates
from koff.lag.rates import consume_rates as consume_rates
from koff.lag.rates import produce_rates as produce_rates
from koff.lag.rates import seconds_until_caught_up as seconds_until_caught_up
from koff.lag.rates import usual_lags as usual_lags
from koff.lag.reasons import NULL as NULL
from koff.lag.reasons import WITHHELD as WITHHELD
from koff.lag.reasons import Reason as Reason
from koff.lag.reasons import is_topic_recreated as is_topic_recreated
from koff.lag.reasons import reasons as reasons
from koff.lag.status import ENDS_SPAN_MS as ENDS_SPAN_MS
from koff.lag.status import Status as Status
from koff.lag.status import group_completeness as group_completeness
from koff.lag.status import group_status as group_status
from koff.lag.status import status as status
from koff.lag.thinning import PRECISION as PRECISION
from koff.lag.time_lag import NO_RECORD as NO_RECORD
from koff.lag.time_lag import NO_TIMESTAMP as NO_TIMESTAMP
from koff.lag.time_lag import FirstRecords as FirstRecords
from koff.lag.time_lag import TimeLags as TimeLags
from koff.lag.time_lag import refine_with_records as refine_with_records
from koff.lag.time_lag import time_lag_s as time_lag_s
from koff.lag.window import WINDOW as WINDOW
from koff.lag.window import Features as Features
from koff.lag.window import Mark as Mark
from koff.lag.window import lacks_commit_time as lacks_commit_time
from koff.lag.window import window_features as window_features
