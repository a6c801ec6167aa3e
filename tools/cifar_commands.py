"""The runs of reproduce/cifar10.yaml as the table makers name them.

All paths are relative to the work folder, where ``data`` leads to the data and ``tools`` to this folder: settings that
a run keeps name no machine. Names of runs are what tools/cifar_table.py reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RESNET56 = "resnet56-pad@data/weights/cifar10_resnet56.pt"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

ZOO, RUNS = Path("zoo/cifar10"), Path("runs")
DATA = ("--data", "cifar10:data")
NORMALISED = ("--mean", "0.4914,0.4822,0.4465", "--std", "0.2023,0.1994,0.2010")
"""Channel statistics of Cohen et al., which the papers' networks subtract and divide by."""
CLEAN = ("--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD)))
"""Those of the clean ResNet-56."""
KINDS = ("gaussian", "consistency")
MEMBERS = 10
RADII = ("0.25", "0.5", "0.75")
AGREE = 6
"""Members that must agree where K-consensus meets staged sampling (paper 000, table 5)."""
RHOS = (("0.1", "0.5"), ("0.2", "0.5"))
DRT_EPOCHS = 10
"""The paper fine-tunes for 150 epochs. A step of three members took nearly a tenth of a second on an H200, so that 150
would have taken most of an hour. The learning rate falls after each third, as in the paper."""
DENOISERS = (
    "cdncnn@data/weights/denoiser_cdncnn_color_sigma60to70_fp16.pt",
    "fdncnn-0.25@data/weights/denoiser_fdncnn_color_fp16.pt",
    "ffdnet-0.25@data/weights/denoiser_ffdnet_color_fp16.pt",
)
LITE0 = "efficientnet_lite0@data/weights/efficientnet_lite0_imagenet_fp16.pt"
CORE = "tools/cifar_core.py:resnet56"
LEARNED = "learned:"
"""Begins a word that stands for the weights in a file that ``ringfence weights --json`` printed."""


@dataclass(frozen=True)
class Command:
    """Words of the ``ringfence`` program, the files that all exist once it is done, and files that it needs before.

    printed: what it prints is its result, and goes into its one file.
    """

    name: str
    words: tuple[str, ...]
    done: tuple[Path, ...]
    needs: tuple[Path, ...] = ()
    printed: bool = False


def weights_of(training: str, members: int) -> tuple[Path, ...]:
    """Where the members of a training end up."""
    return tuple(ZOO / training / f"final-{i}.safetensors" for i in range(members))


def specs(training: str, members: int) -> str:
    """The first members of a training, as ``--members`` takes them."""
    return ",".join(f"zoo:cifar10/{training}:{i}" for i in range(members))


# Training -----------------------------------------------------------------------------------------------------


def training(sigmas: tuple[str, ...], tiny: bool = False) -> list[Command]:
    """Paper 000's recipe for ten ResNet-20 and one ResNet-110 of each kind; paper 001's DRT over three of them."""
    # Unlike the sources: Nesterov momentum, and batches that are not cut into parts for noise copies.
    small = (
        ("--nesterov", "--batch", "64", "--epochs", "1", "--limit", "128") if tiny else ("--nesterov", "--batch", "256")
    )
    fast = () if tiny else ("--precision", "bf16", "--graph")
    compiled = () if tiny else ("--compile",)

    def one(name: str, recipe: str, arch: str, members: int, *words: str, needs: tuple[Path, ...] = ()) -> Command:
        where = (*DATA, *NORMALISED, "--out", str(ZOO / name))
        said = ("train", "--recipe", recipe, "--arch", arch, "--members", str(members), *words, *fast, *where, *small)
        return Command(name, said, weights_of(name, members), needs)

    found: list[Command] = []
    side_by_side = ("--parallel", "1" if tiny else str(MEMBERS))
    for sigma in sigmas:
        recipes = {kind: f"horvath2022-cifar10-{kind}-{sigma}" for kind in KINDS}
        for kind, recipe in recipes.items():
            found.append(one(f"{kind}-{sigma}", recipe, "resnet20", MEMBERS, *compiled, *side_by_side))
        if sigma != "0.25":
            continue
        for kind, recipe in recipes.items():
            found.append(one(f"{kind}-resnet110-{sigma}", recipe, "resnet110", 1, *compiled))
        shortened = ("--epochs", str(DRT_EPOCHS), "--lr-every", str(-(-DRT_EPOCHS // 3)))
        for rho1, rho2 in RHOS:
            tuned = ("--init", str(ZOO / f"gaussian-{sigma}"), "--rho1", rho1, "--rho2", rho2, *shortened)
            recipe, needs = f"yang2022-cifar10-drt-{sigma}", weights_of(f"gaussian-{sigma}", 3)
            found.append(one(f"drt-{rho1}-{rho2}-{sigma}", recipe, "resnet20", 3, *tuned, needs=needs))
    if "1.0" not in sigmas:  # the mechanisms are compared at sigma 1, where one network is enough
        found.append(one("gaussian-one-1.0", "horvath2022-cifar10-gaussian-1.0", "resnet20", 1, *compiled))
    return found


# Certification --------------------------------------------------------------------------------------------------


def certification(sigmas: tuple[str, ...], tiny: bool = False) -> list[Command]:
    """Every run of results/cifar10, the papers' main tables first."""
    protocol = Protocol(tiny)
    found: list[Command] = []
    for sigma in sigmas:
        found += [one for kind in KINDS for one in protocol.lanes(kind, sigma)]
    if "0.25" in sigmas:
        found += protocol.adaptive() + protocol.deep() + protocol.drt() + protocol.aces()
    found.append(protocol.denoised())
    found.append(protocol.mechanisms("gaussian-1.0" if "1.0" in sigmas else "gaussian-one-1.0"))
    if "0.25" in sigmas:
        found += protocol.smooth_reduce()
    found.append(protocol.imagenet())
    return found


@dataclass(frozen=True)
class Protocol:
    """Papers 000 and 001: every 20th or 10th test image, n0 = 100, n = 100,000, alpha .001; tiny: one, few draws."""

    tiny: bool = False

    def inputs(self, skip: int) -> tuple[str, ...]:
        """Every so many-th test image, and how the network runs."""
        return (*DATA, "--skip", str(skip), *self.running)

    @property
    def running(self) -> tuple[str, ...]:
        """How the network runs: compiled on a GPU; tiny on whatever there is."""
        return ("--limit", "1") if self.tiny else ("--precision", "bf16", "--compile")

    @property
    def untuned(self) -> tuple[str, ...]:
        """Trying the kernels of denoisers and depthwise convolutions took longer than these runs would save."""
        return () if self.tiny else ("--no-autotune",)

    def fixed(self, n: int = 100_000) -> tuple[str, ...]:
        """Draws that choose the class, and draws that bound its probability."""
        return ("--n0", "10" if self.tiny else "100", *self.bounded(n))

    def bounded(self, n: int = 100_000) -> tuple[str, ...]:
        """Draws that bound probabilities."""
        return ("--n", "40" if self.tiny else str(n), "--alpha", "0.001")

    def run(self, name: str, *words: str, needs: tuple[Path, ...] = ()) -> Command:
        """A command that makes the run folder of this name."""
        return Command(name, (*words, "--out", str(RUNS / name)), (RUNS / name / "summary.json",), needs)

    def lanes(self, kind: str, sigma: str) -> list[Command]:
        """Weights of the members from noisy training images, then all prefixes, members, votes, K-consensus at once."""
        training, learned = f"{kind}-{sigma}", RUNS / f"{kind}-weights-{sigma}.json"
        needs = weights_of(training, MEMBERS)
        listed = ("--members", specs(training, MEMBERS), "--sigma", sigma)
        some = ("--draws", "2", "--limit", "20") if self.tiny else ()
        images = (*DATA, "--split", "train", "--skip", "100", *some)
        words = ("weights", *listed, *images, "--method", "gradient", "--json")
        votes = ("--vote", "soft,softmax,hard,max-margin,weighted", "--member-weights", f"{LEARNED}{learned}")
        every = (*votes, "--prefixes", "--singles", "--consensus", "2,3,5")
        certify = ("certify", *listed, *every, *self.inputs(20), *self.fixed())
        name = f"{kind}-lanes-{sigma}"
        return [
            Command(learned.stem, words, (learned,), needs, printed=True),
            self.run(name, *certify, needs=(*needs, learned)),
        ]

    def adaptive(self) -> list[Command]:
        """Ten consistency ResNet-20 at known radii: with K-consensus (paper 000, table 5) first, then without."""
        training = "consistency-0.25"
        found = []
        for end, agree in (("-consensus", ("--consensus", str(AGREE))), ("", ())):
            listed = ("--members", specs(training, MEMBERS), "--sigma", "0.25", *agree)
            found += self.known("consistency", end, *listed, needs=weights_of(training, MEMBERS))
        return found

    def known(self, name: str, end: str, *model: str, needs: tuple[Path, ...]) -> list[Command]:
        """Staged and sequential at every radius; tiny with as few draws as can prove the largest."""
        few = {"staged": ("--stages", "100,7000"), "sequential": ("--n", "8000")} if self.tiny else {}
        found = []
        for radius in RADII:
            for procedure in ("staged", "sequential"):
                asked = ("--procedure", procedure, "--radius", radius, "--alpha", "0.001")
                words = ("certify", *model, *asked, *few.get(procedure, ()), *self.inputs(20))
                found.append(self.run(f"{name}-{procedure}{end}-r{radius}", *words, needs=needs))
        return found

    def deep(self) -> list[Command]:
        """One ResNet-110 of each kind at known radii (paper 000, tables 4 and 18), then with fixed n."""
        found, fixed = [], []
        for kind in KINDS:
            training = f"{kind}-resnet110-0.25"
            model, needs = ("--model", specs(training, 1), "--sigma", "0.25"), weights_of(training, 1)
            found += self.known(f"{kind}-resnet110", "", *model, needs=needs)
            fixed.append(self.run(training, "certify", *model, *self.inputs(20), *self.fixed(), needs=needs))
        return found + fixed

    def drt(self) -> list[Command]:
        """Paper 001, tables 8 and 11, on every 10th image: DRT at both settings, and the three it starts from."""
        found = []
        trainings = [f"drt-{rho1}-{rho2}-0.25" for rho1, rho2 in RHOS]
        for name, training in ((trainings[0],) * 2, ("gaussian-three-0.25", "gaussian-0.25"), (trainings[1],) * 2):
            listed = ("--members", specs(training, 3), "--sigma", "0.25", "--vote", "softmax,max-margin", "--singles")
            words = ("certify", *listed, *self.inputs(10), *self.fixed())
            found.append(self.run(name, *words, needs=weights_of(training, 3)))
        return found

    def aces(self) -> list[Command]:
        """Paper 002, table 8: the clean ResNet-56 as core, a ResNet-20 of each kind as certification network."""
        found = []
        for kind in KINDS:
            parts = ("--certify", specs(f"{kind}-0.25", 1), "--core", CORE, "--sigma", "0.25")
            words = ("aces", "run", *parts, *self.inputs(20), *self.fixed())
            found.append(self.run(f"aces-{kind}-0.25", *words, needs=weights_of(f"{kind}-0.25", 1)))
        return found

    def denoised(self) -> Command:
        """Paper 000, table 6: three denoisers before the clean ResNet-56, each alone and together.

        n = 10,000: denoisers take about ten times the work of the classifier.
        """
        members = ",".join(f"denoised({denoiser}, {RESNET56})" for denoiser in DENOISERS)
        words = ("certify", "--members", members, "--sigma", "0.25", "--vote", "soft", "--singles", *CLEAN)
        return self.run("denoised-0.25", *words, *self.inputs(20), *self.untuned, *self.fixed(10_000))

    def mechanisms(self, training: str) -> Command:
        """Paper 004, table 2: every mechanism on sound multinomial bounds, sigma 1."""
        asked = ("--procedure", "multinomial", "--mechanism", "all")
        words = ("certify", "--model", specs(training, 1), "--sigma", "1.0", *asked)
        return self.run("mechanisms-1.0", *words, *self.inputs(20), *self.bounded(), needs=weights_of(training, 1))

    def smooth_reduce(self) -> list[Command]:
        """The sound modes with four patches, at the base's forwards; ``more`` has its draws, so four times as many."""
        model = ("--model", specs("consistency-0.25", 1), "--sigma", "0.25", "--strict")
        arms = {"base": (10_000, ""), "more": (10_000, "input")}
        arms |= {mode: (2_500, mode) for mode in ("input", "resized", "patch", "per-patch-input")}
        found = []
        for name, (n, mode) in arms.items():
            patches = ("--patches", "4", "--resize", "36", "--mode", mode) if mode else ()
            words = ("smooth-reduce", "certify", *model, *patches, *self.inputs(20), *self.fixed(n))
            found.append(self.run(f"smooth-reduce-{name}-0.25", *words, needs=weights_of("consistency-0.25", 1)))
        return found

    def imagenet(self) -> Command:
        """Once at ImageNet size, on 143 images: FFDNet, the cheapest of the denoisers, before EfficientNet-Lite0.

        n = 1,000: images are 49 times as large as CIFAR's.
        """
        words = ("certify", "--model", f"denoised({DENOISERS[-1]}, {LITE0})", "--sigma", "0.25")
        data = ("--data", "imagenet:data/imagenet_samples", *self.running, *self.untuned)
        return self.run("imagenet-0.25", *words, *data, *self.fixed(1_000))
