"""Counters of a server, as Prometheus reads them (`/metrics`). Needs the package prometheus-client, of the extra
`serve`."""

from __future__ import annotations

from typing import Any

#: Bounds of histograms: seconds of a request or call, and requests or rows in one call.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server, by model and version (labels that only models that there are give)."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        labels = ("model", "version")

        def made(kind: Any, name: str, text: str, more: tuple[str, ...] = (), **options: Any) -> Any:
            return kind(f"lightnet_{name}", text, (*labels, *more), registry=self.registry, **options)

        self.requests = made(Counter, "requests", "Requests for inference, by HTTP status", ("status",))
        self.failures = made(
            Counter, "request_failures", "Requests that were answered with an error, by HTTP status", ("status",)
        )
        self.accepted = made(
            Gauge, "requests_accepted", "Requests that are being read, wait, run or are being answered"
        )
        self.waiting = made(Gauge, "queue_size", "Requests that wait for a thread")
        self.rows = made(Counter, "rows", "Rows of requests that were computed (requests, where there is no batch)")
        self.calls = made(Counter, "calls", "Calls of the network")
        self.batch = made(Histogram, "batch_requests", "Requests in one call", buckets=SIZES)
        self.request_seconds = made(
            Histogram, "request_duration_seconds", "From the request's headers to its reply", buckets=SECONDS
        )
        self.queue_seconds = made(
            Histogram, "queue_duration_seconds", "From a request's arrival in the queue to its call", buckets=SECONDS
        )
        self.call_seconds = made(Histogram, "call_duration_seconds", "Calls of the network", buckets=SECONDS)
        self.loads = made(Counter, "loads", "Loads of a model, by outcome (ok, error)", ("outcome",))

    def text(self) -> tuple[bytes, str]:
        """All of them in Prometheus' text format, and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self.registry), CONTENT_TYPE_LATEST
