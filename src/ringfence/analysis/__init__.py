"""What runs say: metrics and per-stage shares."""

from __future__ import annotations

from ringfence.analysis.metrics import RunMetrics, load_metrics, metrics, metrics_by_lane
from ringfence.analysis.stages import StageShares, StageSummary, stage_summary

__all__ = [
    "RunMetrics",
    "StageShares",
    "StageSummary",
    "load_metrics",
    "metrics",
    "metrics_by_lane",
    "stage_summary",
]
