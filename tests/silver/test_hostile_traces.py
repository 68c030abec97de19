"""Traces made to mislead: silver stays within its declarations, engines agree, and nothing is lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from assets.build import silver
from lake import engines
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from silver import collectives, crossings, rejects, rule_counts, runs, spans, steps
from tests.conftest import LandFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake.tables import Table

RUN = "run-1"
MOST, LEAST = (1 << 63) - 1, -(1 << 63)
LONGEST_US = (1 << 53) / 1000
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEALED_TWICE = ("tee::encrypt", "tee::sendrecv", "tee::decrypt") * 2


def span(category: str | None, name: str, start: float, length: float = 1, **more: Any) -> dict[str, Any]:
    """A complete event, its times in microseconds; what is none of an event's own keys is an argument."""
    keys: dict[str, Any] = {key: more.pop(key) for key in ("pid", "tid") if key in more}
    event: dict[str, Any] = {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": length, **keys}
    told: dict[str, Any] = {} if category is None else {"cat": category}
    return event | told | {"args": {key.replace("_", " "): value for key, value in more.items()}}


def note(name: str, start: float, length: float = 1, **more: Any) -> dict[str, Any]:
    """An annotation."""
    return span("user_annotation", name, start, length, **more)


def trace(*events: dict[str, Any], rank: int | None = 0, world_size: int = 2) -> bytes:
    """A trace of these events."""
    told: dict[str, Any] = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world_size}}
    return json.dumps({**told, "traceEvents": events}).encode()


def hook(start: float, *names: str, length: float = 90, **more: Any) -> list[dict[str, Any]]:
    """A hook of a thousand bytes, and what it holds, one after another."""
    inside = [note(name, start + 10 * place, 5, **more) for place, name in enumerate(names, 1)]
    return [note("tee::all_reduce#1000", start, length, **more), *inside]


NAMES = (
    "",
    "new\nline",
    "quo\"te'd",
    "nul\0inside",
    "x" * 100_000,
    "ünïcödé 🧪 \u202eright to left",
    "half a pair \ud800",
    "'; DROP TABLE spans; --",
    "$1 ? {} %s \\",
    "ProfilerStep#999999999999",
    "ProfilerStep#5\n",
    "ProfilerStep#-1",
    "ProfilerStep#٣",
    "tee::all_reduce#99999999999999999",
    "tee::all_reduce#12\n",
    "tee::all_reduce#",
    "tee::ALL#5",
)
CATEGORIES = ("Überkernel", "kernel\0", " kernel", "KERNEL", "GPU_memcpy", "ﬀ", "ς", "", "'; DROP TABLE spans; --")
SW, CC, OFF = (
    f'regime = "{regime}"\n{more}'
    for regime, more in (("sw_per_hop_aesgcm", ""), ("hopper_spt_cc", 'cc_mode = "on"\n'), ("cc_off", ""))
)
CORRELATIONS = (0, 0, -1, LEAST, MOST, MOST + 1, 1 << 70, 1.5, "7", None)
SIZES = [(0, 5), (-1, 5), (1 << 62, 5), (2, -5), (2, 1 << 62), (1 << 17, 1 << 40), (2, (1 << 40) + 1), ("2", "3")]
CASES: dict[str, tuple[str, dict[str, bytes]]] = {
    "no events, or none that is an interval": (
        OFF,
        {"a.json": trace(), "b.json": trace({"ph": "M", "name": "process_name", "args": {"name": "x"}}, rank=1)},
    ),
    "no files at all": (SW, {}),
    "names that are no names": (OFF, {"a.json": trace(*(note(name, 1 + place) for place, name in enumerate(NAMES)))}),
    "categories that nobody knows": (
        OFF,
        {
            "a.json": trace(
                span(None, "none", 1), *(span(each, "name", 2 + place) for place, each in enumerate(CATEGORIES))
            )
        },
    ),
    "correlations of every size, and twice": (
        OFF,
        {
            "a.json": trace(
                *(span("kernel", "k", 50 + place, correlation=each) for place, each in enumerate(CORRELATIONS)),
                *(
                    span("cuda_runtime", "cudaLaunchKernel", 9 + place, correlation=each)
                    for place, each in enumerate(CORRELATIONS)
                ),
            )
        },
    ),
    "groups and messages that cannot be": (
        SW,
        {
            "a.json": trace(
                *(
                    span("kernel", REDUCE, 1 + place, Group_size=group, In_msg_nelems=count, dtype="ComplexDouble")
                    for place, (group, count) in enumerate(SIZES)
                ),
                note("tee::all_reduce#9999999999999", 100, 5),
                world_size=(1 << 31) - 1,
            )
        },
    ),
    "copies of sizes that cannot be": (
        CC,
        {
            "a.json": trace(
                *(
                    span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1 + place, bytes=count)
                    for place, count in enumerate((0, -1, LEAST, 1 << 62, None, "many", 1.5))
                )
            )
        },
    ),
    "times at the limits, ranks far apart": (
        SW,
        {
            "a.json": trace(
                span("kernel", REDUCE, 0.001, 0),
                span("kernel", "k", 1, LONGEST_US),
                span("kernel", REDUCE, 4.6e15, LONGEST_US),
                span("kernel", "k", 4.6e15, LONGEST_US),
                note("ProfilerStep#999999999", 0.001, LONGEST_US),
                span("kernel", "too late", 9e15, 1),
            ),
            "b.json": trace(span("kernel", REDUCE, 4.6e15, 0), span("kernel", REDUCE, 0.001, 0), rank=70_000),
        },
    ),
    "steps that overlap, on several threads": (
        OFF,
        {
            "a.json": trace(
                note("ProfilerStep#1", 1, 100),
                note("ProfilerStep#2", 50, 100),
                note("ProfilerStep#2", 50, 10, tid=2),
                note("ProfilerStep#1", 1, 100, tid=3),
                note("ProfilerStep#3", 60, 0),
                *(span("kernel", "k", at, 1) for at in (0.5, 1, 55, 60, 60.5, 149.999, 150)),
            )
        },
    ),
    "one rank twice, and worlds that differ": (
        f"{SW}world_size = 3\nwarmup_steps_count = 99\n",
        {
            "a.json": trace(*hook(1, *SEALED_TWICE), note("ProfilerStep#1", 1, 99), world_size=4),
            "b.json": trace(*hook(1, *SEALED_TWICE), note("ProfilerStep#1", 1, 98), world_size=1),
            "c.json": trace(*hook(3, "tee::sendrecv"), rank=None),
        },
    ),
    "hooks within hooks, without a thread, without an end": (
        SW,
        {
            "a.json": trace(
                *hook(1, *SEALED_TWICE), *hook(15, *SEALED_TWICE), *hook(40, "tee::encrypt"), *hook(500, length=0)
            ),
            "b.json": trace(
                *({**event, "tid": None} for event in hook(1, *SEALED_TWICE)), *hook(1, *SEALED_TWICE), rank=1
            ),
        },
    ),
}


