"""`teetotal release`: what is read from the lake, the noise that OpenDP adds, and the forms in which it leaves."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gold import step_overhead
from gold.pairs import is_tee_overhead
from gold.private_statistics import (
    METRICS,
    QUANTILES,
    SHARES,
    MeasuredRun,
    list_groups,
    list_metrics,
    release_statistics,
)
from lake import privacy_ledger
from lake.errors import ContractBroken
from lake.privacy_ledger import format_epsilon
from silver import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gold.private_statistics import Noise, Released
    from lake.privacy_ledger import Spent
    from lake.store import Lake

_UNIT = (
    "one tenant: all measured overheads of one owner in run.toml, of which at most {most} count; without an owner, "
    "those against one baseline"
)
_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Asked:
    """What is to be released, and at what price; epsilon in millionths."""

    epsilon: int
    budget: int | None
    by: tuple[str, ...]
    metrics: tuple[str, ...]
    most: int


def load_noise() -> Noise:
    """Discrete Laplace noise by OpenDP, on whole numbers; a clear error where it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ContractBroken(
            "`release` needs OpenDP, which is not installed", "pip install 'teetotal[release]'"
        ) from error
    # "contrib" alone: without it OpenDP offers nothing whose proof it has not vetted. "floating-point" stays off: all
    # that noise is added to is whole numbers.
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")

    def add_noise(values: Sequence[int], sensitivity: int, epsilon: float) -> tuple[list[int], float]:
        scale = sensitivity / epsilon
        mechanism = dp.m.make_laplace(domain, metric, scale=scale)
        while mechanism.map(sensitivity) > epsilon:  # type: ignore[no-untyped-call]  # the quotient was rounded down
            scale = math.nextafter(scale, math.inf)
            mechanism = dp.m.make_laplace(domain, metric, scale=scale)
        return list(mechanism(list(values))), scale

    return add_noise


def read_runs(lake: Lake) -> list[MeasuredRun]:
    """Every run whose overhead against a run without a TEE was measured; whose it is, opened with the keyring."""
    table = runs.TABLE
    columns = ["run_id", "gpu", "parameters_count", "owner", "repeat_of"]
    found = lake.reveal(table, lake.scan(table).select(columns).collect().to_arrow())
    return choose_runs(found.to_pylist(), lake.scan(step_overhead.TABLE).collect().to_dicts())


def choose_runs(known: Sequence[dict[str, Any]], answers: Sequence[dict[str, Any]]) -> list[MeasuredRun]:
    """The measured runs with their tenants; a pair whose runs are of several owners is nobody's and left out.

    Without an owner the tenant is the baseline: whatever was measured against it goes with it.
    """
    facts = {row["run_id"]: row for row in known}
    repeats: dict[str | None, list[str]] = {}
    for row in known:
        repeats.setdefault(row["repeat_of"], []).append(row["run_id"])
    measured = []
    for row in answers:
        sides = (row["run_id"], row["baseline_run_id"])
        if row["slowdown_ratio"] is None or not is_tee_overhead(row) or not facts.keys() >= set(sides):
            continue
        owners = {facts[run_id]["owner"] for side in sides for run_id in (side, *repeats.get(side, ()))}
        if len(owners) > 1:
            continue
        (owner,) = owners
        fact = facts[row["run_id"]]
        values = {"slowdown": row["slowdown_ratio"]}
        values |= {} if row["overhead_ns"] is None else {"overhead": row["overhead_ns"] / _NS_PER_MS}
        measured.append(
            MeasuredRun(
                run_id=row["run_id"],
                tenant=f"owner {owner}" if owner else f"baseline {row['baseline_run_id']}",
                regime=row["regime"],
                gpu=fact["gpu"],
                parameters_count=fact["parameters_count"],
                values=values,
            )
        )
    return measured


