"""Reads a shard's figures as Prometheus does, and the table of them in METRICS.md."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).parents[1] / "METRICS.md"


def scraped(url: str) -> dict[str, float]:
    """Values by sample: its name and labels, as `name{label="value",...}`."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


def names_of(samples: Iterable[str]) -> set[str]:
    """Names of our own metrics, a histogram's once."""
    ours = (name for name in samples if name.startswith("grpc_ps_"))
    return {re.sub(r"_(bucket|count|sum)$", "", name.partition("{")[0]) for name in ours}


def in_the_page() -> set[str]:
    """Names in the page's table."""
    return set(re.findall(r"^\| `(grpc_ps_\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
