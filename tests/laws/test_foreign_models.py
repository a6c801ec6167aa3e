"""Laws of models that others made: whatever form was wanted, what runs is the model given, or a plainer form of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from foreign_models import saved_onnx, saved_vit, small_network
from torch import Tensor, nn

from ringfence.classifiers import Members
from ringfence.models import load_model
from ringfence.sampling import ForwardPlan
from ringfence.sampling.check import checked_forward

CPU = torch.device("cpu")
FORMS = (
    ForwardPlan(24, fold=True, channels_last=True),
    ForwardPlan(24, stacked=True),
    ForwardPlan(24, "bf16", fold=True),
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:torch"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    x = torch.rand(2, 3, 16, 16)
    for seed in (0, 1):
        network = small_network(seed=seed)
        saved_onnx(folder / f"{seed}.onnx", network)
        torch.jit.trace(network, x).save(str(folder / f"traced{seed}.pt"))
        shapes = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(network, (x,), dynamic_shapes=shapes), folder / f"{seed}.pt2")
    saved_vit(folder / "vit", classes=3)
    return folder


def noisy(rows: int, seed: int = 1) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.rand(rows, 3, 16, 16, generator=draws) + 0.25 * torch.randn(rows, 3, 16, 16, generator=draws)


@pytest.mark.parametrize("plan", FORMS, ids=lambda plan: f"{plan.precision}-{plan.fold}-{plan.stacked}")
@pytest.mark.parametrize(
    "tree",
    [
        "timm:test_resnet@random",
        "torchvision:resnet18@random",
        "hf:{}/vit",
        "onnx:{}/0.onnx",
        "{}/traced0.pt",
        "{}/0.pt2",
        "soft(onnx:{}/0.onnx, onnx:{}/1.onnx)",
        "soft({}/traced0.pt, {}/traced1.pt)",
        "soft({}/0.pt2, {}/1.pt2)",
        "soft(timm:test_resnet@random, hf:{}/vit)",
    ],
)
def test_prepared_forms_are_the_model_or_give_way(place: Path, tree: str, plan: ForwardPlan) -> None:
    module = load_model(tree.replace("{}", str(place)), num_classes=3).module
    found = checked_forward(module, plan, CPU, 3, noisy)
    rows = noisy(24, seed=2)
    plain = module.eval()(rows).detach().float()
    scores = found.forward(rows).scores[:, 0]
    precise = plan.precision == "fp32"
    torch.testing.assert_close(scores, plain, atol=1e-4 if precise else 0.1, rtol=1e-4 if precise else 0.1)
    # Every form that was not taken is named; what is left is one of the plan's own.
    assert found.forward.plan == replace(plan, **{one.partition(":")[0]: False for one in found.forward.plan.refused},
                                         refused=found.forward.plan.refused)  # fmt: skip


def test_members_of_one_class_and_shape_that_compute_differently_are_not_stacked(tmp_path: Path) -> None:
    """Two heads of 8 or four of 4: every weight has its shape, and stacked the second would run as the first."""
    saved_vit(tmp_path / "two")
    saved_vit(tmp_path / "four")
    config = tmp_path / "four" / "config.json"
    config.write_text(config.read_text().replace('"num_attention_heads": 2', '"num_attention_heads": 4'))
    models: list[nn.Module] = [load_model(f"hf:{tmp_path / name}").module for name in ("two", "four")]
    x = torch.rand(2, 3, 16, 16)
    assert not torch.allclose(models[0](x), models[1](x), atol=1e-5)
    assert not Members(models).stackable
    inner = [one.get_submodule("module") for one in models]  # without the resizing, which alone forbids it
    assert not Members(inner).stackable
    digests = {load_model(f"hf:{tmp_path / name}").digest for name in ("two", "four")}
    assert len(digests) == 2
