"""Papers are named by the runs, trainings and attacks that rest on them, and spelled as they spell themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.procedures import Anytime, Fixed, Multinomial, Predict, Sequential, Staged, TwoSided
from ringfence.report.page import lane_facts, papers, references
from ringfence.report.reading import load
from ringfence.store import RunFolder
from ringfence.store.attack import AttackResult, write_attack

FakeRun = Callable[..., RunFolder]
PAPERS = Path(__file__).resolve().parents[3] / "shared" / "papers"
LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"
ALWAYS = {"Cohen", "Clopper"}


def cited(*paths: Path) -> dict[str, str]:
    """First author -> who used the paper; a second one of an author has a number."""
    found: dict[str, str] = {}
    for one in references(load(paths)):
        author = re.split(r"[ ,.]", one["text"])[0]
        found[author if author not in found else f"{author} 2"] = one["runs"]
    return found


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, {"Hung"}),
        ({"procedure": Predict()}, {"Hung"}),
        ({"procedure": TwoSided(n=500), "mechanisms": ("neyman_pearson", "renyi")}, {"Hung", "Cullen", "Li"}),
        ({"mechanisms": ("pixeldp",)}, {"Hung", "Lecuyer"}),
        ({"mechanisms": ("analytic_dp",)}, {"Hung", "Balle"}),
        ({"procedure": Multinomial(n=500)}, {"Hung", "Cullen"}),
        ({"procedure": Sequential(radius=0.3, n=2000)}, {"Hung", "Horváth", "Lan"}),
        ({"procedure": Staged(radius=0.3, stages=(300, 900))}, {"Hung", "Horváth", "Dunn"}),
        ({"procedure": Anytime(n=1000)}, {"Hung", "Dunn"}),
        ({"model": "soft(a, b)"}, {"Hung", "Horváth"}),
        ({"model": "max-margin(a, b)"}, {"Hung", "Horváth", "Yang"}),
        ({"model": "weighted(a, b, weights=1/2)"}, {"Hung", "Horváth", "Liu"}),
        ({"model": "soft(a, b)", "split_alpha": True}, {"Hung", "Horváth", "Dunn"}),
        ({"lanes": ("theta=0.10", "theta=0.90")}, {"Hung", "Horváth"}),
        ({"model": "patches(a, size=28, count=4)"}, {"Hung", "Joshi"}),
        ({"model": "clips(a, frames=8, count=3)"}, {"Hung", "Joshi"}),
        ({"model": "chunks(a, frames=8)"}, {"Hung"}),
    ],
)
def test_each_run_names_its_papers(fake_run: FakeRun, tmp_path: Path, settings: dict[str, Any], more: set[str]) -> None:
    fake_run(tmp_path / "a", 10, **settings)
    assert cited(tmp_path / "a").keys() == ALWAYS | more


def test_a_log_rests_on_little() -> None:
    assert cited(LOG) == {"Cohen": f"{LOG.name} (log)", "Clopper": f"{LOG.name} (log)"}


def test_max_margin_lanes_are_told_from_their_neighbours(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", 10, lanes=("soft-2", "max-margin-2"), model="lanes(a, b, votes=soft/max-margin)")
    material = load([tmp_path / "a"])
    (yang,) = [source for source in papers() if source.text.startswith("Yang, Li")]
    assert [bool(yang.of & lane_facts(lane)) for lane in material.lanes] == [False, True]


def test_users_are_named_with_their_settings(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", 10, Fixed(n=500), sigma=0.25)
    fake_run(tmp_path / "b", 10, Staged(radius=0.1, stages=(300, 900)))
    found = cited(tmp_path / "a", tmp_path / "b")
    assert found["Cohen"] == "a (fixed, sigma 0.25, alpha 0.001); b (staged, sigma 0.5, alpha 0.001)"
    assert found["Horváth"] == "b (staged, sigma 0.5, alpha 0.001)"


@pytest.mark.parametrize("layout", ["joint", "member-0", "."])
def test_trainings_and_studies_name_theirs(fake_run: FakeRun, tmp_path: Path, layout: str) -> None:
    fake_run(tmp_path / "a", 10)
    folder = tmp_path / "t" / layout
    folder.mkdir(parents=True)
    (folder / "log.csv").write_text("epoch,loss\n1,2\n")
    plan = {"plan": {"objective": {"name": "drt", "base": {"name": "smoothadv"}}}}
    (tmp_path / "t" / "config.json").write_text(json.dumps(plan))
    study = tmp_path / "v.json"
    study.write_text('{"zeta_p": 0.1, "sizes": []}')
    found = cited(tmp_path / "a", tmp_path / "t", study)
    assert found["Yang"] == found["Salman"] == "t (training)"
    assert found["Horváth"] == "v.json (variance model)"


@pytest.mark.parametrize("config", ["", "[]", '{"plan": 3}', '{"plan": {"objective": {"name": "drt"}}}'])
def test_trainings_are_shown_whatever_their_config_says(fake_run: FakeRun, tmp_path: Path, config: str) -> None:
    fake_run(tmp_path / "a", 10)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "log.csv").write_text("epoch,loss\n1,2\n")
    (tmp_path / "t" / "config.json").write_text(config)
    assert ("Yang" in cited(tmp_path / "a", tmp_path / "t")) is ("drt" in config)


def test_attacks_name_theirs(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", 10)
    settings = {"steps": 20, "copies": 32, "box": False, "n": 1000, "recheck": 100_000, "seed": 1}
    about = {"run": "a", "config_hash": run.config.digest, "lane": "main", "sigma": 0.5, "alpha": 0.001, "inputs": 10}
    found = AttackResult(attack="ddn", attacked=9, radii=(), certified=(), empirical=(), **settings, **about)
    write_attack(found, {}, tmp_path / "e")
    users = cited(run.path, tmp_path / "e")
    assert users["Salman"] == users["Rony"] == "a, ddn (20 steps)"


def plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", text.lower())


CITED_BY_NONE = ("Hung", "Lan and", "Waudby-Smith", "Maurer", "Rony", "Tramer")
LISTED = [source for source in papers() if not source.text.startswith(CITED_BY_NONE)]


@pytest.mark.skipif(not PAPERS.is_dir(), reason="needs the texts of the papers")
@pytest.mark.parametrize("source", LISTED, ids=lambda source: source.text.partition(".")[0][:30])
def test_titles_are_spelled_as_the_papers_spell_them(source: Any) -> None:
    title = source.text.split(". ", 1)[1].split(". ")[0]
    texts = [plain(path.read_text(encoding="utf-8")) for path in sorted(PAPERS.glob("*.txt"))]
    assert any(plain(title) in text for text in texts), title


def test_no_paper_is_listed_twice() -> None:
    assert len({source.text for source in papers()}) == len(papers())
