"""What an attack is about: a run's procedure, certification, model and inputs; and which attack is meant."""

from __future__ import annotations

from ringfence.attack_job import AttackJob
from ringfence.attacks.through_noise import ATTACKS, Attack, Ddn, Pgd, PgdL1
from ringfence.certification import Certification
from ringfence.data import Dataset
from ringfence.digests import difference
from ringfence.errors import ArgumentError, DataError, ModelError
from ringfence.models import LoadedModel, load_model
from ringfence.models.compose import with_weights
from ringfence.models.source import refuse_foreign_code, without_gradients
from ringfence.procedures import Procedure
from ringfence.store import RunFolder
from ringfence.store.claims import given_in, procedure_of


def attacked_procedure(run: RunFolder) -> Procedure:
    """The run's procedure; refused where the attack would not attack what was certified: it asks PREDICT, a vote."""
    test = procedure_of(run.config)
    if test is None or test.needs != ("votes",):
        raise ArgumentError(
            "run", "must certify the vote of one classifier", run.config.procedure.name, "Attack another."
        )
    return test


def moving_of(job: AttackJob) -> type[Pgd] | type[PgdL1] | type[Ddn]:
    """The attack that moves inputs; where none is named yet, that for l2."""
    return ATTACKS[job.attack or Pgd.name]


def chosen_attack(job: AttackJob, run: RunFolder) -> type[Attack]:
    """The attack in the norm of the run's radii: the one that was named, or the usual one there."""
    norm = given_in(run.config).mechanism.norm
    usual = next((one for one in ATTACKS.values() if one.norm == norm), None)
    chosen = ATTACKS[job.attack] if job.attack is not None else usual
    if usual is None or chosen is None:
        known = sorted({one.norm for one in ATTACKS.values()})
        rule = f"must have radii in {' or '.join(known)}, in which attacks move inputs"
        raise ArgumentError("run", rule, norm, "Attack another.")
    if chosen.norm != norm:
        rule = f"must move inputs in {norm}, the norm of the run's radii"
        raise ArgumentError("attack", rule, f"{chosen.name}, which moves them in {chosen.norm}", f"Use {usual.name}.")
    return chosen


def certification_of(job: AttackJob, run: RunFolder) -> Certification:
    """What the run certified, by the model and the data that the job names, where it names any; without trust, a run
    folder may start no foreign code."""
    tree = _tree(job, run)
    if without := without_gradients(tree):  # before trust is asked for, which would not help
        rule, remedy = "must have gradients, which an attack follows", "Attack the network that it was exported from."
        raise ModelError("model", rule, ", ".join(without), remedy)
    if not job.trust:
        remedy = "Look at that code; then give the model by `model` (or `members`), or set `trust`."
        refuse_foreign_code(tree, run.path, remedy)
    data = {} if job.data is None else {"data": {"source": job.data}}
    return Certification.of(run.config.with_entries({"classifier": {"tree": tree}, **data}))


def load_attacked(value: Certification, run: RunFolder) -> LoadedModel:
    """The classifier the run certified; any other is refused by its digest."""
    model, stored = load_model(value.classifier, **value.beside_tree), run.config.classifier.digest
    if stored and (changed := difference("the model", model.digest, stored)):
        rule, received = "must be the model the run certified", f"{model.spec} ({changed})"
        raise ModelError("model", rule, received, "Give its model and weights.")
    return model


def load_inputs(value: Certification, run: RunFolder) -> Dataset:
    """The inputs the run certified; any others are refused by their digest."""
    dataset, stored = value.data.load(), run.config.data.digest
    if stored and (changed := difference("the data", dataset.digest, stored)):
        rule, received = "must be the data the run certified", f"{dataset.name} ({changed})"
        raise DataError("data", rule, received, "Give the run's own data.")
    return dataset


def _tree(job: AttackJob, run: RunFolder) -> str:
    """The tree that was named, or the run's own; with other weights where those were named."""
    model = job.model or run.config.classifier.tree
    return model if job.weights is None else str(with_weights(model.partition("@")[0], job.weights))
