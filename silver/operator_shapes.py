"""One row per operator that multiplies matrices, convolves or attends, where the profiler recorded what went in."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.patterns import PATTERNS

# Operators whose arithmetic their inputs tell; none of them is a step of another but where a library falls back to one.
OPERATORS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::convolution",
    "aten::convolution_backward",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_cudnn_attention_backward",
)

TABLE = Table(
    tier="silver",
    name="operator_shapes",
    grain="One row per such operator with recorded shapes; a run recorded without record_shapes has none.",
    key=("source_sha256", "ordinal"),
    inputs=("bronze.trace_events",),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the event among the readable events of its source, from 0.", minimum=0),
        text("name", "Name of the operator.", one_of=OPERATORS),
        text("input_shapes", "Sizes of its inputs, as the source's own list (`Input Dims`)."),
        text("input_types", "Element types of its inputs (`Input type`); empty where there are none."),
        text("input_values", "Values of inputs that are no tensors (`Concrete Inputs`); empty where there are none."),
    ),
)
# A list that is longer is of no operator here.
_LONGEST = 2000
_NUMBERS = "^[\\]\\[0-9, \n-]*\\z"
_TYPES = '^[\\]\\["A-Za-z0-9_:<>, \n]*\\z'
_VALUES = '^([\\]\\["0-9.eE+, \n-]|True|False|None|inf|nan)*\\z'


def conform(events: Frame) -> Frame:
    """Take the lists out of the arguments' text as they are, numbers and names of types alone: no text of a person."""
    args = nw.col("args")
    shaped = events.filter(
        nw.col("name").is_in(OPERATORS),
        PATTERNS.is_category("category", "cpu_op"),
        nw.col("phase") == "X",
        args.str.contains('"Input Dims"', literal=True),
    )
    return select_declared(
        shaped.with_columns(
            # The list of sizes ends where the next name begins.
            input_shapes=_take_list(args, "Input Dims", '(?s),?[ \n]*["}].*', "", _NUMBERS),
            input_types=_take_list(args, "Input type", "(?s)\\].*", "]", _TYPES),
            # Texts, which may hold brackets: the list ends after the quote of the last.
            input_values=_take_list(args, "Concrete Inputs", '(?s)"[ \n]*\\].*', '"]', _VALUES),
        ),
        TABLE,
    )


def _take_list(args: nw.Expr, key: str, rest: str, end: str, allowed: str) -> nw.Expr:
    """The list under a key, without the rest of the arguments; empty where there is none that is allowed."""
    taken = args.str.replace_all(f'(?s)^.*"{key}": ?', "").str.slice(0, _LONGEST).str.replace_all(rest, end)
    is_there = args.str.contains(f'"{key}"', literal=True) & taken.str.contains(allowed)
    return nw.when(is_there).then(taken).otherwise(nw.lit(""))
