"""The models that the benchmark trains: built from configuration with random weights, fed with random data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .errors import CollectorError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Workload:
    """A model on its device, one batch that is used again and again, and how a step's loss comes about."""

    model: torch.nn.Module
    loss: Callable[[torch.nn.Module], torch.Tensor]
    claims: dict[str, Any]
    # Whether DDP has to broadcast the buffers of rank 0 at every step: running means change, masks do not.
    has_running_buffers: bool = False


def build(name: str, device: torch.device, batch_size: int | None = None) -> Workload:
    """The workload of that name."""
    if name not in BUILDERS:
        raise CollectorError(f"model: expected one of {', '.join(BUILDERS)}, found {name!r}")
    maker, batch = BUILDERS[name]
    return maker(device, batch_size or batch)


def _tiny(device: torch.device, batch: int) -> Workload:
    """Four megabytes of gradients: enough for several buckets, little enough for a laptop's tests."""
    layers: list[torch.nn.Module] = []
    for _ in range(4):
        layers += [torch.nn.Linear(512, 512), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 10)).to(device)
    data = torch.randn(batch, 512, device=device)
    labels = torch.randint(10, (batch,), device=device)

    def loss(wrapped: torch.nn.Module) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(wrapped(data), labels)

    return Workload(model, loss, {"model": "tiny", "batch_size": batch})


def _resnet50(device: torch.device, batch: int) -> Workload:
    from torchvision.models import resnet50

    model = resnet50(weights=None).to(device)
    data = torch.randn(batch, 3, 224, 224, device=device)
    labels = torch.randint(1000, (batch,), device=device)

    def loss(wrapped: torch.nn.Module) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(wrapped(data), labels)

    return Workload(model, loss, {"model": "ResNet-50", "batch_size": batch}, has_running_buffers=True)


def _bert_base(device: torch.device, batch: int, length: int = 256) -> Workload:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig()
    model = BertForSequenceClassification(config).to(device)
    tokens = torch.randint(config.vocab_size, (batch, length), device=device)
    labels = torch.randint(config.num_labels, (batch,), device=device)

    def loss(wrapped: torch.nn.Module) -> torch.Tensor:
        found: torch.Tensor = wrapped(input_ids=tokens, labels=labels).loss
        return found

    return Workload(model, loss, {"model": "BERT-base", "batch_size": batch, "sequence_length": length})


def _gpt2(device: torch.device, batch: int, length: int = 256) -> Workload:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config()
    model = GPT2LMHeadModel(config).to(device)
    model.config.use_cache = False
    tokens = torch.randint(config.vocab_size, (batch, length), device=device)

    def loss(wrapped: torch.nn.Module) -> torch.Tensor:
        found: torch.Tensor = wrapped(input_ids=tokens, labels=tokens).loss
        return found

    return Workload(model, loss, {"model": "GPT-2", "batch_size": batch, "sequence_length": length})


BUILDERS: dict[str, tuple[Callable[[torch.device, int], Workload], int]] = {
    "tiny": (_tiny, 32),
    "resnet50": (_resnet50, 32),
    "bert-base": (_bert_base, 8),
    "gpt2": (_gpt2, 8),
}
