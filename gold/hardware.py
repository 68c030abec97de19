"""GPUs, links, regimes and models of `hardware.toml`, each with its source; a user's file adds to them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gold import published
from lake.errors import ContractBroken, nearest

SCOPES = ("node", "network")
CLASSES = (*published.CLASSES, "assumed")
_FILE = Path(__file__).with_name("hardware.toml")
_KINDS = ("gpu", "link", "regime", "model")
_NS = {"us": 1e3, "s": 1e9}
_RATES = {"GB/s": 1e9, "MB": 1e6, "x": 1.0}
_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class Gpu:
    """One GPU: dense peaks by number format, memory, and the link of its node."""

    name: str
    architecture: str
    node_link: str
    memory_bytes: float
    memory_bytes_per_second: float
    peak_flops: Mapping[str, float]
    utilisation_fraction: float
    utilisation_source: str
    regimes: tuple[str, ...]
    source: str
    url: str
    evidence_class: str


@dataclass(frozen=True)
class Link:
    """A link between GPUs of a node, or between nodes: what a GPU gets of it, in one direction."""

    name: str
    scope: str
    bytes_per_second: float
    achieved_fraction: float
    latency_ns: float
    source: str
    url: str
    evidence_class: str

    @property
    def achieved_bytes_per_second(self) -> float:
        """What a ring gets of the line rate."""
        return self.bytes_per_second * self.achieved_fraction


@dataclass(frozen=True)
class Copy:
    """One copy through a bounce buffer: `fixed_ns` and a rate."""

    fixed_ns: float
    bytes_per_second: float


@dataclass(frozen=True)
class Guard:
    """What a regime adds to the messages of one scope."""

    kept_fraction: float = 1.0
    operation_ns: float = 0.0
    copies: tuple[Copy, ...] = ()
    cipher_bytes_per_second: float | None = None
    is_hidden: bool = True
    # Whether messages go through the host instead of the link.
    is_through_host: bool = False


@dataclass(frozen=True)
class Regime:
    """What a regime costs; `constants` names the published numbers that it is made of, with their evidence."""

    name: str
    launch_ns: float
    host_bytes_per_second: float
    node: Guard
    network: Guard
    note: str
    reserved_bytes: float = 0.0
    attestation_ns: float = 0.0
    constants: tuple[str, ...] = ()
    # Slowdowns of whole training jobs that others have published for it: to lay beside a plan, never part of one.
    published_slowdowns: Mapping[str, float] = field(default_factory=dict)

    def guard(self, scope: str) -> Guard:
        """What is added to messages of a scope."""
        return self.node if scope == "node" else self.network


@dataclass(frozen=True)
class PublicModel:
    """A dense transformer whose sizes are public."""

    name: str
    parameters_count: int
    layers_count: int
    hidden_size: int
    heads_count: int
    sequence_length: int
    vocabulary_size: int
    source: str
    url: str
    evidence_class: str


@dataclass(frozen=True)
class Hardware:
    """All that is known, by name."""

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    links: Mapping[str, Link] = field(default_factory=dict)
    regimes: Mapping[str, Regime] = field(default_factory=dict)
    models: Mapping[str, PublicModel] = field(default_factory=dict)

    def gpu(self, name: str) -> Gpu:
        """The GPU of that name."""
        return _find("GPU", name, self.gpus)

    def link(self, name: str) -> Link:
        """The link of that name."""
        return _find("link", name, self.links)

    def regime(self, name: str) -> Regime:
        """The regime of that name."""
        return _find("regime", name, self.regimes)

    def model(self, name: str) -> PublicModel:
        """The model of that name."""
        return _find("model", name, self.models)


def read_hardware(data: bytes, base: Hardware | None = None, *, name: str = "hardware.toml") -> Hardware:
    """The entries of a file, over those of another: an entry of the same name is replaced."""
    try:
        document: dict[str, Any] = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ContractBroken(f"{name} is no TOML: {error}", "gold/hardware.toml shows its shape") from error
    unknown = document.keys() - {"version", *_KINDS}
    if unknown:
        raise ContractBroken(f"{name} says {min(unknown)!r}", nearest(min(unknown), _KINDS))
    found = base or Hardware()
    merged = Hardware(
        {**found.gpus, **_read_entries(document, "gpu", _read_gpu, name)},
        {**found.links, **_read_entries(document, "link", _read_link, name)},
        {**found.regimes, **_read_entries(document, "regime", _read_regime, name)},
        {**found.models, **_read_entries(document, "model", _read_model, name)},
    )
    for gpu in merged.gpus.values():
        _find(f"{name}: {gpu.name}: node link", gpu.node_link, merged.links)
        for regime in gpu.regimes:
            _find(f"{name}: {gpu.name}: regime", regime, merged.regimes)
    return merged


def find_gpu(name: str, known: Hardware) -> Gpu | None:
    """The GPU that a run's device name stands for, by the first part of ours: `NVIDIA H200` is h200-sxm."""
    words = name.lower().replace("-", " ").split()
    return next((gpu for gpu in known.gpus.values() if gpu.name.partition("-")[0] in words), None)


def _find(what: str, name: str, known: Mapping[str, _Entry]) -> _Entry:
    if name not in known:
        raise ContractBroken(f"no {what} {name[:80]!r}", nearest(name[:80], known))
    return known[name]


