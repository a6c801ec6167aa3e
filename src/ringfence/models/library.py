"""Networks of other libraries by name, with the preprocessing they were trained behind: ``timm:`` and ``torchvision:``.

``timm:NAME`` has the library's own weights, ``timm:NAME@FILE`` those of a file, ``timm:NAME@random`` fresh ones of seed
0, for trying and timing. Resizing and normalising become part of the classifier, behind the noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, final

import torch
from torch import Tensor, nn

from ringfence.errors import ModelError, did_you_mean, first_line
from ringfence.models.architecture import Built, Preprocessing
from ringfence.models.extras import hub_asked_once, needed
from ringfence.models.registry import Source
from ringfence.models.weights import fit_weights, read_weights

RANDOM: Final = "random"


class Library(Source):
    """A source that also says what belongs in front of its networks."""

    trusted: ClassVar[bool] = True

    @abstractmethod
    def built(self, rest: str, num_classes: int | None) -> Built:
        """The network with its weights, its preprocessing and what identifies it."""

    def load(self, rest: str, num_classes: int | None) -> nn.Module:
        """The network alone."""
        return self.built(rest, num_classes).module


class _ByName(Library):
    """Networks that a name builds, with weights of the library, of a file, or none."""

    @abstractmethod
    def names(self) -> Iterable[str]:
        """Every network of the library."""

    @abstractmethod
    def known(self, name: str) -> bool:
        """Whether the library builds it."""

    @abstractmethod
    def trained(self, name: str, weights: str | None) -> tuple[nn.Module, Preprocessing]:
        """With the library's weights: the usual ones, or those of this name."""

    @abstractmethod
    def fresh(self, name: str, num_classes: dict[str, int]) -> tuple[nn.Module, Preprocessing]:
        """Without trained weights, and what its own weights would be trained behind."""

    def weights_named(self, name: str) -> Iterable[str]:
        """Names of weights that may follow an @."""
        return ()

    def built(self, rest: str, num_classes: int | None) -> Built:
        """The network that ``NAME[@weights]`` names."""
        name, _, weights = rest.partition("@")
        spec = f"{self.name}:{rest}"
        if not self.known(name):
            remedy = did_you_mean(name, self.names(), self.listing, most=3, written=lambda one: f"{self.name}:{one}")
            raise ModelError(spec, f"must name an image classifier of {self.name}", f"'{name}'", remedy)
        told = {} if num_classes is None else {"num_classes": num_classes}
        if weights == RANDOM:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                module, usual = self._tried(spec, lambda: self.fresh(name, told))
            return Built(module, num_classes, before=usual, structured=True)
        if not weights or weights in self.weights_named(name):
            module, usual = self._tried(spec, lambda: self.trained(name, weights or None), self._absent(name))
            self._same_classes(spec, module, num_classes)
            return Built(module, num_classes, before=usual, structured=True)
        if not Path(weights).is_file():
            listed = "".join(f", {one}" for one in self.weights_named(name))
            rule = f"is followed by the file of its weights, or one of {RANDOM}{listed}"
            raise ModelError(spec, rule, f"no file '{weights}'", "Check the path after the @.")
        state = read_weights(Path(weights)).state
        module, usual = self._tried(spec, lambda: self.fresh(name, told))
        if num_classes is None and (num_classes := _classes_in(state, module)) is not None:
            module, usual = self._tried(spec, lambda: self.fresh(name, {"num_classes": num_classes}))
        fitted = fit_weights(module, state, weights)
        return Built(module, num_classes, fitted, usual=usual, structured=True)

    listing: ClassVar[str]

    def _absent(self, name: str) -> str:
        return f"Fetch them where there is a network, or write {self.name}:{name}@FILE with weights of your own."

    def _tried(self, spec: str, make: Callable[[], Any], remedy: str = "Choose another network.") -> Any:
        try:
            return make()
        except Exception as error:  # names, versions, the network: libraries fail in their own ways
            received = first_line(error).rstrip(".")
            raise ModelError(spec, f"must be built by {self.name}, with its weights", received, remedy) from error

    def _same_classes(self, spec: str, module: nn.Module, num_classes: int | None) -> None:
        """A head of another size would be fresh, and a certificate about it one of a guess."""
        found = getattr(module, "num_classes", None) or num_classes
        if num_classes not in (None, found):
            rule, remedy = f"was trained on {found} classes", f"Give weights for {num_classes}: {spec}@FILE."
            raise ModelError("num_classes", f"{spec} {rule}", num_classes, remedy)


