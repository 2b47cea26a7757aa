"""A model that is fitted in a process of its own, which a test may kill: fit_process.py LAKE [spark]."""

from __future__ import annotations

import sys

from fitted import FEATURES, fitted, of_spark

if __name__ == "__main__":
    if sys.argv[2:]:
        from floodmark.engines.spark.session.builder import spark_session

        spark_session(app="fit", shuffle_partitions=1)
        fitted(sys.argv[1], estimator=of_spark(*FEATURES))
    fitted(sys.argv[1])
