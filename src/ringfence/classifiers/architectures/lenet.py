"""LeNet-5, the small network of the embedded default."""

from __future__ import annotations

from torch import Tensor, nn


class LeNet(nn.Module):
    """LeNet-5 with rectified units and max pooling: (B, 1, 28, 28) -> scores (B, num_classes).

    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998.
    61,706 parameters at ten classes.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, num_classes) of images (B, 1, 28, 28)."""
        scores: Tensor = self.head(self.features(x))
        return scores
