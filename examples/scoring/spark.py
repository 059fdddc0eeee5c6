"""Scoring a folder of Parquet files with Spark: ``spark-submit examples/scoring/spark.py NET.lnx IN OUT``.

`predict_batch_udf` calls `make_predict` once in each Python process of an executor, and what it returns with batches
of rows. Column x has the rows of the network's input x; column y gets those of its output y.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, FloatType

import lightnet


def predictor(net: str) -> Callable[[], Callable[[np.ndarray], np.ndarray]]:
    """Of a path that all executors can read, or of the bytes of the file."""

    def make_predict() -> Callable[[np.ndarray], np.ndarray]:
        run = lightnet.load_executable(net)
        return lambda x: lightnet.score(run, {"x": x})["y"]

    return make_predict


def scored(spark: SparkSession, net: str, folder: str) -> DataFrame:
    """The rows of a folder with column y beside them."""
    rows = spark.read.parquet(folder)
    width = len(rows.select("x").first()["x"])  # type: ignore[index]
    predict: Any = predict_batch_udf(
        predictor(net), return_type=ArrayType(FloatType()), batch_size=1024, input_tensor_shapes=[[width]]
    )
    return rows.withColumn("y", predict("x"))


if __name__ == "__main__":
    with SparkSession.builder.getOrCreate() as session:
        scored(session, *sys.argv[1:3]).write.parquet(sys.argv[3])
