"""The bundled recordings in silver, held against a recount in plain Python from the files themselves."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assets.build import bronze as landing
from assets.build import silver
from bronze.limits import Limits
from lake import engines
from lake.identity import MANIFEST
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from silver import clock_offsets, collectives, crossings, nonce_budgets, runs, spans, steps
from tests.silver.test_hostile_traces import beyond_declaration, beyond_laws
from tests.support.campaigns import is_soak, pick_engines

if TYPE_CHECKING:
    from lake.snapshot import Written
    from lake.tables import Table

SAMPLES = Path(__file__).parents[2] / "samples"
RANKS = 2
# A recording, and the regime that it is landed under: its own, or one that it does not keep.
RUNS = {
    "tee": ("resnet50-sealed-w2", "sw_per_hop_aesgcm"),
    "plain": ("resnet50-plain-w2", "cc_off"),
    "plain-as-sealed": ("resnet50-plain-w2", "sw_per_hop_aesgcm"),
    "plain-as-hopper": ("resnet50-plain-w2", "hopper_spt_cc"),
    "native-as-sealed": ("resnet50-native-w2", "sw_per_hop_aesgcm"),
}


def files_of(recording: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((SAMPLES / recording).glob("*.json.gz"))}


def land(root: Path, lake: Lake, run_id: str, files: dict[str, bytes], regime: str) -> None:
    """Land a recording under that regime."""
    directory = root / "landing" / run_id
    directory.mkdir(parents=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    (directory / MANIFEST).write_text(f'regime = "{regime}"\nworld_size = {RANKS}\n')
    landing.materialise(lake, LandingZone(Location.of(root / "landing")), run_id, Limits())


@dataclass(frozen=True)
class Conformed:
    """The runs in silver, and the keyring that they are sealed with."""

    lake: Lake
    keyring: KeyringFile
    written: dict[str, list[Written]]

    def rows(self, table: Table, run_id: str) -> list[dict[str, Any]]:
        """Rows of a run in the order of their key."""
        return self.lake.scan(table, [run_id]).sort(table.key).collect().to_dicts()

    def hooks(self, run_id: str) -> list[dict[str, Any]]:
        """The crossings of a hook."""
        return [row for row in self.rows(crossings.TABLE, run_id) if row["path"] == "hook"]

    def run(self, run_id: str) -> dict[str, Any]:
        """The row of a run."""
        (row,) = self.rows(runs.TABLE, run_id)
        return row


@pytest.fixture(scope="module")
def conformed_runs(tmp_path_factory: pytest.TempPathFactory) -> Conformed:
    """All runs, conformed by the first engine."""
    root = tmp_path_factory.mktemp("recordings")
    keyring = KeyringFile(root / "keyring.json", is_made_on_first_use=True)
    lake = Lake(Location.of(root / "lake"), keyring)
    written = {}
    for run_id, (recording, regime) in RUNS.items():
        land(root, lake, run_id, files_of(recording), regime)
        written[run_id] = silver.materialise(lake, run_id, engines.engine(engines.ENGINES[0]))
    return Conformed(lake, keyring, written)


# -- the recount --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A complete event as its file says it, in whole nanoseconds."""

    category: str
    name: str
    thread: tuple[str, str]
    start: int
    length: int

    def holds(self, other: Interval) -> bool:
        """Whether the other one is nested in it."""
        ends = other.start + other.length, self.start + self.length
        return self.thread == other.thread and self.start <= other.start and ends[0] <= ends[1]


def recount(data: bytes) -> list[Interval]:
    """Every complete event of a trace, by its digits."""
    document = json.loads(gzip.decompress(data), parse_float=Decimal)
    base = document.get("baseTimeNanoseconds", 0)
    return [
        Interval(
            event.get("cat", ""),
            event["name"],
            (str(event["pid"]), str(event["tid"])),
            base + int(Decimal(event["ts"]) * 1000),
            int(Decimal(event["dur"]) * 1000),
        )
        for event in document["traceEvents"]
        if event["ph"] == "X"
    ]


