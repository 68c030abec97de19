"""Check a bundle that `teetotal evidence` made, without teetotal: Python and `cryptography`, nothing else.

    python -I check_evidence.py BUNDLE --trust KEYS [--since CHECKPOINT [--witnesses N]] [--landing DIRECTORY]
        [--show TABLE/PARTITION]

KEYS is a file of public keys that you got from somebody you believe, not from the bundle. Exit status 1: something is
wrong, and each line says what was expected and found.
"""

import argparse
import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_SOURCES = "bronze.source_files"
_MOST_STATEMENT_BYTES = 64 << 20


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def combine(parts: list[str]) -> str:
    """The digest of some texts in any order."""
    return digest("\n".join(sorted(parts)).encode())


def has_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 key has signed a message."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def compute_root(leaves: list[bytes]) -> bytes:
    """The root of the Merkle tree over some lines (RFC 9162, 2.1.1)."""
    level: list[tuple[int, bytes]] = []
    for leaf in leaves:
        level.append((1, hashlib.sha256(b"\x00" + leaf).digest()))
        while len(level) > 1 and level[-1][0] == level[-2][0]:
            (size, right), (_, left) = level.pop(), level.pop()
            level.append((2 * size, hashlib.sha256(b"\x01" + left + right).digest()))
    root = level.pop()[1] if level else hashlib.sha256().digest()
    while level:
        root = hashlib.sha256(b"\x01" + level.pop()[1] + root).digest()
    return root


def follow_path(leaf: bytes, place: int, size: int, proof: list[bytes]) -> bytes:
    """The root that an inclusion proof leads to (RFC 9162, 2.1.3.2); empty where it does not fit."""
    node, first, last = hashlib.sha256(b"\x00" + leaf).digest(), place, size - 1
    for part in proof:
        if last == 0:
            return b""
        if first % 2 or first == last:
            node = hashlib.sha256(b"\x01" + part + node).digest()
            while first and not first % 2:
                first, last = first // 2, last // 2
        else:
            node = hashlib.sha256(b"\x01" + node + part).digest()
        first, last = first // 2, last // 2
    return node if last == 0 else b""


def is_consistent(before: int, size: int, proof: list[bytes], old_root: bytes, root: bytes) -> bool:
    """Whether a proof shows that a tree begins with an older one (RFC 9162, 2.1.4.2)."""
    if before in {0, size}:
        return not proof and old_root == (root if before else hashlib.sha256().digest())
    if not 0 < before < size or not proof:
        return False
    first, *nodes = proof if before & (before - 1) else [old_root, *proof]
    old = new = first
    low, high = before - 1, size - 1
    while low % 2:
        low, high = low // 2, high // 2
    for node in nodes:
        if high == 0:
            return False
        if low % 2 or low == high:
            old = hashlib.sha256(b"\x01" + node + old).digest()
            new = hashlib.sha256(b"\x01" + node + new).digest()
            while low and not low % 2:
                low, high = low // 2, high // 2
        else:
            new = hashlib.sha256(b"\x01" + new + node).digest()
        low, high = low // 2, high // 2
    return high == 0 and old == old_root and new == root


