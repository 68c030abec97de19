"""What an operator computes and must move at least, counted from the shapes of its inputs.

Operations are counted as `torch.utils.flop_counter` does: a multiply and an add are two, biases are left out, a causal
mask halves nothing. Only of the gradient of a grouped convolution's weight it counts each group's channels for all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod

_ELEMENT_BYTES = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
}
_FORMATS = {
    "float": "fp32",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
}
# Beyond this no GPU counts, and columns of 64 bits could not.
_MOST = 1 << 59
NO_SHAPES = "the profiler recorded no shapes (record_shapes=True records them)"
NO_VALUES = "stride, padding and groups were not recorded, so the size of the output is not known"
UNREADABLE = "its shapes are not those of such an operator"
NO_TYPE = "the element type of its inputs is not known"

Shape = list[int]


@dataclass(frozen=True)
class Work:
    """Operations, and bytes of all inputs and outputs moved once; or why they are not known."""

    operations: int | None = None
    least_bytes: int | None = None
    # Number format of its inputs, as peaks of a GPU name it.
    format: str | None = None
    reason: str | None = None


def count_work(operator: str, shapes: str, types: str, values: str) -> Work:
    """The work of one operator, from the lists that the profiler wrote beside it."""
    if not shapes:
        return Work(reason=NO_SHAPES)
    try:
        sizes, kinds = json.loads(shapes), json.loads(types or "[]")
        counted = _count(operator.removeprefix("aten::"), sizes, json.loads(values or "[]"))
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, ZeroDivisionError):
        return Work(reason=UNREADABLE)
    if isinstance(counted, str):
        return Work(reason=counted)
    operations, elements = counted
    if not (0 <= operations < _MOST and 0 <= elements < _MOST):
        return Work(reason=UNREADABLE)
    kind = next((one for one in kinds if one in _ELEMENT_BYTES), None)
    if kind is None:
        return Work(operations, reason=NO_TYPE)
    return Work(operations, elements * _ELEMENT_BYTES[kind], _FORMATS.get(kind))


def _count(operator: str, sizes: list[Shape], values: list[str]) -> tuple[int, int] | str:
    """Operations and elements moved at least; or why they are not known."""
    if operator in {"mm", "bmm"}:
        return _multiply(sizes[0], sizes[1], 0)
    if operator in {"addmm", "baddbmm"}:
        return _multiply(sizes[1], sizes[2], prod(sizes[0]))
    if operator == "convolution":
        return _convolve(sizes, values)
    if operator == "convolution_backward":
        return _convolve_back(sizes, values)
    if operator.endswith("_backward"):
        (*outer, queries, width), (*_, keys, _), (*_, depth) = sizes[1:4]
        moved = prod(sizes[0]) + 2 * sum(map(prod, sizes[1:4]))
        return 2 * prod(outer) * queries * keys * (3 * width + 2 * depth), moved
    (*outer, queries, width), (*_, keys, _), (*_, depth) = sizes[:3]
    moved = sum(map(prod, sizes[:3])) + prod(outer) * queries * depth
    return 2 * prod(outer) * queries * keys * (width + depth), moved


def _multiply(left: Shape, right: Shape, added: int) -> tuple[int, int] | str:
    (*outer, rows, inner), (*same, shared, columns) = left, right
    if inner != shared or outer != same:
        return UNREADABLE
    batch = prod(outer)
    moved = batch * (rows * inner + inner * columns + rows * columns) + added
    return 2 * batch * rows * inner * columns, moved


def _convolve(sizes: list[Shape], values: list[str]) -> tuple[int, int] | str:
    """Of a convolution the size of the output follows from its settings; of a transposed one the input's counts."""
    if len(values) < 9:  # up to `groups`, the ninth argument
        return NO_VALUES
    data, weight = sizes[0], sizes[1]
    stride, padding, dilation = (json.loads(values[place]) for place in (3, 4, 5))
    added, groups, kernel = json.loads(values[7]), int(values[8]), weight[2:]
    axes = range(len(kernel))
    # One number stands for all directions.
    stride, padding, dilation, added = (
        one * len(kernel) if len(one) == 1 else one for one in (stride, padding, dilation, added)
    )
    reach = [dilation[axis] * (kernel[axis] - 1) for axis in axes]
    if values[6] == "True":
        out = [(data[2 + axis] - 1) * stride[axis] - 2 * padding[axis] + reach[axis] + added[axis] + 1 for axis in axes]
        places, channels = data[2:], weight[1] * groups
    else:
        out = [(data[2 + axis] + 2 * padding[axis] - reach[axis] - 1) // stride[axis] + 1 for axis in axes]
        places, channels = out, weight[0]
    moved = prod(data) + prod(weight) + data[0] * channels * prod(out)
    return 2 * data[0] * prod(places) * prod(weight), moved


def _convolve_back(sizes: list[Shape], values: list[str]) -> tuple[int, int] | str:
    """As much as forwards for the gradient of the input, and again for that of the weight, where each is asked for."""
    if len(values) < 11:  # up to `output_mask`, the eleventh argument
        return NO_VALUES
    above, data, weight = sizes[:3]
    places = data[2:] if values[7] == "True" else above[2:]
    asked = [one.strip() == "True" for one in values[10].strip("[]").split(",")]
    once = 2 * data[0] * prod(places) * prod(weight)
    moved = prod(above) + prod(data) + prod(weight) + prod(data) * asked[0] + prod(weight) * asked[1]
    return once * (asked[0] + asked[1]), moved
