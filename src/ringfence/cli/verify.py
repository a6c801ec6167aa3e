"""``ringfence verify``."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli import options as o
from ringfence.cli.console import friendly, print_json, say
from ringfence.errors import ArgumentError

if TYPE_CHECKING:
    from ringfence.contradictions import Disagreement

SHOWN = 20


def verify_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or signed certificates (FILE.json).")],
    partial: Annotated[
        bool, typer.Option("--partial", help="A run that is not whole is no disagreement: it has not ended yet.")
    ] = False,
    image: Annotated[Path | None, typer.Option(help="The input that a certificate must be about.")] = None,
    key: Annotated[Path | None, typer.Option(help="Public key that must have signed the certificate or seal.")] = None,
    as_json: o.Json = False,
) -> None:
    """Check every file and recompute every claim from the stored counts; exit code 1 if anything disagrees."""
    with friendly():
        if image is not None and (other := next((path for path in runs if path.is_dir()), None)):
            remedy = "Leave it out; ringfence info tells a run's inputs."
            raise ArgumentError("image", "is what a certificate is about, and no run", f"{other}, a folder", remedy)
        answers = [_certificate(path, image, key) if path.is_file() else _verified(path, partial, key) for path in runs]
        if as_json:
            print_json({"runs": answers})
        else:
            for answer in answers:
                _print(answer)
    if any(answer["disagreements"] for answer in answers):
        raise typer.Exit(1)


def _certificate(path: Path, image: Path | None, key: Path | None) -> dict[str, Any]:
    from ringfence.serve.certificates import certificate_wrong, public_key, read_document

    content = read_document(path)
    wrong = certificate_wrong(content, image, None if key is None else public_key(key))
    return {
        "certificate": str(path),
        "key_id": content.get("key_id"),
        "trusted": key is not None,
        "disagreements": wrong,
    }


def _verified(path: Path, partial: bool, key: Path | None) -> dict[str, Any]:
    from ringfence.contradictions import Disagreement
    from ringfence.store import RunFolder, StoreWarning
    from ringfence.store.manifest import SEAL
    from ringfence.verification import verify

    run = RunFolder.open(path)
    found = verify(run, partial)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)  # what is missing stands in the answer
        table = run.records(["input_id"])
    sealed_by, broken = seal_of(path, key)
    found += [Disagreement(None, "", told, SEAL, "a seal that fits") for told in broken]
    return {
        "run": str(path),
        "records": table.num_rows,
        "inputs": len(set(table["input_id"].to_pylist())),
        "expected_inputs": run.expected,
        "damaged": run.damaged,
        "sealed_by": sealed_by,
        "trusted": key is not None,
        "disagreements": [_described(one) for one in found],
    }


def _described(one: Disagreement) -> dict[str, Any]:
    """As JSON has it, with a sentence for readers."""
    content = {**asdict(one), "told": one.told}
    described: dict[str, Any] = json.loads(json.dumps(content, default=str), parse_constant=str)
    return described


def seal_of(path: Path, key: Path | None = None) -> tuple[Any, list[str]]:
    """Whose seal it has, and what is wrong with it; what seals need is not installed with everybody."""
    from ringfence.store.manifest import SEAL

    sealed = (path / SEAL).exists()
    if key is None and not sealed:
        return None, []
    from ringfence.serve.certificates import public_key, read_document, seal_wrong

    wrong = seal_wrong(path, None if key is None else public_key(key))
    return read_document(path / SEAL).get("key_id") if sealed else None, wrong


def _print(answer: dict[str, Any]) -> None:
    if "certificate" in answer:
        _print_certificate(answer)
    else:
        _print_run(answer)


def _print_certificate(answer: dict[str, Any]) -> None:
    wrong: list[str] = answer["disagreements"]
    verdict = f"in order, signed by {_by(answer['key_id'], answer)}"
    disagreements = f"{len(wrong)} disagreement{'s' * (len(wrong) != 1)}"
    say(f"{answer['certificate']}: {disagreements if wrong else verdict}")
    for told in wrong[:SHOWN]:
        say(f"  {told}")


def _print_run(answer: dict[str, Any]) -> None:
    from ringfence.contradictions import AS_WRITTEN
    from ringfence.store.manifest import SEAL

    seal = [one["what"] for one in answer["disagreements"] if one["stored"] == SEAL]
    wrong = [one for one in answer["disagreements"] if one["stored"] != SEAL]
    count = f"{answer['inputs']} of {answer['expected_inputs'] or '?'} inputs"
    if not answer["records"]:
        changed = any(one["recomputed"] == AS_WRITTEN for one in wrong)
        verdict = f"no record{' that is as it was written' if changed else ''}, so nothing was verified"
    elif [one["what"] for one in wrong] == ["inputs"]:
        verdict = "not finished: run its command again, or verify what is there with --partial"
    elif wrong:
        verdict = f"{len(wrong)} claims do not follow from their counts or their files"
    else:
        verdict = "every claim follows from its counts"
    if seal:
        verdict += "; but it has no seal that holds"
    elif answer["sealed_by"] is not None and not wrong:
        verdict += f"; sealed by {_by(answer['sealed_by'], answer)}"
    say(f"{answer['run']}: {answer['records']} records, {count}, {verdict}")
    for told in seal:
        say(f"  {told}")
    for one in wrong[:SHOWN]:
        say(f"  {one['told']}")
    if len(wrong) > SHOWN:
        say(f"  ... and {len(wrong) - SHOWN} more (--json shows all)")


def _by(key: Any, answer: dict[str, Any]) -> str:
    return f"key {key}, {'the one you named' if answer['trusted'] else 'which nobody vouched for'}"