class Keys:
    """The public keys that are believed, by the ids that statements and checkpoints name them by."""

    def __init__(self, text: str) -> None:
        self.raw: dict[str, bytes] = {}
        self.revoked: dict[str, int] = {}
        self.notes: dict[tuple[str, bytes], bytes] = {}
        self.witnesses: dict[tuple[str, bytes], bytes] = {}
        for line in text.splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            name, _, encoded = words[0].split("+", 2)
            typed = base64.b64decode(encoded)
            place = name, hashlib.sha256(name.encode() + b"\n" + typed).digest()[:4]
            if typed[:1] == b"\x04":  # a witness: it signs checkpoints that somebody else has signed, and nothing else
                if len(words) == 1:
                    self.witnesses[place] = typed[1:]
                continue
            key_id = hashlib.sha256(typed[1:]).hexdigest()[:16]
            self.raw[key_id] = typed[1:]
            self.notes[place] = typed[1:]
            if words[1:2] == ["revoked"]:
                self.revoked[key_id] = int(words[-1]) if words[-1].isdecimal() else 0

    def read_checkpoint(self, text: str) -> tuple[int, bytes]:
        """Size and root of a checkpoint that one of the keys has signed."""
        body, _, signatures = text.partition("\n\n")
        for line in signatures.splitlines():
            words = line.split(" ")
            mark = base64.b64decode(words[2]) if len(words) == 3 else b""
            key = self.notes.get((words[1], mark[:4])) if mark else None
            if key is not None and has_signed(key, f"{body}\n".encode(), mark[4:]):
                return int(body.split("\n")[1]), base64.b64decode(body.split("\n")[2])
        raise ValueError("no key that is believed has signed the checkpoint")

    def list_cosigners(self, text: str) -> list[str]:
        """The believed witnesses that have countersigned a checkpoint (C2SP tlog-cosignature)."""
        body, _, signatures = text.partition("\n\n")
        found = set()
        for line in signatures.splitlines():
            words = line.split(" ")
            mark = base64.b64decode(words[2]) if len(words) == 3 else b""
            key = self.witnesses.get((words[1], mark[:4])) if mark else None
            message = f"cosignature/v1\ntime {int.from_bytes(mark[4:12], 'big')}\n{body}\n".encode()
            if key is not None and has_signed(key, message, mark[12:]):
                found.add(words[1])
        return sorted(found)

    def read_statement(self, line: str, place: int) -> dict[str, Any]:
        """The statement in an envelope, whose signature holds."""
        envelope = json.loads(line)
        (signature,) = envelope["signatures"]
        payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
        framed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        key_id = signature["keyid"]
        if key_id not in self.raw:
            raise ValueError(f"statement {place} is signed by key {key_id}, which is not believed")
        if not has_signed(self.raw[key_id], framed, base64.b64decode(signature["sig"])):
            raise ValueError(f"statement {place} is not signed by key {key_id}: it was forged or changed")
        if key_id in self.revoked and place >= self.revoked[key_id]:
            raise ValueError(f"statement {place} is signed by key {key_id}, which was revoked")
        found: dict[str, Any] = json.loads(payload)
        return found