def _classes_in(state: Mapping[str, Tensor], module: nn.Module) -> int | None:
    """How many scores weights are for: the length of the last bias of the network, which is that of its last layer."""
    last = list(module.state_dict())[-1]
    return next((len(value) for key, value in state.items() if key.endswith(last) and value.dim() == 1), None)


@final
class Timm(_ByName):
    """``timm:resnet50.a1_in1k``: PyTorch image models."""

    name: ClassVar[str] = "timm"
    listing: ClassVar[str] = "timm.list_models() lists them."

    def names(self) -> Iterable[str]:
        """Architectures, and those with a tag of their weights."""
        return [*self._timm.list_models(), *self._timm.list_pretrained()]

    def known(self, name: str) -> bool:
        """By its architecture; a wrong tag is told by timm. Names of a hub would fetch what nobody has listed."""
        return bool(self._timm.is_model(name)) if name and ":" not in name else False

    def trained(self, name: str, weights: str | None) -> tuple[nn.Module, Preprocessing]:
        """From timm's cache or its hub."""
        with hub_asked_once(f"{self.name}:{name}"):
            return self._with_configuration(self._timm.create_model(name, pretrained=True), trained=True)

    def fresh(self, name: str, num_classes: dict[str, int]) -> tuple[nn.Module, Preprocessing]:
        """As timm initialises it."""
        return self._with_configuration(self._timm.create_model(name, pretrained=False, **num_classes), trained=False)

    @property
    def _timm(self) -> Any:
        return needed("timm", "timm", self.name)

    def _with_configuration(self, module: nn.Module, trained: bool) -> tuple[nn.Module, Preprocessing]:
        told: dict[str, Any] = module.pretrained_cfg  # type: ignore[assignment]
        # A network of a user's own weights has seen images of the user's own size, where it takes any.
        usual = tuple(told["input_size"][1:])
        size = usual if trained or told.get("fixed_input_size") else None
        return module, Preprocessing((told["mean"], told["std"]), size, str(told["interpolation"]), usual)


@final
class Torchvision(_ByName):
    """``torchvision:resnet50@IMAGENET1K_V1``: the classifiers of torchvision."""

    name: ClassVar[str] = "torchvision"
    listing: ClassVar[str] = "torchvision.models.list_models() lists them."

    def names(self) -> Iterable[str]:
        """Those of torchvision.models itself, which are classifiers."""
        return list(self._models.list_models(module=self._models))

    def known(self, name: str) -> bool:
        """By its name."""
        return name in self.names()

    def weights_named(self, name: str) -> Iterable[str]:
        """Members of its enumeration."""
        return [one.name for one in self._models.get_model_weights(name)]

    def trained(self, name: str, weights: str | None) -> tuple[nn.Module, Preprocessing]:
        """From torch's cache or torchvision's server; read as tensors alone."""
        chosen = self._models.get_model_weights(name)[weights or "DEFAULT"]
        state = chosen.get_state_dict(progress=False, check_hash=True, map_location="cpu", weights_only=True)
        module = self._models.get_model(name, weights=None, num_classes=len(chosen.meta["categories"]))
        module.load_state_dict(state)
        module.num_classes = len(chosen.meta["categories"])
        return module, self._preprocessing(chosen.transforms(), trained=True)

    def fresh(self, name: str, num_classes: dict[str, int]) -> tuple[nn.Module, Preprocessing]:
        """As torchvision initialises it."""
        module = self._models.get_model(name, weights=None, **num_classes)
        return module, self._preprocessing(self._models.get_model_weights(name).DEFAULT.transforms(), trained=False)

    @property
    def _models(self) -> Any:
        return needed("torchvision.models", "timm", self.name)

    def _preprocessing(self, told: Any, trained: bool) -> Preprocessing:
        size = (told.crop_size[0],) * 2
        return Preprocessing((told.mean, told.std), size if trained else None, told.interpolation.value, size)