def kind_of(interval: Interval) -> str:
    """What the time went into, decided once more and in another way, for what these recordings hold."""
    name, category = interval.name, interval.category
    if category in {"kernel", "gpu_memcpy", "gpu_memset"}:
        return {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "memset"}[category]
    if category in {"cuda_runtime", "cuda_driver"}:
        if "Launch" in name or re.search("Mem(cpy|set).*Async", name):
            return "launch"
        return "sync" if "Synchronize" in name or "Memcpy" in name or "Memset" in name else "host"
    if category == "user_annotation":
        if re.match("tee::(seal|open)#", name):
            return "crypto"
        if name.startswith("tee::wait"):
            return "wait"
        return "transport" if re.match("tee::(send|recv|copy_out|copy_in)#|tee::keep|gloo:", name) else "annotation"
    return "annotation" if category in {"Trace", "cuda_sync", "gpu_user_annotation"} else "host"


@pytest.mark.parametrize("run_id", ["tee", "native-as-sealed"])
def test_spans_per_kind_are_those_of_a_recount(conformed_runs: Conformed, run_id: str) -> None:
    intervals = {each for data in files_of(RUNS[run_id][0]).values() for each in recount(data)}
    counted = Counter[str]()
    lasted = Counter[str]()
    for row in conformed_runs.rows(spans.TABLE, run_id):
        counted[row["kind"]] += 1 + row["duplicates_count"]
        lasted[row["kind"]] += row["duration_ns"]
    every = [each for data in files_of(RUNS[run_id][0]).values() for each in recount(data)]
    assert counted == Counter(kind_of(each) for each in every)
    assert len(every) == len(intervals), "no event repeats another, so that sums can be compared"
    expected = Counter[str]()
    for each in every:
        expected[kind_of(each)] += each.length
    assert lasted == expected


def test_what_a_hook_sealed_is_what_is_nested_in_it(conformed_runs: Conformed) -> None:
    expected = []
    for data in files_of("resnet50-sealed-w2").values():
        intervals = [each for each in recount(data) if each.category == "user_annotation"]
        parts = [each for each in intervals if re.match("tee::(seal|open|send)#", each.name)]
        for hook in intervals:
            if not hook.name.startswith("tee::all_reduce#"):
                continue
            inside = [(each.name.partition("#")[0], each.length) for each in parts if hook.holds(each)]
            answer = int(hook.name.partition("#")[2])
            sums = [sum(length for name, length in inside if name == f"tee::{what}") for what in ("seal", "open")]
            counts = Counter(name for name, _ in inside)
            expected.append((hook.start, answer, counts["tee::send"], counts["tee::seal"], *sums))
    columns = ("ts_ns", "buffer_bytes", "message_count", "sealed_message_count", "seal_ns", "open_ns")
    found = [tuple(row[name] for name in columns) for row in conformed_runs.hooks("tee")]
    assert sorted(found) == sorted(expected)
    assert len(found) > RANKS


# -- a run that keeps its promise ---------------------------------------------------------------------------------


def test_every_hop_of_a_tee_run_is_sealed_measured_and_counted_on_the_wire(conformed_runs: Conformed) -> None:
    hooks = conformed_runs.hooks("tee")
    assert hooks
    for row in hooks:
        assert row["message_count"] == row["sealed_message_count"] == 2 * (RANKS - 1)
        assert min(row["seal_ns"], row["open_ns"]) > 0
        assert row["payload_bytes"] == row["buffer_bytes"] * row["message_count"] // RANKS
        assert row["wire_bytes"] == row["payload_bytes"] + 28 * row["message_count"]
        assert (row["sealed_by"], row["seal_evidence"], row["size_evidence"]) == ("software_hook", *["measured"] * 2)
        assert row["seal_ns"] + row["open_ns"] <= row["duration_ns"]


def test_a_tee_run_has_no_violation_and_agrees_with_its_claim(conformed_runs: Conformed) -> None:
    run = conformed_runs.run("tee")
    assert (run["found_violations_count"], run["agreement"], run["contradictions"]) == (0, "agrees", None)
    assert run["found_sealed_message_count"] == sum(row["message_count"] for row in conformed_runs.hooks("tee"))
    assert [row["violation"] for row in conformed_runs.rows(crossings.TABLE, "tee") if row["violation"]] == []