@dataclass(frozen=True)
class Conformed:
    """A run in silver, as every engine made it."""

    lake: Lake
    tables: Mapping[str, dict[str, pl.DataFrame]]

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Rows of a table, by their key."""
        first = self.tables[engines.LOCAL_ENGINES[0]]
        return first[table.full_name].sort(table.key).to_dicts()


def beyond_declaration(table: Table, rows: pl.DataFrame) -> list[str]:
    """Every way in which rows are not what their table's declaration says."""
    is_twice = rows.select({"run_id", *table.key}).is_duplicated().any()
    faults = [f"{table.full_name}: a key occurs twice"] if is_twice else []
    for column in table.columns:
        values = rows[column.name]
        if values.null_count() and not column.nullable:
            faults.append(f"{table.full_name}.{column.name}: null")
        values = values.drop_nulls()
        if column.minimum is not None:
            faults += [f"{table.full_name}.{column.name}: {value}" for value in values if value < column.minimum]
        if column.maximum is not None:
            faults += [f"{table.full_name}.{column.name}: {value}" for value in values if value > column.maximum]
        if column.one_of:
            faults += [f"{table.full_name}.{column.name}: {value}" for value in values if value not in column.one_of]
    return faults


def beyond_laws(found: Mapping[str, pl.DataFrame], sources: pl.DataFrame) -> list[str]:
    """Every law that a run's tables break: nothing lost, nothing exposed for longer than it lasted."""
    counts = found[rule_counts.TABLE.full_name].filter(pl.col("effect") != "flagged")
    settled = Counter[str]()
    for source, count in counts.select("source_sha256", "events_count").iter_rows():
        settled[source] += count
    landed = {row["source_sha256"]: row["events_count"] for row in sources.to_dicts() if row["outcome"] == "kept"}
    faults = [
        f"{source[:8]}: {count} landed, {settled[source]} settled"
        for source, count in landed.items()
        if settled[source] != count
    ]
    longer = found[crossings.TABLE.full_name].filter(pl.col("exposed_ns") > pl.col("duration_ns"))
    faults += [f"crossing {row['ordinal']} is exposed for longer than it lasts" for row in longer.to_dicts()]
    met = found[collectives.TABLE.full_name].group_by("match_id").agg(pl.len(), ranks=pl.col("rank").n_unique())
    faults += [
        f"collective {row['match_id']}: {row['len']} rows of {row['ranks']} ranks"
        for row in met.filter(pl.col("len") != pl.col("ranks")).to_dicts()
    ]
    return faults