def make_release(lake: Lake, asked: Asked) -> dict[str, Any]:
    """Pay for a release, then draw its noise; nothing is drawn that was not paid for."""
    noise = load_noise()
    # What could be refused is refused before it is paid.
    list_groups(asked.by)
    list_metrics(asked.metrics)
    measured = read_runs(lake)
    what = {"by": list(asked.by), "metrics": list(asked.metrics), "runs_per_tenant": asked.most}
    spent = privacy_ledger.pay(lake.place, asked.epsilon, asked.budget, what)
    epsilon = asked.epsilon / 1_000_000
    numbers = release_statistics(measured, asked.by, asked.metrics, epsilon, asked.most, noise)
    return {**_describe(asked, spent), "numbers": [_row(asked.by, number) for number in numbers]}


def _describe(asked: Asked, spent: Spent) -> dict[str, Any]:
    chosen = {name: METRICS[name] for name in asked.metrics}
    return {
        "what": "statistics of measured overheads with differential privacy, by OpenDP's discrete Laplace mechanism",
        "unit_of_privacy": _UNIT.format(most=asked.most),
        "neighbours": "two sets of measured overheads, of which one has a tenant more",
        "release": spent.number,
        "epsilon": format_epsilon(spent.epsilon),
        "delta": "0",
        "budget": format_epsilon(spent.budget),
        "budget_left": format_epsilon(spent.left),
        "grouped_by": list(asked.by),
        "groups": "declared, not found in the data: a group that is listed may be empty",
        "bounds": {
            name: {"low": one.low / one.per_unit, "high": one.high / one.per_unit} for name, one in chosen.items()
        },
        "epsilon_shares": {name: share / len(asked.metrics) for name, share in SHARES.items()},
        "opendp_features": ["contrib"],
        "note": "a number is null where its group's noisy count is not above three times its noise scale",
    }


def _row(by: Sequence[str], number: Released) -> dict[str, Any]:
    return {
        **dict(zip(by, number.group, strict=True)),
        "metric": number.metric,
        "statistic": number.statistic,
        "value": None if number.value is None else round(number.value, 6),
        "unit": number.unit,
        "noise_scale": round(number.noise_scale, 6),
        "epsilon": round(number.epsilon, 9),
        "noise_error": None if number.noise_error is None else round(number.noise_error, 6),
    }


def format_release(release: dict[str, Any], form: str) -> str:
    """A release as JSON, as CSV with what it rests on in front, or as a text for people."""
    if form == "json":
        return json.dumps(release, indent=1) + "\n"
    rows: list[dict[str, Any]] = release["numbers"]
    if form == "csv":
        out = io.StringIO()
        about = {name: release[name] for name in ("release", "unit_of_privacy", "epsilon", "budget_left")}
        out.writelines(f"# {name}: {value}\n" for name, value in about.items())
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()
    return _format_text(release, rows)


def _format_text(release: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    by = release["grouped_by"]
    left = f"{release['budget_left']} of {release['budget']} left"
    lines = [
        f"release {release['release']}: epsilon {release['epsilon']}, {left}",
        f"unit of privacy: {release['unit_of_privacy']}",
        f"groups are {release['groups']}",
    ]
    told = {(tuple(row[name] for name in by), row["metric"], row["statistic"]): row for row in rows}
    for group, metric in dict.fromkeys((key[0], key[1]) for key in told):
        count = told[group, metric, "count"]
        line = f"{', '.join(group) or 'all runs'}: {metric}, about {count['value']} runs"
        line += f" (noise {count['noise_scale']:.3g})"
        mean = told[group, metric, "mean"]
        if mean["value"] is None:
            lines.append(f"{line}; too few to tell more from the noise")
            continue
        quantiles = [f"p{fraction * 100:.0f}" for fraction in QUANTILES]
        said = ", ".join(f"{name} {told[group, metric, name]['value']:.3g}" for name in quantiles)
        lines.append(f"{line}, mean {mean['value']:.3g} {mean['unit']} (noise about {mean['noise_error']:.2g}), {said}")
    return "\n".join(lines) + "\n"
