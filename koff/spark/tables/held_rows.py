"""What the rows of `lag` say of each sample: a row holds until the slot's next row.

A full sample writes a row for each slot. The samples after it write only the slots that have changed, with
the time of the full sample in `full_at`. So a row holds at its own sample and at each later sample of the
same `full_at`, until the slot has another row of that `full_at`. A row with `ended` says that the slot is no
longer committed to or assigned. The table `samples` has the samples: without one, nothing is known of a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOT = ("group", "topic", "partition")
LONGEST_FULL_S = 43_200.0
"""The longest time from one full sample to the next. Readers read the rows of a day before their period."""


def hold_rows(lag: DataFrame, samples: DataFrame) -> DataFrame:
    """A row for each slot in each sample: what `lag` would have if every sample were full.

    `lag` and `samples` are rows of these tables, with all rows of each `full_at` that matters. A time lag
    grows with time while its row holds. Rates are those of the row's own sample.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # The last sample of each row, and then a row for each sample up to there.
    slot = Window.partitionBy("cluster", "full_at", *SLOT).orderBy("at")
    rows = lag.withColumn("next_at", f.lead("at").over(slot)).where("NOT ended")
    times = samples.select(
        f.col("cluster").alias("of"),
        f.col("full_at").alias("since"),
        f.col("at").alias("held_at"),
        f.col("batch").alias("held_batch"),
    )
    same = (f.col("cluster") == f.col("of")) & (f.col("full_at") == f.col("since"))
    within = (f.col("held_at") >= f.col("at")) & (
        f.col("next_at").isNull() | (f.col("held_at") < f.col("next_at"))
    )
    held = rows.join(f.broadcast(times), same & within)
    elapsed_s = (f.unix_millis("held_at") - f.unix_millis("at")) / 1000
    seconds = f.col("time_lag_s")
    held = held.withColumns(
        {
            "time_lag_s": f.when(seconds > 0, seconds + elapsed_s).otherwise(seconds),
            "at": f.col("held_at"),
            "batch": f.col("held_batch"),
            "day": f.to_date("held_at"),
        }
    )
    return held.select(*lag.columns)