def _read_entries(document: Mapping[str, Any], kind: str, read: Any, name: str) -> dict[str, Any]:
    entries = document.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ContractBroken(f"{name}: {kind} is no list of tables", f"write [[{kind}]]")
    found = {}
    for place, entry in enumerate(entries):
        where = f"{name}: {kind} {entry.get('name', place)!r}"
        try:
            made = read(entry)
        except KeyError as error:
            raise ContractBroken(
                f"{where} does not say {error.args[0]!r}", "gold/hardware.toml shows its shape"
            ) from None
        except (TypeError, ValueError) as error:
            raise ContractBroken(f"{where}: {error}", "gold/hardware.toml shows its shape") from error
        found[made.name] = made
    return found


def _read_origin(entry: Mapping[str, Any]) -> dict[str, Any]:
    if entry["evidence_class"] not in CLASSES:
        raise ValueError(f"evidence_class is {entry['evidence_class']!r}, not one of {', '.join(CLASSES)}")
    return {key: str(entry[key]) for key in ("source", "url", "evidence_class")}


def _read_positive(entry: Mapping[str, Any], key: str) -> float:
    value = entry[key]
    if not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{key} is {value!r}, not a number above 0")
    return float(value)


def _read_gpu(entry: Mapping[str, Any]) -> Gpu:
    peaks = {dtype: _read_positive(entry["peak_flops"], dtype) for dtype in entry["peak_flops"]}
    numbers = ("memory_bytes", "memory_bytes_per_second", "utilisation_fraction")
    sizes: dict[str, Any] = {key: _read_positive(entry, key) for key in numbers}
    names: dict[str, Any] = {
        key: str(entry[key]) for key in ("name", "architecture", "node_link", "utilisation_source")
    }
    return Gpu(**names, **sizes, peak_flops=peaks, regimes=tuple(entry["regimes"]), **_read_origin(entry))


def _read_link(entry: Mapping[str, Any]) -> Link:
    if entry["scope"] not in SCOPES:
        raise ValueError(f"scope is {entry['scope']!r}, not one of {', '.join(SCOPES)}")
    rates = ("bytes_per_second", "achieved_fraction", "latency_ns")
    numbers: dict[str, Any] = {key: _read_positive(entry, key) for key in rates}
    return Link(str(entry["name"]), str(entry["scope"]), **numbers, **_read_origin(entry))


def _read_model(entry: Mapping[str, Any]) -> PublicModel:
    sizes = ("parameters_count", "layers_count", "hidden_size", "heads_count", "sequence_length", "vocabulary_size")
    counts: dict[str, Any] = {key: int(_read_positive(entry, key)) for key in sizes}
    return PublicModel(str(entry["name"]), **counts, **_read_origin(entry))


def _read_regime(entry: Mapping[str, Any]) -> Regime:
    used: list[str] = []
    numbers: dict[str, Any] = {
        key: _read_value(entry[key], used)
        for key in ("launch_ns", "host_bytes_per_second", "reserved_bytes", "attestation_ns")
        if key in entry or key in {"launch_ns", "host_bytes_per_second"}
    }
    guards: dict[str, Any] = {scope: _read_guard(entry.get(scope, {}), used) for scope in SCOPES}
    constants = tuple(dict.fromkeys(used))
    seen = {
        one: float(_find("published number", one, _PUBLISHED)["slowdown_ratio"]) for one in entry.get("training", ())
    }
    return Regime(
        str(entry["name"]), **numbers, **guards, note=str(entry["note"]), constants=constants, published_slowdowns=seen
    )


def _read_guard(entry: Mapping[str, Any], used: list[str]) -> Guard:
    numbers: dict[str, Any] = {
        key: _read_value(entry[key], used)
        for key in ("kept_fraction", "operation_ns", "cipher_bytes_per_second")
        if key in entry
    }
    copies = tuple(
        Copy(_read_value(copy["fixed_ns"], used), _read_value(copy["bytes_per_second"], used))
        for copy in entry.get("copies", ())
    )
    switches = {key: bool(entry[key]) for key in ("is_hidden", "is_through_host") if key in entry}
    return Guard(**numbers, copies=copies, **switches)


def _read_value(said: Any, used: list[str]) -> float:
    """A number, or the mean of published ones in our unit; `published_baseline` is what they saw without a TEE."""
    if isinstance(said, int | float):
        return float(said)
    for key, column in (("published", "value_number"), ("published_baseline", "baseline_number")):
        if key in said:
            rows = [_find("published number", one, _PUBLISHED) for one in said[key]]
            used.extend(f"{row['entry_id']} ({row['evidence_class']})" for row in rows)
            return sum(_convert(row, column) for row in rows) / len(rows)
    raise ValueError(f"{said!r} is neither a number nor {{ published = [ids] }}")


def _convert(row: Mapping[str, Any], column: str) -> float:
    scale = _NS.get(row["unit"]) or _RATES.get(row["unit"])
    if scale is None or row[column] is None:
        raise ValueError(f"{row['entry_id']} has no {column} in a unit that is known here")
    return float(row[column]) * scale


_PUBLISHED: dict[str, Mapping[str, Any]] = {row["entry_id"]: row for row in published.PUBLISHED.entries}
HARDWARE = read_hardware(_FILE.read_bytes())
