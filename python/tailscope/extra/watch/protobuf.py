"""Metrics in Prometheus' binary format: the one by which its server reads native histograms.

It is that of ``io.prometheus.client.MetricFamily`` (``metrics.proto`` of prometheus/client_model),
of which the parts that are written are declared here.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample

_PACKAGE = "io.prometheus.client"
CONTENT_TYPE = f"application/vnd.google.protobuf; proto={_PACKAGE}.MetricFamily; encoding=delimited"

_COUNTER, _GAUGE, _HISTOGRAM = 0, 1, 4
_KINDS = {"counter": _COUNTER, "gauge": _GAUGE, "info": _GAUGE, "histogram": _HISTOGRAM}

_MESSAGES = {
    "LabelPair": "1 string name, 2 string value",
    "Gauge": "1 double value",
    "Counter": "1 double value",
    "BucketSpan": "1 sint32 offset, 2 uint32 length",
    "Bucket": "1 uint64 cumulative_count, 2 double upper_bound",
    "Histogram": "1 uint64 sample_count, 2 double sample_sum, 3 Bucket* bucket, 5 sint32 schema,"
    " 6 double zero_threshold, 7 uint64 zero_count, 12 BucketSpan* positive_span,"
    " 13 sint64* positive_delta",
    "Metric": "1 LabelPair* label, 2 Gauge gauge, 3 Counter counter, 7 Histogram histogram",
    "MetricFamily": "1 string name, 2 string help, 3 int32 type, 4 Metric* metric",
}
"""Each message: number, type and name of its fields; a star marks one that repeats."""


def encoded(metrics: Collector) -> bytes:
    """Write metrics one after another, each behind its length."""
    written = BytesIO()
    for family in metrics.collect():
        proto.serialize_length_prefixed(_family(family), written)
    return written.getvalue()


@cache
def messages() -> dict[str, Any]:
    """The class of each message, by its name."""
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package=_PACKAGE)
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for field in fields.split(", "):
            number, kind, name = field.split()
            repeats, kind = kind.endswith("*"), kind.removesuffix("*")
            is_message = kind in _MESSAGES
            declared.field.add(
                name=name,
                number=int(number),
                label="LABEL_REPEATED" if repeats else "LABEL_OPTIONAL",
                type="TYPE_MESSAGE" if is_message else f"TYPE_{kind.upper()}",
                type_name=f".{_PACKAGE}.{kind}" if is_message else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


def _family(metric: Metric) -> Any:
    """A metric with all its samples."""
    kind = _KINDS[metric.type]
    suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
    make = messages()
    family = make["MetricFamily"](name=metric.name + suffix, help=metric.documentation, type=kind)
    if kind == _HISTOGRAM:
        family.metric.add(histogram=_histogram(metric.samples))
        return family
    for sample in metric.samples:
        labels = [{"name": name, "value": value} for name, value in sorted(sample.labels.items())]
        value = {"value": sample.value}
        if kind == _COUNTER:
            family.metric.add(label=labels, counter=value)
        else:
            family.metric.add(label=labels, gauge=value)
    return family


def _histogram(samples: Sequence[Sample]) -> dict[str, object]:
    """A histogram without labels: classic buckets, which have upper bounds, and the native one."""
    native = next(each.native_histogram for each in samples if each.native_histogram is not None)
    classic = [each for each in samples if "le" in each.labels]
    return {
        "sample_count": int(native.count_value),
        "sample_sum": native.sum_value,
        "bucket": [
            {"cumulative_count": int(each.value), "upper_bound": float(each.labels["le"])}
            for each in classic
        ],
        "schema": native.schema,
        "zero_threshold": native.zero_threshold,
        "zero_count": int(native.zero_count),
        "positive_span": [span._asdict() for span in native.pos_spans or ()],
        "positive_delta": native.pos_deltas or (),
    }
