"""Signed documents: an answer as a certificate, and the seal of a run folder (Ed25519, Bernstein et al. 2012).

A signature says who answered, the arithmetic says that the radius follows from the counts; that the counts are those
of the model is the signer's word.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from pydantic import ValidationError

from ringfence.errors import ArgumentError, StoreError
from ringfence.serve import extra
from ringfence.serve.claim import Wire
from ringfence.serve.inputs import read_input_file
from ringfence.serve.schemas import Answer
from ringfence.store import RunFolder
from ringfence.store.atomic import create_exclusively, json_bytes, read_file, write_atomically, writing_errors
from ringfence.store.manifest import MANIFEST, SEAL
from ringfence.verification import verify

with extra():
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
    )

CERTIFICATE, RUN_SEAL = "ringfence certificate 1", "ringfence seal 1"


class Certificate(Wire):
    """An answer, when it was signed, by which key; the signature covers all of it."""

    kind: str = CERTIFICATE
    answer: Answer
    shape: list[int]
    time: str
    key_id: str
    public_key: str
    signature: str


@final
class SigningKey:
    """A private key; its id is the beginning of the SHA-256 of its public half."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = key_id(self.public)

    @classmethod
    def make(cls, path: Path) -> SigningKey:
        """A new key, written to a file that only its owner reads, and its public half beside it as PATH.pub."""
        found = cls(Ed25519PrivateKey.generate())
        private = found._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with writing_errors(path):
            if path.exists():
                what = "a folder" if path.is_dir() else "a file"
                raise StoreError(path, "must not exist: a key is never replaced", what, "Choose another name.")
            create_exclusively(path, private, mode=0o600)
            public = found._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            write_atomically(path.with_name(path.name + ".pub"), public)
        return found

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """The key in a file."""
        found = _loaded(path, lambda content: load_pem_private_key(content, None), Ed25519PrivateKey, "keygen writes")
        assert isinstance(found, Ed25519PrivateKey)
        return cls(found)

    def signed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The document with time, key and signature."""
        told = {
            **content,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "key_id": self.id,
            "public_key": b64encode(self.public).decode(),
        }
        return {**told, "signature": b64encode(self._key.sign(canonical(told))).decode()}

    def certificate(self, answer: Answer, shape: tuple[int, ...]) -> Certificate:
        """The answer as a signed document."""
        content = {"kind": CERTIFICATE, "answer": answer.model_dump(mode="json"), "shape": list(shape)}
        return Certificate.model_validate(self.signed(content))


def key_id(public: bytes) -> str:
    """16 hexadecimal digits of a public key."""
    return sha256(public).hexdigest()[:16]


def public_key(path: Path) -> bytes:
    """The 32 bytes of the public key in a file."""
    found = _loaded(path, load_pem_public_key, Ed25519PublicKey, "keygen writes beside a key, KEY.pub")
    assert isinstance(found, Ed25519PublicKey)
    return found.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _loaded(path: Path, load: Any, kind: type, whose: str) -> object:
    try:
        found = load(read_file(path))
    except (ValueError, TypeError) as error:
        found = error
    if not isinstance(found, kind):
        half = "private" if kind is Ed25519PrivateKey else "public"
        rule = f"must hold a {half} Ed25519 key as PEM"
        raise StoreError(path, rule, "something else", f"Give the file that ringfence {whose}.")
    return found


def canonical(content: Mapping[str, Any]) -> bytes:
    """What is signed: the document without its signature, as JSON without spaces, keys sorted."""
    told = {name: entry for name, entry in content.items() if name != "signature"}
    return json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def signature_wrong(content: Mapping[str, Any], kind: str, trusted: bytes | None) -> list[str]:
    """What is wrong with a signed document; trusted: the only key that will do, else the one it names itself."""
    try:
        named = b64decode(content["public_key"], validate=True)
        signature = b64decode(content["signature"], validate=True)
        key = Ed25519PublicKey.from_public_bytes(named)
    except (KeyError, ValueError, TypeError) as error:
        return [f"signature: cannot be read ({type(error).__name__})"]
    found = [] if content.get("kind") == kind else [f"kind is {content.get('kind')!r:.40}, it should be {kind!r}"]
    if content.get("key_id") != key_id(named):
        found.append(f"key_id is {content.get('key_id')!r:.40}, that of its key is {key_id(named)}")
    if trusted is not None and named != trusted:
        found.append(f"signature: by the key {key_id(named)}, not by {key_id(trusted)}")
    try:
        key.verify(signature, canonical(content))
    except (InvalidSignature, ValueError):
        found.append("signature: does not fit what is signed")
    return found


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in a file; with an entry twice, another reader might see the one that nobody signed."""
    remedy = "Seal the run again." if path.name == SEAL else "Give a certificate, or the folder of a run."
    try:
        found = json.loads(read_file(path), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise StoreError(path, "must be JSON", error, remedy) from error
    if not isinstance(found, dict):
        raise StoreError(path, "must be a JSON object", type(found).__name__, remedy)
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an entry stands twice in one object")
    return found


def certificate_wrong(content: dict[str, Any], image: Path | None, trusted: bytes | None) -> list[str]:
    """What is wrong with a certificate: its signature, its arithmetic, and whether it is about this image."""
    try:
        certificate = Certificate.model_validate(content)
    except ValidationError as error:
        if isinstance(refused := content.get("error"), dict):
            return [
                f"certificate: is what a server answered to a request that it refused: {refused.get('rule')!r:.200}"
            ]
        if "answer" not in content:
            return ["certificate: this is another file; of a run name its folder"]
        first = error.errors()[0]
        return [f"certificate: {'.'.join(map(str, first['loc']))}: {first['msg']}"]
    x = None if image is None else read_input_file(image, tuple(certificate.shape))
    return [*signature_wrong(content, CERTIFICATE, trusted), *certificate.answer.wrong(x)]


def seal(run: RunFolder, key: SigningKey) -> Path:
    """Sign the manifest of a run that was found in order; it stands as seal.json beside it."""
    wrong = verify(run)
    if wrong:
        received = f"{len(wrong)} disagreements, first {wrong[0].what}"
        raise ArgumentError(run.path, "must verify before it is sealed", received, "See ringfence verify.")
    path = run.path / SEAL
    manifest = sha256(read_file(run.path / MANIFEST)).hexdigest()
    with writing_errors(path):
        write_atomically(path, json_bytes(key.signed({"kind": RUN_SEAL, "config": run.digest, "manifest": manifest})))
    return path


def seal_wrong(run: Path, trusted: bytes | None) -> list[str]:
    """What is wrong with a folder's seal; nothing where there is none and no key was named."""
    if not (run / SEAL).exists():
        return [] if trusted is None else ["seal: there is none; ringfence seal RUN --key KEY makes one"]
    content = read_document(run / SEAL)
    found = signature_wrong(content, RUN_SEAL, trusted)
    manifest = sha256(read_file(run / MANIFEST)).hexdigest()
    if content.get("manifest") != manifest:
        found.append("seal: is that of another manifest; the run was changed after it was sealed")
    return found
