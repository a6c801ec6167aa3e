"""CIFAR ResNets as one CUDA kernel each."""

from ringfence.classifiers.fused.network import (
    FusedResNet,
    count_resnets,
    fuse_resnets,
    rows_at_a_time,
    whole_waves,
    why_not,
)

__all__ = ["FusedResNet", "count_resnets", "fuse_resnets", "rows_at_a_time", "whole_waves", "why_not"]
