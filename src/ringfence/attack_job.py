"""AttackJob: what an attack is asked to do. Its fields are the options of the command, so nothing heavy is here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from ringfence.settings import check_settings, count, setting


@final
@dataclass(frozen=True)
class AttackJob:
    """What is attacked, and how; None: as the run's config says, whose norm
    chooses the attack. trust: the model may run code that it names."""

    run: Path
    model: str | None = setting(None, "The run's model, where its folder does not name it fully.")
    weights: Path | None = setting(None, "Weights for the model: .safetensors, or a .pt of plain tensors.")
    trust: bool = setting(False, "Run the code of the model that the run's folder names (a factory, a .pt2).")
    data: str | None = setting(None, "The run's data, where it has moved.")
    lane: str | None = setting(None, "Which lane, for runs with several.")
    radii: tuple[float, ...] | None = setting(
        None, "Radii of the attack, by commas (default by sigma: 0.25,0.5,0.75,1 for 0.25 to 1).", above=0
    )
    attack: Literal["pgd", "ddn", "pgd-l1"] | None = setting(None, "pgd (default) or ddn for l2 radii, pgd-l1 for l1.")
    steps: int = setting(20, "Steps of the attack.", low=1)
    copies: int = setting(32, "Noise draws that stay fixed during the attack.", low=1)
    box: bool = setting(False, "Keep attacked inputs in [0,1] (a certificate does not).")
    n: int = count(1000, help="Draws of PREDICT at every attacked point.")
    recheck: int = count(100_000, help="Fresh draws of PREDICT where a certificate seems broken.")
    limit: int | None = setting(None, "At most so many inputs, after skipping.", low=1, high=2**53)
    batch: int = setting(64, "Inputs attacked at once.", low=1)
    device: str = setting("auto", "auto, cpu, cuda or cuda:N.")
    seed: int = setting(1, "Seed of the attack's noise and of the fresh draws.", low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.radii is not None:
            object.__setattr__(self, "radii", tuple(sorted(self.radii)))
