"""`python -m benchmarks.cuda_graphs`: training steps of one GPU, eager and as one CUDA graph, as TOML.

Needs a GPU, torch, torchvision and transformers. `gold/graph_steps.toml` is what it printed on an H200.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Step = Callable[[Any, Any], None]

_VISION = {"resnet18": (8, 32, 128), "resnet50": (8, 32, 64), "mobilenet_v3_large": (8, 64)}
# Layers, hidden size and batch sizes.
_LANGUAGE = {"gpt2-small": (12, 768, (2, 8, 32)), "bert-base": (12, 768, (2, 8, 32)), "gpt2-tiny": (6, 384, (4, 32))}
_SEQUENCE, _VOCABULARY, _CLASSES, _IMAGE = 128, 20_000, 1000, 224
_WARMUP, _TURNS, _STEPS, _TRACED = 8, 3, 10, 3


def main() -> None:
    """Record every configuration, and print a table of the file for each."""
    torch = import_module("torch")
    torch.backends.cudnn.benchmark = True
    sys.stdout.write("version = 1\n")
    for name, batch, model, inputs in _list_configurations(torch):
        fields = {"model": f'"{name}"', "batch_size": batch, **_record(torch, model.to("cuda"), inputs)}
        sys.stdout.write("\n[[step]]\n" + "".join(f"{key} = {value}\n" for key, value in fields.items()))
        sys.stdout.flush()
        torch.cuda.empty_cache()


def _list_configurations(torch: Any) -> Iterator[tuple[str, int, Any, tuple[Any, Any]]]:
    for name, batches in _VISION.items():
        for batch in batches:
            inputs = torch.randn(batch, 3, _IMAGE, _IMAGE), torch.randint(0, _CLASSES, (batch,))
            yield name, batch, getattr(import_module("torchvision.models"), name)(), inputs
    transformers = import_module("transformers")
    for name, (layers, hidden, batches) in _LANGUAGE.items():
        for batch in batches:
            tokens = torch.randint(0, _VOCABULARY, (batch, _SEQUENCE))
            yield name, batch, _make_language_model(transformers, name, layers, hidden), (tokens, tokens.clone())


def _make_language_model(transformers: Any, name: str, layers: int, hidden: int) -> Any:
    """A model without dropout, whose masks a graph would repeat."""
    heads = hidden // 64
    if name.startswith("gpt2"):
        none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        config = transformers.GPT2Config(n_layer=layers, n_embd=hidden, n_head=heads, **none)
        return transformers.GPT2LMHeadModel(config)
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForMaskedLM(config)


def _record(torch: Any, model: Any, inputs: tuple[Any, Any]) -> dict[str, int]:
    """The eager step with copies from pageable memory, its parts under the profiler, and the same as a graph."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)

    def train(x: Any, y: Any) -> None:
        is_language = hasattr(model, "config")
        loss = model(input_ids=x, labels=y).loss if is_language else torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    def run_eager() -> None:
        optimizer.zero_grad(set_to_none=True)
        train(*(one.to("cuda") for one in inputs))

    eager_us = _time(torch, run_eager)
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as recorded:
        for _ in range(_TRACED):
            run_eager()
        torch.cuda.synchronize()
    parts = {name: round(value / _TRACED) for name, value in _split(torch, recorded.events()).items()}
    held = [one.to("cuda") for one in inputs]
    graph = _capture(torch, optimizer, lambda: train(*held))

    def run_graph() -> None:
        for target, source in zip(held, inputs, strict=True):
            target.copy_(source)
        graph.replay()

    return {**parts, "eager_us": eager_us, "graph_us": _time(torch, run_graph)}


def _capture(torch: Any, optimizer: Any, train: Callable[[], None]) -> Any:
    """The step as a graph, after some on a side stream, as torch asks."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            optimizer.zero_grad(set_to_none=True)
            train()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        train()
    return graph


def _time(torch: Any, run: Callable[[], None]) -> int:
    """Microseconds of a step: the median of a few turns of several."""
    for _ in range(_WARMUP):
        run()
    turns = []
    for _ in range(_TURNS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(_STEPS):
            run()
        torch.cuda.synchronize()
        turns.append((time.perf_counter() - began) / _STEPS)
    return round(sorted(turns)[_TURNS // 2] * 1e6)


def _split(torch: Any, events: Iterable[Any]) -> dict[str, float]:
    """Launches, time in which a kernel ran, and time of copies from the host."""
    launches, copies, busy, latest = 0, 0.0, 0.0, float("-inf")
    work = []
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            if "Memcpy HtoD" in event.name:
                copies += event.time_range.elapsed_us()
            else:
                work.append((event.time_range.start, event.time_range.end))
        elif "LaunchKernel" in event.name:
            launches += 1
    for start, end in sorted(work):
        busy += max(0.0, end - max(start, latest))
        latest = max(latest, end)
    return {"launches_count": launches, "gpu_us": busy, "copy_us": copies}


if __name__ == "__main__":
    main()
