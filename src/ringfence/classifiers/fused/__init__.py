"""CIFAR ResNets as one CUDA kernel each."""

from ringfence.classifiers.fused.network import FusedResNet, fuse_resnets, has_resnets, why_not

__all__ = ["FusedResNet", "fuse_resnets", "has_resnets", "why_not"]
