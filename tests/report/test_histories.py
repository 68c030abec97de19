from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.change_points import NOISES, draw_nights, make_history
from gold.history import TABLE
from report.pictures import figure
from tests.support.drawn_figures import draw_picture, marks, parse_svg


def draw_history() -> list[dict[str, Any]]:
    nights = draw_nights(np.random.default_rng(7), NOISES[0], 12, 0.2)
    return make_history(nights, ["570"] * 6 + ["575"] * 6)


def test_a_workload_is_a_panel_of_its_runs_with_a_line_where_its_level_changed() -> None:
    rows = pa.Table.from_pylist(draw_history(), schema=TABLE.arrow_schema)
    found = figure(TABLE, rows)
    assert found is not None
    assert len(found.rows) == 36
    (change,) = [row for row in found.rows if "changed_at" in row]
    assert (change["run"], change["changed_at"]) == ("night006-0", 6.5)
    assert change["ratio"].endswith("× driver_version 570 to 575")  # noqa: RUF001
    assert {row["part"] for row in marks(found, run="night005-2")} == {"0"}
    assert {row["part"] for row in marks(found, run="night006-0")} == {"1"}
    assert "driver_version 570 to 575" in found.notes[0]
    drawn = parse_svg(draw_picture(TABLE, rows))
    assert "driver_version 570 to 575" in "".join(drawn.itertext())


def test_what_was_recorded_on_one_day_is_counted_and_not_drawn() -> None:
    rows = [row for row in draw_history() if row["session_number"] == 1]
    found = figure(TABLE, pa.Table.from_pylist(rows, schema=TABLE.arrow_schema))
    assert found is not None
    assert found.rows[0]["value"] == "recorded on one day, so not drawn: 1 workload"


def test_a_control_character_in_a_workloads_id_is_not_drawn() -> None:
    rows = [row | {"workload_id": "abc\x01\ufffe"} for row in draw_history()]
    found = figure(TABLE, pa.Table.from_pylist(rows, schema=TABLE.arrow_schema))
    assert found is not None
    assert not {"\x01", "\ufffe"} & set("".join(str(value) for row in found.rows for value in row.values()))