class Bundle:
    """The files of a bundle, a directory or a zip."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path) if path.is_file() else None
        self._path = path

    def read(self, name: str) -> bytes | None:
        """One file; none where it is not there."""
        try:
            return self._zip.read(name) if self._zip else (self._path / name).read_bytes()
        except (KeyError, FileNotFoundError):
            return None


class Checker:
    """Collects what is wrong."""

    def __init__(self, bundle: Bundle, keys: Keys) -> None:
        self.faults: list[str] = []
        self.said: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        # Partitions that were there, unsigned, when signing began: their rows.
        self.past: dict[str, str] = {}
        self.bundle, self.keys = bundle, keys
        self.evidence: dict[str, Any] = json.loads(bundle.read("evidence.json") or b"{}")
        log = bundle.read("log.jsonl")
        self.lines = None if log is None else log.splitlines()

    def hold(self, condition: bool, fault: str) -> None:
        """Note a fault unless a condition holds."""
        self.faults += [] if condition else [fault]

    def check_witnesses(self, since: str, least: int) -> None:
        """That enough witnesses have countersigned a checkpoint that somebody kept."""
        found = self.keys.list_cosigners(since)
        for name in found:
            sys.stdout.write(f"the kept checkpoint is countersigned by {name}\n")
        self.hold(len(found) >= least, f"{len(found)} believed witnesses countersigned the checkpoint, not {least}")

    def check_log(self, since: str | None) -> None:
        """The checkpoint, every statement in it, and that it continues a checkpoint that somebody kept."""
        size, root = self.keys.read_checkpoint(self.evidence["checkpoint"])
        if self.lines is not None:
            is_same = len(self.lines) == size and compute_root(self.lines) == root
            self.hold(is_same, f"log.jsonl is not the log of {size} statements that the checkpoint is of")
        if since is not None:
            before, old = self.keys.read_checkpoint(since)
            self.hold(before <= size, f"the log has {size} statements, the kept checkpoint {before}: it was put back")
            kept = self.evidence["since"] or {"size": size, "proof": []}
            proof = [base64.b64decode(part) for part in kept["proof"]]
            if self.lines is None:
                is_begun = kept["size"] == before and is_consistent(before, size, proof, old, root)
            else:
                is_begun = compute_root(self.lines[:before]) == old
            self.hold(is_begun, f"the first {before} statements are not shown to be those of the kept checkpoint")
        for one in self.evidence["statements"]:
            place, line = int(one["index"]), str(one["line"])
            proof = [base64.b64decode(part) for part in one["proof"]]
            is_in = 0 <= place < size and follow_path(line.encode(), place, size, proof) == root
            self.hold(is_in, f"statement {place} is not in the log that the checkpoint is of")
            self.take(place, line)
        for place, logged in enumerate(self.lines or ()):
            self.take(place, logged.decode())

    def take(self, place: int, line: str) -> None:
        """Take a statement in whose signature holds."""
        try:
            statement = self.keys.read_statement(line, place)
            if statement["predicate"]["buildDefinition"]["buildType"] == "urn:teetotal:inventory:v1" and place == 0:
                self.past = {one["name"]: one["digest"]["rowsSha256"] for one in statement["subject"]}
                return
            self.said.setdefault(statement["subject"][0]["name"], []).append((place, statement))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            self.hold(str(error) in self.faults, str(error))

    def find(self, name: str, rows: str | None = None) -> tuple[int, dict[str, Any]] | None:
        """The last statement of a partition, or the last that says that it has these rows."""
        table = name.partition("/")[0]
        said = [*self.said.get(name, ()), *(self.said.get(f"{table}/*", ()) if rows is None else ())]
        fitting = [one for one in said if rows is None or one[1]["subject"][0]["digest"]["rowsSha256"] == rows]
        return max(fitting, key=lambda one: one[0], default=None)

    def check_partitions(self) -> None:
        """That each partition is what was last said of it, and is made from what was said too."""
        run, held = self.evidence["run"], {one["name"]: one for one in self.evidence["partitions"]}
        waiting = []
        for name in sorted(held.keys() | {name for name in (*self.said, *self.past) if name.partition("/")[2] == run}):
            files = held.get(name, {"files": []})["files"]
            found, latest = combine([path.split("/", 3)[3] for path in files]), self.find(name)
            if latest is None:
                self.hold(self.past.get(name) == found, f"{name} has no statement, in a lake whose commits are signed")
                sys.stdout.write(f"unsigned: {name}\n")
                continue
            place, statement = latest
            expected = statement["subject"][0]["digest"]["rowsSha256"]
            older = self.find(name, found)
            what = f"those of statement {older[0]}, an older version" if older else "which nobody signed"
            self.hold(
                found == expected, f"{name}: expected rows {expected} of statement {place}, found {found}, {what}"
            )
            self.check_files(name, statement, files)
            waiting.append(statement)
        self.follow(waiting)

    def check_files(self, name: str, statement: dict[str, Any], files: list[str]) -> None:
        """That the data files in the bundle have the bytes that were signed."""
        signed = {one["name"]: one["digest"]["sha256"] for one in statement["subject"][1:]}
        for path in files:
            data = self.bundle.read(f"data/{path}")
            if data is None:
                has_data = name.partition(".")[0] in self.evidence["data"]
                self.hold(not has_data, f"{name}: data file {path} is not in the bundle")
            elif digest(data) != signed.get(path):
                self.faults.append(f"{name}: {path}: expected SHA-256 {signed.get(path)}, found {digest(data)}")

    def follow(self, waiting: list[dict[str, Any]]) -> None:
        """Follow the chain to statements of source files."""
        seen = set()
        while waiting:
            statement = waiting.pop()
            name = statement["subject"][0]["name"]
            for one in statement["predicate"]["buildDefinition"]["resolvedDependencies"]:
                rows = one["digest"].get("rowsSha256")
                link = (name, one["name"], rows)
                if rows is None or link in seen:
                    continue
                seen.add(link)
                upstream = self.find(one["name"], rows)
                if upstream is not None:
                    waiting.append(upstream[1])
                elif self.past.get(one["name"]) != rows and (one["name"] in self.said or self.lines is None):
                    self.faults.append(f"{name} was made from {one['name']} with rows {rows}, which nobody signed")
                else:
                    sys.stdout.write(f"unsigned: {one['name']}, which {name} was made from\n")

    def check_recording(self, text: bytes, landed: set[str]) -> None:
        """That a statement of the recorder is signed by the key that it names, and the files it names are there."""
        try:
            envelope = json.loads(text)
            statement = json.loads(base64.b64decode(envelope["payload"]))
            if statement["predicateType"] != "urn:teetotal:recording:v1":
                return
        except (ValueError, KeyError, TypeError):
            return
        raw, run = base64.b64decode(statement["predicate"]["publicKey"]), statement["predicate"]["runId"]
        key_id = digest(raw)[:16]
        nonce = digest(b"\n".join((b"teetotal recording key v1", run.encode(), raw)))
        own = Keys("")
        own.raw[envelope["signatures"][0]["keyid"]] = raw
        own.read_statement(text.decode(), 0)
        self.hold(run == self.evidence["run"], f"the recorder's statement was made for run {run}")
        for one in statement["subject"]:
            sha256 = one["digest"]["sha256"]
            self.hold(sha256 in landed, f"the recorder signed {one['name']} with SHA-256 {sha256}, which is not there")
        files = f"{len(statement['subject'])} files signed when they were recorded, by key {key_id}"
        sys.stdout.write(f"{files}; an attestation that names it has nonce {nonce}\n")

    def list_sources(self) -> list[str]:
        """The digests of the run's source files, as the statement of `bronze.source_files` lists them."""
        run = self.evidence["run"]
        latest = self.find(f"{_SOURCES}/{run}")
        if latest is None:
            self.faults.append(f"no statement lists the source files of {run}")
            return []
        materials = latest[1]["predicate"]["buildDefinition"]["resolvedDependencies"]
        whole = [one["digest"]["sha256"] for one in materials if one["name"] == f"landing/{run}"]
        each = [one["digest"]["sha256"] for one in materials if one["name"].startswith(f"landing/{run}/")]
        self.hold(whole == [combine(each)], f"{_SOURCES}/{run} does not list the files that it was made from")
        return each