def test_messages_under_a_key_are_counted_on_from_one_collective_to_the_next(conformed_runs: Conformed) -> None:
    for rank in range(RANKS):
        rows = sorted((row for row in conformed_runs.hooks("tee") if row["rank"] == rank), key=lambda row: row["ts_ns"])
        assert [row["key_message_count"] for row in rows] == [2 * place for place in range(1, len(rows) + 1)]
        (budget,) = (row for row in conformed_runs.rows(nonce_budgets.TABLE, "tee") if row["rank"] == rank)
        assert budget["sealed_message_count"] == rows[-1]["key_message_count"]


# -- runs that do not ---------------------------------------------------------------------------------------------


def test_a_plain_run_that_claims_sealed_hops_breaks_its_promise_with_every_bucket_of_every_rank(
    conformed_runs: Conformed,
) -> None:
    buckets = Counter(
        (int(each.name.partition("#")[2]), each.start)
        for data in files_of("resnet50-plain-w2").values()
        for each in recount(data)
        if each.category == "user_annotation" and each.name.startswith("tee::all_reduce#")
    )
    broken = [row for row in conformed_runs.rows(crossings.TABLE, "plain-as-sealed") if row["violation"]]
    assert Counter((row["buffer_bytes"], row["ts_ns"]) for row in broken) == buckets
    assert {row["rank"] for row in broken} == set(range(RANKS))
    assert {(row["path"], row["sealed_by"], row["sealed_message_count"]) for row in broken} == {("hook", "none", 0)}
    run = conformed_runs.run("plain-as-sealed")
    assert (run["agreement"], run["found_violations_count"]) == ("contradicted", len(broken))
    assert f"{len(broken)} crossings were not sealed" in run["contradictions"]


def test_the_same_plain_run_that_claims_nothing_breaks_nothing(conformed_runs: Conformed) -> None:
    run = conformed_runs.run("plain")
    assert (run["agreement"], run["found_violations_count"]) == ("agrees", 0)
    assert all(row["must_seal"] is False for row in conformed_runs.rows(crossings.TABLE, "plain"))


def test_pinned_copies_with_their_true_label_betray_a_run_that_claims_hopper_cc(conformed_runs: Conformed) -> None:
    pinned = [
        each
        for data in files_of("resnet50-plain-w2").values()
        for each in recount(data)
        if each.category == "gpu_memcpy" and re.search("HtoD.*Pinned|DtoH.*Pinned", each.name)
    ]
    assert pinned
    broken = [row for row in conformed_runs.rows(crossings.TABLE, "plain-as-hopper") if row["violation"]]
    labelled = [row for row in broken if row["path"] == "pinned"]
    assert sorted(row["ts_ns"] for row in labelled) == sorted(each.start for each in pinned)
    assert all("bears its true label" in row["violation"] for row in labelled)
    assert {row["path"] for row in broken} == {"pinned", "hook"}
    run = conformed_runs.run("plain-as-hopper")
    assert run["agreement"] == "contradicted"
    assert f"{len(pinned)} pinned copies bear their true label" in run["contradictions"]


def test_all_reduces_by_gloo_betray_a_run_that_claims_sealed_hops(conformed_runs: Conformed) -> None:
    reduced = [
        each
        for data in files_of("resnet50-native-w2").values()
        for each in recount(data)
        if each.category == "user_annotation" and re.match("gloo:all_?reduce", each.name)
    ]
    assert reduced
    broken = [row for row in conformed_runs.rows(crossings.TABLE, "native-as-sealed") if row["violation"]]
    assert sorted(row["ts_ns"] for row in broken) == sorted(each.start for each in reduced)
    assert {(row["path"], row["collective"]) for row in broken} == {("gloo", "all_reduce")}
    assert conformed_runs.run("native-as-sealed")["agreement"] == "contradicted"