def conformed(land_files: LandFiles, manifest: str, files: Mapping[str, bytes]) -> Conformed:
    """Land files and conform them with every engine; hold each to declarations and laws, and all to each other."""
    landed = land_files(files, RUN, manifest)
    tables = {}
    digests = {}
    for name in engines.LOCAL_ENGINES:
        written = silver.materialise(land_files.lake, RUN, engines.engine(name))
        digests[name] = {each.table: each.content_sha256 for each in written}
        tables[name] = {table.full_name: land_files.lake.scan(table, [RUN]).collect() for table in silver.TABLES}
        faults = [
            fault for table in silver.TABLES for fault in beyond_declaration(table, tables[name][table.full_name])
        ]
        assert faults + beyond_laws(tables[name], landed.files) == [], name
    first, *others = digests.values()
    assert all(other == first for other in others)
    return Conformed(land_files.lake, tables)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Conformed]:
    """Conforms one of the cases, once."""

    @cache
    def made(name: str) -> Conformed:
        root = tmp_path_factory.mktemp("case")
        lake = Lake(Location.of(root / "lake"), KeyringFile(root / "keyring.json", is_made_on_first_use=True))
        return conformed(LandFiles(lake, LandingZone(Location.of(root / "landing"))), *CASES[name])

    return made


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_trace_is_conformed_within_declarations_and_alike_by_all_engines(
    case: Callable[[str], Conformed], name: str
) -> None:
    found = case(name)
    (run,) = found.rows(runs.TABLE)
    assert run["found_spans_count"] == len(found.rows(spans.TABLE))
    assert len(found.rows(steps.TABLE)) == run["found_steps_count"]


# -- one decision at a time ---------------------------------------------------------------------------------------


def test_numbers_that_are_too_large_to_be_steps_or_sizes_are_neither(case: Callable[[str], Conformed]) -> None:
    found = case("names that are no names")
    assert [row["step_source"] for row in found.rows(steps.TABLE)] == ["inferred"]
    assert found.rows(collectives.TABLE) == []
    kept = {row["ordinal"]: row["name"] for row in found.rows(spans.TABLE)}
    assert all(name is None or name.startswith("tee::") for name in kept.values())


def test_a_kernel_is_launched_by_the_call_of_its_correlation_whatever_that_is(case: Callable[[str], Conformed]) -> None:
    found = case("correlations of every size, and twice")
    kernels = [row for row in found.rows(spans.TABLE) if row["is_gpu"]]
    assert [row["is_orphan"] for row in kernels] == [row["correlation_id"] is None for row in kernels]
    assert [row["launch_ts_ns"] for row in kernels if row["correlation_id"] == 0] == [9_000, 9_000]


def test_what_a_message_cannot_be_is_not_known_rather_than_wrong(case: Callable[[str], Conformed]) -> None:
    found = case("groups and messages that cannot be")
    sizes = [(row["group_size"], row["buffer_bytes"]) for row in found.rows(collectives.TABLE)]
    most = 1 << 17, (1 << 40) * 16
    assert sizes[:7] == [(None, 80), (None, 80), (None, 80), (2, None), (2, None), most, (2, None)]


def test_a_span_belongs_to_the_step_that_began_last_and_has_not_ended(case: Callable[[str], Conformed]) -> None:
    found = case("steps that overlap, on several threads")
    numbers = [row["step_number"] for row in found.rows(steps.TABLE)]
    assert numbers == list(range(5)), "numbers that repeat are replaced by places"
    kernels = [row["step_number"] for row in found.rows(spans.TABLE) if row["is_gpu"]]
    assert (kernels[0], kernels[-1]) == (None, None)
    assert None not in kernels[1:3]