def main() -> int:
    """Check a bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--trust", type=Path, required=True)
    parser.add_argument("--since", type=Path)
    parser.add_argument("--witnesses", type=int, default=0)
    parser.add_argument("--landing", type=Path)
    parser.add_argument("--show", metavar="TABLE/PARTITION")
    given = parser.parse_args()
    checker = Checker(Bundle(given.bundle), Keys(given.trust.read_text("utf-8")))
    try:
        since = given.since.read_text("utf-8") if given.since else None
        checker.check_log(since)
        checker.check_witnesses(since or "", given.witnesses)
        checker.check_partitions()
        sources = checker.list_sources()
        if given.landing:
            found = {digest(path.read_bytes()): path for path in given.landing.rglob("*") if path.is_file()}
            for sha256 in sorted(set(sources) - found.keys()):
                checker.faults.append(f"source file {sha256} is not in {given.landing}, or was changed")
            for sha256 in sorted(found.keys() & set(sources)):
                if found[sha256].stat().st_size <= _MOST_STATEMENT_BYTES:
                    checker.check_recording(found[sha256].read_bytes(), set(found))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        checker.faults.append(f"the bundle cannot be read: {error}")
        sources = []
    for fault in checker.faults:
        sys.stderr.write(f"{fault}\n")
    shown = checker.find(given.show) if given.show else None
    for one in shown[1]["predicate"]["buildDefinition"]["resolvedDependencies"] if shown else ():
        sys.stdout.write(f"{given.show} is made from {one['name']} {next(iter(one['digest'].values()))}\n")
    for sha256 in sources:
        sys.stdout.write(f"source file {sha256}\n")
    held = len(checker.evidence.get("partitions", ()))
    sys.stdout.write(f"{held} partitions, {len(sources)} source files: {len(checker.faults)} faults\n")
    return 1 if checker.faults else 0


if __name__ == "__main__":
    sys.exit(main())
