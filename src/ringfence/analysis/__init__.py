"""What runs say: metrics and per-stage shares."""

from ringfence.analysis.metrics import load_metrics, metrics, metrics_by_lane
from ringfence.analysis.stages import stage_summary

__all__ = ["load_metrics", "metrics", "metrics_by_lane", "stage_summary"]
