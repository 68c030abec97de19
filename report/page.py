"""The report: one HTML file with all that it needs inside, readable without a script, a network or a screen."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from report import drawing, sections
from report.drawing import specification
from report.markup import Markup, data, element, join_markup, table
from report.units import format_count, legible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from report.figure import Figure
    from report.section import Section

    Row = dict[str, Any]

_HERE = Path(__file__).parent
TITLE = "What confidential computing cost these training runs"
_FILTERS = (("model", "Model"), ("regime", "Regime"), ("ranks", "GPU ranks"))


@dataclass(frozen=True)
class Page:
    """The file's text, and what is in it."""

    html: str
    figures: int
    runs: int
    # What a reader must know before any number: checks that failed, and runs that were not checked.
    failed: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def page(
    tables: Mapping[str, Sequence[Row]],
    versions: Mapping[str, str],
    failed: tuple[str, ...] = (),
    unchecked: tuple[str, ...] = (),
    example: Mapping[str, Sequence[Row]] | None = None,
    made_on: str = "",
) -> Page:
    """Build the page from rows of the lake, by the full names of their tables; what failed stands at the top.

    `example` is the pair that is looked at closely: its `timeline`, and the `kernels` and `collectives` that changed.
    """
    facts = sections.facts(tables)
    if not facts:
        return Page(_document(_nothing(versions), "", ""), 0, 0)
    made = [section for section in sections.sections(tables, versions, example, made_on) if section.is_there]
    written, count = write_sections(TITLE, _describe_runs(facts), facts, made, _FILTERS, (*failed, *unchecked))
    return Page(written, count, len(facts), failed, unchecked)


def write_sections(
    title: str,
    told: str,
    facts: Mapping[str, Row],
    made: Sequence[Section],
    filters: Sequence[tuple[str, str]] = (),
    warnings: Sequence[str] = (),
) -> tuple[str, int]:
    """The file of some sections, and how many figures it has; filters are facts of a run with their labels."""
    specs: dict[str, Row] = {}
    # Who decides reads these before anything that filters or leads elsewhere.
    first = [_section(section, specs) for section in made if section.kind == "first"]
    written = [_section(section, specs) for section in made if section.kind != "first"]
    body = join_markup(
        [
            _head(title, told, warnings),
            *first,
            _filters(facts, filters),
            _contents(made),
            element("main", *written, id="main"),
        ]
    )
    script = (_HERE / "page.js").read_text("utf-8")
    return _document(body, script, data("report-data", {"figures": specs, "runs": facts}), title), len(specs)


def _document(body: Markup, script: str, carried: str, title: str = TITLE) -> str:
    """The file: a policy that forbids the network and every script but the two that are inside."""
    scripts = [drawing.scripts(), script] if script else []
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in scripts) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"teetotal: {title}"),
        Markup(f"<style>{(_HERE / 'page.css').read_text('utf-8')}</style>"),
    ]
    tail = [carried, *(f"<script>{text}</script>" for text in scripts)]
    whole = element("html", element("head", *head), element("body", body, Markup("".join(tail))), lang="en")
    return f"<!doctype html>\n{whole}\n"


def _digest(script: str) -> str:
    if "</script" in script.lower():
        raise ValueError("a script that ends its own element cannot be carried inside a page")
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _nothing(versions: Mapping[str, str]) -> Markup:
    lead = "There is no run in this lake yet, so there is nothing to report."
    hint = "Land a recording (teetotal land), or try teetotal demo; then teetotal run, and teetotal report again."
    small = ", ".join(f"{name} {version}" for name, version in versions.items())
    return element(
        "main",
        element("h1", TITLE),
        element("p", lead, class_="lead"),
        element("p", hint),
        element("p", small),
        id="main",
    )


def _describe_runs(facts: Mapping[str, Row]) -> str:
    models = sorted({fact["model"] for fact in facts.values() if fact["model"]})
    lead = f"{format_count(len(facts), 'run')} of {', '.join(models) or 'unnamed models'}. "
    return lead + "Every number says where it comes from: measured, modelled, or unobservable and why."


def _head(title: str, lead: str, warnings: Sequence[str]) -> Markup:
    return element(
        "header",
        element("a", "Skip to the answers", href="#main", class_="skip"),
        element("p", "teetotal", class_="brand"),
        element("h1", title),
        element("p", lead, class_="lead"),
        *_warnings(warnings),
    )


def _warnings(sentences: Sequence[str]) -> list[Markup]:
    return (
        [element("ul", *(element("li", text) for text in sentences), class_="warnings", role="alert")]
        if sentences
        else []
    )


def _filters(facts: Mapping[str, Row], filters: Sequence[tuple[str, str]]) -> Markup:
    """Shown by the script alone: without it there is nothing that they could do."""
    chosen = [
        _choice(name, label, sorted({str(fact[name]) for fact in facts.values()}, key=_natural))
        for name, label in filters
    ]
    toggle = element("button", "Dark or light", type="button", id="theme")
    said = element("output", "", id="shown", aria_live="polite")
    return element("form", *chosen, toggle, said, id="filters", hidden=True, aria_label="Filter what is shown")


def _natural(text: str) -> tuple[bool, float, str]:
    return (not text.isdecimal(), float(text) if text.isdecimal() else 0.0, text)


def _choice(name: str, label: str, values: list[str]) -> Markup:
    options = [element("option", "all", value=""), *(element("option", value, value=value) for value in values)]
    return element("label", f"{label} ", element("select", *options, name=name))


def _contents(made: Sequence[Section]) -> Markup:
    links = [element("li", element("a", section.title, href=f"#{section.name}")) for section in made]
    return element("nav", element("ol", *links), aria_label="Contents")


def _section(section: Section, specs: dict[str, Row]) -> Markup:
    figures = [_figure(name, found, specs) for name, found in section.figures]
    lead = [element("p", section.lead, class_="lead")] if section.lead else []
    inside = [element("h2", section.title), *lead, *section.before, *figures, *section.after]
    return element("section", *inside, id=section.name, class_=section.kind)


def _figure(name: str, found: Figure, specs: dict[str, Row]) -> Markup:
    """A figure: the still picture, which the script replaces, its rows as a table, and what is not drawn."""
    specs[name] = spec = specification(found)
    still = Markup(drawing.svg(spec))
    caption = element("figcaption", element("h3", found.title), element("p", found.subtitle))
    chart = element("div", still, class_="chart", role="img", aria_label=found.alt, id=f"chart-{name}")
    notes = [element("p", note, class_="note") for note in found.notes]
    return element("figure", caption, chart, *notes, _behind(found), data_figure=name)


def _behind(found: Figure) -> Markup:
    """The rows behind a figure, for whoever cannot see it or wants the numbers."""
    lines = []
    named = ""
    for row in found.rows:
        named = row.get("label") or named
        value = row.get("detail") or row.get("unseen") or row.get("note") or row.get("value")
        if value:
            cells = [row.get("run", ""), named.replace("\n", ", "), row.get("what", ""), value, row.get("evidence", "")]
            lines.append((row.get("run"), [legible(cell) for cell in cells]))
    columns = [(name, False) for name in ("run", "line", "what", "value", "evidence")]
    return element(
        "details",
        element("summary", f"The {format_count(len(lines), 'value')} behind this figure"),
        table(found.title, columns, lines),
    )
