"""The example network for clips."""

from __future__ import annotations

import torch
from video_cnn import VideoCNN, motion_cnn, shapes_cnn


def test_networks_take_any_number_of_frames() -> None:
    for net, shape in ((shapes_cnn(3), (3, 64, 64)), (motion_cnn(8), (1, 32, 32)), (VideoCNN(4, 2, 4), (2, 16, 20))):
        net.eval()
        for frames in (2, 8, 16):
            assert net(torch.rand(2, frames, *shape)).shape == (2, net.linear.out_features)
