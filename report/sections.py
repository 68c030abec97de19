"""What the report says, in the order in which a person asks: is it slower, where is it paid, what can be trusted."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from gold.pairs import is_tee_overhead
from report import forecasts, literature
from report.heat_map import step_heat_map
from report.markup import Markup, element, table
from report.pictures import FIGURES
from report.section import Section
from report.summary import UNKNOWN_MODEL, summarise
from report.timeline import step_timeline
from report.units import NOTHING, format_count, format_number, format_percent, format_size, legible
from report.verdict_list import list_verdicts, order_pairs
from report.work_tables import list_changes, list_source_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from report.figure import Figure

    Row = dict[str, Any]
    Tables = Mapping[str, Sequence[Row]]

_MOST_LINES = 400
_MOST_CHANGES = 10
# Tables of one row or more per pair, which are shown in the order of the pairs.
_BY_PAIR = {"gold.step_overhead", "gold.throughput_overhead", "gold.energy_overhead", "gold.overhead_breakdown"}


def facts(tables: Tables) -> dict[str, Row]:
    """What each run can be filtered by, and its baseline, which stays in sight with it."""
    baselines = {row["run_id"]: row["baseline_run_id"] for row in tables["gold.pairs"]}
    return {
        legible(row["run_id"]): {
            "model": legible(row["model"] or UNKNOWN_MODEL),
            "regime": legible(row["regime"] or "unknown"),
            "ranks": str(row["found_world_size"] or row["world_size"] or row["ranks_count"]),
            "baseline": legible(baselines.get(row["run_id"]) or ""),
        }
        for row in tables["silver.runs"]
    }


def find_example(tables: Tables) -> tuple[str, str] | None:
    """The run and the baseline that are looked at closely: the first pair with traces of several ranks, else of one."""
    ranks = defaultdict[str, set[int]](set)
    for row in tables["gold.time_breakdown"]:
        ranks[row["run_id"]].add(row["rank"])
    names = [(row["run_id"], row["baseline_run_id"]) for row, _ in order_pairs(tables)]
    traced = [pair for pair in names if all(ranks[name] for name in pair)]
    several = (pair for pair in traced if all(len(ranks[name]) > 1 for name in pair))
    return next(several, next(iter(traced), None))


def sections(
    tables: Tables, versions: Mapping[str, str], example: Mapping[str, Sequence[Row]] | None = None, made_on: str = ""
) -> list[Section]:
    """All sections; one that has nothing to say is left out by whoever writes the page.

    What stands after the first appendix is for who doubts a number.
    """
    ordered = order_pairs(tables)
    order = {row["run_id"]: place for place, (row, _) in enumerate(ordered)}
    tables = {
        name: sorted(rows, key=lambda row: order.get(row["run_id"], len(order))) if name in _BY_PAIR else rows
        for name, rows in tables.items()
    }
    secured = _choose_pairs(tables, is_tee=True)
    return [
        summarise(tables, ordered, made_on),
        Section("verdicts", "Verdicts", before=tuple(list_verdicts(tables))),
        Section(
            "slowdown",
            "How much slower",
            figures=_figures(secured, "step_overhead", "throughput_overhead", "energy_overhead", "scaling"),
        ),
        Section("overhead", "Where it is paid", figures=_figures(secured, "overhead_breakdown")),
        _list_other_pairs(tables),
        *_look_closely(tables, example or {}),
        _cheaper(tables),
        Section("history", "Over time", figures=_figures(tables, "history")),
        Section(
            "time", "Where the time of each rank goes", figures=_figures(tables, "time_breakdown"), kind="appendix"
        ),
        Section(
            "overlap",
            "Overlap and stragglers",
            figures=_figures(tables, "trace_summary", "stragglers"),
            kind="appendix",
        ),
        Section(
            "analyses",
            "Idle GPUs, queues, bandwidth, memory and roofs",
            figures=_figures(
                *(tables, "idle_breakdown", "queue_length", "queue_timeline", "copy_bandwidth", "memory_timeline"),
                *("collective_bandwidth", "roofline"),
            ),
            kind="appendix",
        ),
        Section(
            "operations",
            "Single operations",
            figures=_figures(tables, "operation_overhead", "launches"),
            kind="appendix",
        ),
        _sealing(tables),
        _make_rejects(tables),
        _make_unobserved(tables),
        _make_published(tables),
        _provenance(tables, versions),
    ]


def _choose_pairs(tables: Tables, *, is_tee: bool) -> dict[str, Sequence[Row]]:
    """All tables, those of pairs with the pairs that say what a TEE costs, or with the others."""
    return {
        name: [row for row in rows if is_tee_overhead(row) == is_tee] if name in _BY_PAIR else rows
        for name, rows in tables.items()
    }


def _list_other_pairs(tables: Tables) -> Section:
    """What manifests declare besides: before and after a change, in one regime or two."""
    others = _choose_pairs(tables, is_tee=False)
    drawn = _figures(others, "step_overhead", "throughput_overhead", "energy_overhead", "overhead_breakdown")
    lead = "Baselines that manifests name, such as before and after a change. No line here is an overhead of a TEE."
    named = tuple((f"other_{name}", figure) for name, figure in drawn)
    return Section("other-pairs", "Differences between other runs", lead if drawn else "", figures=named)


def _look_closely(tables: Tables, example: Mapping[str, Sequence[Row]]) -> list[Section]:
    """The largest pair: which rank was slow when, one step of it, and which kernels and collectives changed."""
    chosen = find_example(tables)
    if chosen is None:
        return []
    heat = step_heat_map(tables["gold.time_breakdown"], chosen)
    intervals = example.get("timeline", ())
    line = step_timeline(intervals, tables["gold.time_breakdown"])
    drawn = (
        *((("step_heat_map", heat),) if heat.rows else ()),
        *((("step_timeline", line),) if intervals else ()),
    )
    lead = (
        f"{chosen[0]} against {chosen[1]}: of the pairs with traces, of several ranks where there are any, the first."
    )
    made = [Section("closely", "One pair, step by step", lead if drawn else "", figures=drawn)]
    for name, title in (("kernels", "Top kernels, and what changed"), ("collectives", "Collectives, and what changed")):
        if example.get(name):
            made.append(list_changes(name, title, example[name], _MOST_CHANGES))
    return made


def _figures(tables: Tables, *names: str) -> tuple[tuple[str, Figure], ...]:
    """The figures of tables that have rows to draw."""
    made = [(name, FIGURES[f"gold.{name}"](tables[f"gold.{name}"])) for name in names if tables[f"gold.{name}"]]
    return tuple((name, figure) for name, figure in made if figure.rows)


def _cheaper(tables: Tables) -> Section:
    """What changes would save, how far such predictions were off, and where sealing becomes free."""
    rows = tables["gold.what_if"]
    rates = forecasts.sealing_rates(rows)
    drawn = (*_figures(tables, "what_if", "prediction_checks"), *((("sealing_rates", rates),) if rates.rows else ()))
    lead = "Modelled from pairs in the lake, never measured; what cannot be predicted says why."
    lines = (list_source_lines(tables["gold.source_lines"]),) if tables["gold.source_lines"] else ()
    return Section("cheaper", "What would make it cheaper", lead if drawn else "", figures=drawn, after=lines)


def _sealing(tables: Tables) -> Section:
    """Coverage where something had to be sealed, violations, claims, and how far each key is from its limit."""
    rows = tables["gold.sealing_coverage"]
    asked = [row for row in rows if row["promised_crossings_count"] or row["violations_count"]]
    violations = sum(row["violations_count"] for row in rows)
    rest = len(rows) - len(asked)
    lead = f"{format_count(violations, 'violation')} of a promise to seal."
    if rest:
        lead += f" Boundaries with nothing to seal are not drawn: {format_number(rest)}."
    drawn = (("sealing_coverage", FIGURES["gold.sealing_coverage"](asked)),) if asked else ()
    claims = table(
        "Does the recording show what the run claims?",
        [("run", False), ("verdict", False), ("agreement", False), ("evidence", False)],
        [
            (legible(row["run_id"]), [row["run_id"], row["verdict"], row["agreement"], row["evidence"]])
            for row in tables["gold.attested_runs"]
        ],
    )
    return Section(
        *("sealing", "Sealing, claims and nonce budgets", lead if rows else "", (), drawn),
        (claims, *_nonces(tables)),
        "appendix",
    )


def _nonces(tables: Tables) -> list[Markup]:
    rows = tables["silver.nonce_budgets"]
    if not rows:
        return [element("p", "No key sealed in software, so no nonces were counted.", class_="note")]
    columns = [("run", False), ("key", False), ("messages", True), ("limit", True), ("used", True)]
    return [
        table(
            "Nonce budgets: how much of a key's messages is spent, and the step at which none is left",
            [*columns, ("last step", True), ("evidence", False)],
            [
                (
                    legible(row["run_id"]),
                    [
                        row["run_id"],
                        row["key_scope"],
                        format_number(row["sealed_message_count"]),
                        format_number(row["limit_count"]),
                        format_percent(row["used_fraction"]) + (", near its limit" if row["is_near_limit"] else ""),
                        format_number(row["limit_step_number"]),
                        row["evidence"],
                    ],
                )
                for row in rows
            ],
        )
    ]


def _make_rejects(tables: Tables) -> Section:
    """Things refused, and events merged or rejected by a rule, each with its sentence and how many there were."""
    refused = Counter((row["run_id"], f"{row['level']} rejected", row["reason"]) for row in tables["silver.rejects"])
    for row in tables["silver.rule_counts"]:
        if row["effect"] != "kept":
            refused[row["run_id"], f"event {row['effect']}", row["sentence"]] += row["events_count"]
    if not refused:
        return Section(
            "rejected", "What was rejected, and why", "Nothing was rejected and nothing merged.", kind="appendix"
        )
    lines = [
        (legible(run), [run, what, format_number(count), reason])
        for (run, what, reason), count in sorted(refused.items())
    ]
    columns = [("run", False), ("what", False), ("how many", True), ("why", False)]
    return Section(
        "rejected",
        "What was rejected, and why",
        "Nothing is dropped in silence: whatever was not kept as it came is counted here, with the rule that took it.",
        (table("Rejected and merged, by run and reason", columns, lines[:_MOST_LINES]), *_list_omitted(len(lines))),
        kind="appendix",
    )


def _make_unobserved(tables: Tables) -> Section:
    """Whatever has a reason for a missing or weaker number, by table and reason, with the runs that it is of."""
    found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for name, rows in tables.items():
        for row in rows if name.startswith("gold.") else ():
            if row.get("reason") and row.get("evidence"):
                found[row["evidence"], name, row["reason"]].add(_name_subject(row))
    if not found:
        return Section("availability", "What could not be observed", "Every number could be observed.", kind="appendix")
    order = sorted(found.items(), key=lambda one: (one[0][0] != "unobservable", one[0]))
    every = {row["run_id"] for row in tables["silver.runs"]}
    lines = [
        (None, [name, reason, evidence, f"all {len(runs)}" if runs >= every else ", ".join(sorted(runs))])
        for (evidence, name, reason), runs in order
    ]
    columns = [("table", False), ("why", False), ("evidence", False), ("runs", False)]
    return Section(
        "availability",
        "What could not be observed, and why",
        "A number that is missing, or weaker than it might be, has its reason here.",
        (table("Reasons, by table", columns, lines[:_MOST_LINES]), *_list_omitted(len(lines))),
        kind="appendix",
    )


def _name_subject(row: Row) -> str:
    """What a row is of: a run where it names one, else a regime."""
    names = ("tee_run_id", "predicted_run_id", "run_id", "regime")
    return next(str(row[name]) for name in names if row.get(name))


def _make_published(tables: Tables) -> Section:
    rows = tables["gold.published"]
    if not rows:
        return Section("published", "What others have published")
    figure = literature.published(rows, _choose_pairs(tables, is_tee=True)["gold.step_overhead"])
    lead = (
        "Ours are diamonds, and stand first. Theirs are of other hardware and other work; each line names its regime."
    )
    return Section(
        "published", "Beside what others have published", lead, figures=(("published", figure),), kind="appendix apart"
    )


def _provenance(tables: Tables, versions: Mapping[str, str]) -> Section:
    """Which software made this, which machines recorded it, and the digest of each file that it rests on."""
    made = element("p", "Made with " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    hardware = ("gpu", "driver_version", "cuda_version", "torch_version", "backend", "host_cpu")
    runs = table(
        "Runs as they say of themselves",
        [(name, False) for name in ("run", "recorded", "GPU", "driver", "CUDA", "torch", "backend", "host CPU")],
        [
            (
                legible(row["run_id"]),
                [row["run_id"], row["recorded_at"] or NOTHING, *(row[name] or NOTHING for name in hardware)],
            )
            for row in tables["silver.runs"]
        ],
    )
    sources = table(
        "Source files by their SHA-256",
        [("run", False), ("SHA-256", False), ("format", False), ("outcome", False), ("size", True)],
        [
            (
                legible(row["run_id"]),
                [
                    row["run_id"],
                    row["source_sha256"] or "not read",
                    row["format"],
                    row["outcome"] if row["is_counted"] else f"{row['outcome']}, counts when the run is closed",
                    format_size(row["size_bytes"]),
                ],
            )
            for row in tables["bronze.source_files"]
        ],
    )
    digests = element(
        "details", element("summary", f"{format_count(len(tables['bronze.source_files']), 'source file')}"), sources
    )
    signed = [element("p", row["sentence"]) for row in tables.get("signatures", ())]
    return Section("provenance", "Provenance", before=(made, *signed, runs, digests), kind="appendix")


def _list_omitted(count: int) -> list[Markup]:
    left = count - _MOST_LINES
    return [element("p", f"and {format_number(left)} more lines", class_="note")] if left > 0 else []