# -- laws ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", RUNS)
def test_recordings_stay_within_declarations_and_laws(conformed_runs: Conformed, run_id: str) -> None:
    from bronze import source_files

    found = {table.full_name: conformed_runs.lake.scan(table, [run_id]).collect() for table in silver.TABLES}
    faults = [fault for table in silver.TABLES for fault in beyond_declaration(table, found[table.full_name])]
    assert faults + beyond_laws(found, conformed_runs.lake.scan(source_files.TABLE, [run_id]).collect()) == []


@pytest.mark.parametrize("run_id", RUNS)
def test_steps_and_clocks_of_recordings_are_plausible(conformed_runs: Conformed, run_id: str) -> None:
    marked = Counter(
        each.name
        for data in files_of(RUNS[run_id][0]).values()
        for each in recount(data)
        if each.category == "user_annotation" and each.name.startswith("ProfilerStep#")
    )
    found = conformed_runs.rows(steps.TABLE, run_id)
    assert Counter(f"ProfilerStep#{row['step_number']}" for row in found) == marked
    offsets = {row["rank"]: row for row in conformed_runs.rows(clock_offsets.TABLE, run_id)}
    assert offsets[0]["offset_ns"] == 0
    ranks = len(files_of(RUNS[run_id][0]))
    assert offsets.keys() == set(range(ranks))
    # All ranks ran on one machine: their clocks are one clock.
    for other in range(1, ranks):
        assert abs(offsets[other]["offset_ns"]) <= offsets[other]["uncertainty_ns"]
    assert {row["ranks_count"] for row in conformed_runs.rows(collectives.TABLE, run_id)} == {ranks}


# DuckDB plans silver in ten seconds, Spark in minutes, whatever is in it: what they make is held by their chains of all
# literal cases (tests/silver/conftest.py) and by a recorded pair on DuckDB (tests/assets/test_gold_freshness.py), of
# these recordings in the soak. The parameter is not called `engine`, which would have the recordings conformed once
# more in the process of each.
@pytest.mark.parametrize(
    ("run_id", "name"),
    [
        *(("tee", name) for name in (engines.ENGINES if is_soak() else pick_engines())),
        *(("plain-as-hopper", name) for name in pick_engines()),
    ],
)
def test_conforming_again_writes_nothing_whatever_the_engine(conformed_runs: Conformed, run_id: str, name: str) -> None:
    again = silver.materialise(conformed_runs.lake, run_id, engines.engine(name))
    first = {each.table: each.content_sha256 for each in conformed_runs.written[run_id]}
    assert {each.table: each.content_sha256 for each in again} == first
    assert not any(each.is_changed for each in again)
    versions = {
        each.table: conformed_runs.lake.snapshot(table).version
        for each, table in zip(again, silver.TABLES, strict=True)
    }
    assert {each.table: each.version for each in again} == versions


def test_the_order_and_the_names_in_which_files_land_do_not_matter(conformed_runs: Conformed, tmp_path: Path) -> None:
    lake = Lake(Location.of(tmp_path / "lake"), conformed_runs.keyring)
    recording, regime = RUNS["tee"]
    turned = {f"{'ba'[place]}-r{place}.json.gz": data for place, data in enumerate(files_of(recording).values())}
    assert list(turned) == ["b-r0.json.gz", "a-r1.json.gz"]
    land(tmp_path, lake, "tee", turned, regime)
    anew = silver.materialise(lake, "tee", engines.engine(engines.ENGINES[0]))
    assert [(each.table, each.content_sha256) for each in anew] == [
        (each.table, each.content_sha256) for each in conformed_runs.written["tee"]
    ]


def test_chunks_of_a_rank_give_the_rows_of_the_whole(
    conformed_runs: Conformed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(Location.of(tmp_path / "lake"), conformed_runs.keyring)
    recording, regime = RUNS["tee"]
    land(tmp_path, lake, "tee", files_of(recording), regime)
    monkeypatch.setattr("assets.build.chunking.CHUNK_EVENTS", 3_001)
    silver.materialise(lake, "tee", engines.engine(engines.ENGINES[0]))
    for table in silver.TABLES:
        one, other = (each.scan(table, ["tee"]).sort(table.key).collect() for each in (conformed_runs.lake, lake))
        assert one.equals(other), table.full_name