def test_a_rank_with_two_traces_keeps_the_steps_and_hooks_of_both(case: Callable[[str], Conformed]) -> None:
    found = case("one rank twice, and worlds that differ")
    assert [(row["rank"], row["step_number"]) for row in found.rows(steps.TABLE)] == [(0, 0), (0, 1), (1, 0)]
    (run,) = found.rows(runs.TABLE)
    assert "more than one trace of rank 0" in run["conflicts"]
    assert "the traces differ (1, 4)" in run["conflicts"]


def test_refused_events_and_files_keep_their_places(land_files: LandFiles) -> None:
    files = {
        "a.json": trace(span("kernel", "k", 1, -1), span("kernel", "k", 1, 1)),
        "b.txt": b"no trace",
        "c.txt": b"none either",
        "d.json": b'{"traceEvents": [{"ph": "X", oops}, {"ph": "X", "name": "k", "ts": 1, "dur": 1}]}',
    }
    found = conformed(land_files, OFF, files)
    sources = {row["source_sha256"]: row["file_name"] for row in land_files.read(RUN).files.to_dicts()}
    refused = [
        (row["level"], sources[row["source_sha256"]], row["ordinal"], row["offset_bytes"])
        for row in found.rows(rejects.TABLE)
    ]
    assert sorted(refused) == [
        ("byte_range", "d.json", 0, files["d.json"].index(b'{"ph"')),
        ("event", "a.json", 0, files["a.json"].index(b'{"ph"')),
        ("file", "b.txt", 0, 0),
        ("file", "c.txt", 0, 0),
    ]


# -- faults that were found here ----------------------------------------------------------------------------------


def test_a_sealed_copy_of_the_largest_size_does_not_overflow_on_the_wire(land_files: LandFiles) -> None:
    copy = span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1, bytes=MOST)
    conformed(land_files, CC, {"a.json": trace(copy)})


def test_seals_that_last_for_ever_do_not_overflow_their_sum(land_files: LandFiles) -> None:
    seals = [note("tee::encrypt", 2 + place, LONGEST_US) for place in range(1025)]
    conformed(land_files, SW, {"a.json": trace(note("tee::all_reduce#1000", 1, 5000), *seals)})


def test_a_category_with_a_dotted_capital_i_means_the_same_to_all_engines(land_files: LandFiles) -> None:
    conformed(land_files, OFF, {"a.json": trace(span("DR\u0130VER", "cuLaunchKernel", 1))})


def test_a_collective_with_a_dotted_capital_i_means_the_same_to_all_engines(land_files: LandFiles) -> None:
    kernel = span("kernel", REDUCE, 1, Collective_name="D\u0130SPATCH")
    conformed(land_files, OFF, {"a.json": trace(kernel)})


@pytest.mark.parametrize(
    "ids",
    [
        ({"Comms_Id": "a", "Process_Group_Name": "b/c"}, {"Comms_Id": "a/b", "Process_Group_Name": "c"}),
        ({"Process_Group_Name": "-", "Seq": 1}, {"Seq": 1}),
    ],
    ids=["a slash", "a dash"],
)
def test_two_collectives_of_a_rank_are_never_matched_as_one(
    land_files: LandFiles, ids: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    kernels = [
        span("kernel", REDUCE, 1 + 5 * place, Collective_name="allreduce", **named) for place, named in enumerate(ids)
    ]
    conformed(land_files, OFF, {"a.json": trace(*kernels)})


def test_a_kernel_on_the_stream_of_a_hooks_number_is_not_inside_the_hook(land_files: LandFiles) -> None:
    kernel = span("kernel", REDUCE, 20, 5, pid=0, tid=7)
    found = conformed(land_files, SW, {"a.json": trace(*hook(1, *SEALED_TWICE, tid=7), kernel)})
    assert [row["path"] for row in found.rows(crossings.TABLE) if row["violation"]] == ["nccl"]


@pytest.mark.parametrize(
    "events",
    [
        [*hook(1, *SEALED_TWICE), note("tee::all_reduce#8", 2, 1)],
        [{**event, "tid": None} for event in hook(1, *SEALED_TWICE)],
    ],
    ids=["after a hook within", "without a thread"],
)
def test_seals_inside_a_hook_are_its_own(land_files: LandFiles, events: list[dict[str, Any]]) -> None:
    found = conformed(land_files, SW, {"a.json": trace(*events)})
    outer = next(row for row in found.rows(crossings.TABLE) if row["buffer_bytes"] == 1000)
    assert (outer["sealed_message_count"], outer["seal_ns"], outer["violation"]) == (2, 10_000, None)
