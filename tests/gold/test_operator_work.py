from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.operator_work import NO_SHAPES, NO_TYPE, NO_VALUES, UNREADABLE, Work, count_work

if TYPE_CHECKING:
    from pathlib import Path


def count(operator: str, shapes: Any, types: Any = ("float",), values: Any = ()) -> Work:
    return count_work(f"aten::{operator}", json.dumps(shapes), json.dumps(list(types)), json.dumps(list(values)))


def test_a_product_is_two_operations_for_each_pair_and_moves_three_matrices() -> None:
    assert count("mm", [[2, 3], [3, 5]]) == Work(60, 4 * (6 + 15 + 10), "fp32")
    assert count("bmm", [[7, 2, 3], [7, 3, 5]], ["c10::Half"]) == Work(420, 2 * 7 * 31, "fp16")
    assert count("addmm", [[5], [2, 3], [3, 5]], ["c10::BFloat16"]) == Work(60, 2 * (31 + 5), "bf16")


def test_what_is_not_recorded_is_refused_with_its_reason() -> None:
    assert count_work("aten::mm", "", "", "").reason == NO_SHAPES
    assert count("convolution", [[1, 3, 8, 8], [4, 3, 3, 3], [4]]).reason == NO_VALUES
    assert count("convolution_backward", [[1, 4, 8, 8], [1, 3, 8, 8], [4, 3, 3, 3]]).reason == NO_VALUES
    assert count("mm", [[2, 3], [3, 5]], ["long"]) == Work(60, reason=NO_TYPE)
    assert count("mm", [[2, 3], [3, 5]], ["double"]) == Work(60, 8 * 31)


@pytest.mark.parametrize(
    "shapes", [[], [[2, 3]], [[2], [3]], [[2, 3], [4, 5]], [["a", 3], [3, 4]], [[1 << 40, 1 << 40], [1 << 40, 2]], 7]
)
def test_shapes_of_no_such_operator_are_refused(shapes: Any) -> None:
    assert count("mm", shapes).reason == UNREADABLE


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30), st.sampled_from(["mm", "convolution", "bmm"]))
def test_no_text_of_a_trace_stops_the_count(shapes: str, types: str, values: str, operator: str) -> None:
    work = count_work(f"aten::{operator}", shapes, types, values)
    assert (work.operations is None) == (work.reason is not None)


SIZES = st.integers(1, 40)


@given(st.lists(SIZES, min_size=2, max_size=2), SIZES, SIZES, SIZES, SIZES)
def test_attention_is_counted_as_torch_counts_it(
    outer: list[int], queries: int, keys: int, width: int, depth: int
) -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    lists = [[*outer, queries, width], [*outer, keys, width], [*outer, keys, depth]]
    above = [*outer, queries, depth]
    name = "_scaled_dot_product_flash_attention"
    assert count(name, lists).operations == sdpa_flop_count(*lists)
    assert count(f"{name}_backward", [above, *lists]).operations == sdpa_backward_flop_count(above, *lists)


def test_a_recorded_training_step_is_counted_as_torch_counts_it(tmp_path: Path) -> None:
    import torch
    from torch.nn import functional
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.flop_counter import FlopCounterMode

    image = torch.randn(2, 6, 17, 15, requires_grad=True)
    # Torch counts the gradient of a weight as if every group saw all channels: the grouped weight asks for none.
    first, second = torch.randn(8, 3, 3, 5), torch.randn(8, 4, 3, 3, requires_grad=True)
    weight, bias = torch.randn(9, 11, requires_grad=True), torch.randn(9, requires_grad=True)

    def step() -> None:
        made = functional.conv2d(image, first, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)
        made = functional.conv_transpose2d(made, second, stride=2, output_padding=1)
        made = functional.linear(made.flatten()[: 11 * 13].reshape(13, 11), weight, bias)
        made = torch.bmm(made.reshape(1, 13, 9), made.reshape(1, 9, 13))
        torch.mm(made[0], made[0]).sum().backward()

    step()
    with FlopCounterMode(display=False) as counter:
        step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        step()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    found: dict[str, int] = {}
    for event in events:
        args = event.get("args", {})
        name = event.get("name", "").removeprefix("aten::")
        if event.get("cat") == "cpu_op" and name in {"mm", "addmm", "bmm", "convolution", "convolution_backward"}:
            work = count(name, args["Input Dims"], args["Input type"], args["Concrete Inputs"])
            assert (work.reason, work.format) == (None, "fp32")
            found[name] = found.get(name, 0) + (work.operations or 0)
    theirs = counter.get_flop_counts()["Global"]
    assert found == {str(operator).removeprefix("aten."): number for operator, number in theirs.items()}
    assert len(found) == 5
