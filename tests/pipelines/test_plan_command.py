"""`teetotal plan` as a person types it."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from gold.strategy_plan import TABLE
from pipelines.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake

SMALL = ("--model", "gpt-2-xl", "--batch", "128", "--gpus", "8")


def ask(*words: str) -> Result:
    return CliRunner().invoke(main, ["plan", *words], catch_exceptions=False)


def ask_json(*words: str) -> list[dict[str, Any]]:
    done = ask(*words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_a_plan_names_ties_scenarios_and_where_the_choice_changes() -> None:
    done = ask(*SMALL)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "gpt-2-xl: 1.56 B parameters, 48 layers, 128 sequences of 1,024 tokens per step, on 8 h100-sxm"
    )
    assert any(line.startswith("cc_off: tie of ZeRO-3 (FSDP), ZeRO-2") for line in lines)
    assert any(
        "hopper_spt_cc (scenario from published constants, no interval): best is no replicas" in line for line in lines
    )
    seen = "published for whole training jobs, of other models and strategies: 1.09× to 1.48×"  # noqa: RUF001
    assert any(seen in line for line in lines)
    assert any("hopper_ppcie: the choice stays along model size and GPU count and link speed" in line for line in lines)
    assert any(line.startswith("  sw_per_hop_aesgcm: from 4 GPUs on") for line in lines)
    assert lines[-1].startswith("modelled; steps within 15.0 % of the best are a tie")


def test_all_columns_are_given_to_other_programs() -> None:
    rows = ask_json(*SMALL)
    assert list(rows[0]) == list(TABLE.column_names)
    done = ask(*SMALL, "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == len(rows)


def test_sizes_may_be_said_instead_of_a_name() -> None:
    sizes = ("--params", "1557611200", "--layers", "48", "--hidden", "1600", "--heads", "25", "--sequence", "1024")
    said = ask_json(*sizes, "--vocabulary", "50257", "--batch", "128", "--gpus", "8")
    named = ask_json(*SMALL)
    assert [{**row, "model": ""} for row in said] == [{**row, "model": ""} for row in named]
    assert said[0]["model"] == "1.56 B"


def test_strategies_and_regimes_can_be_chosen() -> None:
    rows = ask_json(*SMALL, "--zero", "0", "--zero", "3", "--strategy", "gossip", "--regime", "hopper_ppcie")
    assert {row["strategy"] for row in rows} == {"none", "ring_ddp", "zero_3", "gossip"}
    assert list(dict.fromkeys(row["regime"] for row in rows)) == ["cc_off", "hopper_ppcie"]


def test_a_bucket_cap_is_kept() -> None:
    rows = ask_json(*SMALL, "--zero", "0", "--bucket-mib", "25", "--regime", "cc_off")
    (whole,) = [row for row in rows if row["data_size"] == 8]
    assert whole["buckets_count"] == 119


def test_a_file_of_hardware_adds_a_gpu_and_a_link(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[link]]\nname = "ours"\nscope = "network"\nbytes_per_second = 5e9\nachieved_fraction = 0.9\n'
        'latency_ns = 9000\nsource = "Us"\nurl = "https://us.example/"\nevidence_class = "assumed"\n'
    )
    slow = ask_json(
        "--model", "llama-2-13b", "--batch", "256", "--gpus", "16", "--link", "ours", "--hardware", str(file)
    )
    fast = ask_json("--model", "llama-2-13b", "--batch", "256", "--gpus", "16", "--link", "infiniband-ndr")
    assert min(row["predicted_step_ns"] for row in slow if row["place_number"]) > min(
        row["predicted_step_ns"] for row in fast if row["place_number"]
    )


def test_every_cut_is_printed_where_it_is_asked_for() -> None:
    few, every = (ask(*SMALL, "--no-crossovers", *more).stdout.count(" × 1 × ") for more in ((), ("--every",)))  # noqa: RUF001
    assert every > few
    assert "where switching" not in ask(*SMALL, "--no-crossovers").stdout


def test_nothing_fits_is_said() -> None:
    done = ask("--model", "llama-3.1-405b", "--batch", "8", "--gpus", "8", "--no-crossovers")
    assert done.exit_code == 0
    assert "cc_off: nothing fits; more GPUs, a GPU with more memory or a smaller batch would" in done.stdout


def test_figures_are_written(tmp_path: Path) -> None:
    grid, scaling = tmp_path / "grid.svg", tmp_path / "scaling.svg"
    done = ask(*SMALL, "--format", "json", "--figure", str(grid), "--scaling", str(scaling))
    assert done.exit_code == 0
    assert "gpt-2-xl on 8 h100-sxm" in grid.read_text("utf-8")
    assert "gpt-2-xl on more or fewer h100-sxm" in scaling.read_text("utf-8")
    lost = ask(*SMALL, "--format", "json", "--figure", str(tmp_path / "none" / "grid.svg"))
    assert lost.exit_code == 1
    assert lost.stderr.startswith("teetotal: the figure ")
    assert lost.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "0"), "--gpus: 0: expected 1 to 4,096 GPUs"),
        (("--gpus", "5000"), "--gpus: 5000: expected 1 to 4,096 GPUs"),
        (("--gpus", "12"), "--gpus: 12 do not fill nodes of 8 (ask for whole nodes, or say --gpus-per-node)"),
        (("--gpus", "16"), "16 GPUs are several nodes: say --link with what joins them (ethernet-100g, "),
        (("--gpus-per-node", "0"), "--gpus-per-node: 0: expected at least 1"),
        (("--link", "infinibandndr"), "--link: no link 'infinibandndr' (did you mean 'infiniband-ndr'?)"),
        (
            ("--link", "pcie4", "--link", "nvlink4"),
            "--link: pcie4 and nvlink4 are both links inside of a node: name one",
        ),
        (("--model", "gpt-2-xx"), "--model: no model 'gpt-2-xx' (did you mean 'gpt-2-xl'?)"),
        (("--gpu", "h100"), "--gpu: no GPU 'h100' (did you mean 'h100-sxm'?)"),
        (("--dtype", "fp4"), "--dtype: h100-sxm has no peak for 'fp4'"),
        (("--regime", "hopper_pcie"), "--regime: no regime 'hopper_pcie' (did you mean 'hopper_ppcie'?)"),
        (("--regime", "tee_io_tdisp"), "--regime: tee_io_tdisp does not exist on h100-sxm; it has cc_off, "),
        (("--strategy", "ring"), "--strategy: no strategy 'ring' (did you mean 'ring_ddp'?)"),
        (("--utilisation", "40"), "--utilisation: 40: expected a fraction above 0 and at most 1 (for example 0.4)"),
        (("--bucket-mib", "0"), "--bucket-mib: 0: expected a size above 0 MiB"),
        (("--params", "many"), "--params: 'many': expected a number such as 1.5B, 350M or 13e9"),
        (
            ("--params", "10M"),
            "--params: 10,000,000 parameters are fewer than those of the embedding, 50,257 times 1,600",
        ),
        (("--layers", "0"), "--layers: 0: expected at least 1"),
        (("--hidden", "1601", "--heads", "25"), "--heads: 25 heads do not divide a hidden size of 1601"),
        (("--batch", "0"), "say --batch: the number of sequences per step, over all GPUs"),
        (("--batch", "-3"), "--batch: -3: expected at least 1"),
        (("--hardware", "nowhere.toml"), "--hardware: nowhere.toml: No such file or directory"),
    ],
)
def test_what_cannot_be_is_answered_with_what_was_expected(words: tuple[str, ...], said: str) -> None:
    done = ask(*SMALL, *words)
    assert done.exit_code == 2
    assert said in done.stderr.replace("Invalid value for ", "")


def test_without_a_model_its_sizes_are_asked_for() -> None:
    done = ask("--gpus", "8", "--batch", "8", "--layers", "12")
    assert done.exit_code == 2
    assert "say --model NAME, or also --params, --hidden, --sequence, --vocabulary (models: gpt-2, " in done.stderr


def test_a_batch_that_no_cut_divides_is_refused() -> None:
    odd = ("--params", "2B", "--layers", "3", "--hidden", "1025", "--sequence", "512", "--vocabulary", "1000")
    done = ask(*odd, "--batch", "5", "--gpus", "8")
    assert done.exit_code == 2
    assert "no layout of 8 GPUs divides a batch of 5 sequences over at most 3 stages" in done.stderr


def test_a_run_gives_its_model_batch_gpu_utilisation_and_cost_of_sealing(recorded_lake: Lake) -> None:
    words = ["--lake", str(recorded_lake.place), "plan", "--run", "gpt2-plain-w4", "--gpus", "4", "--format", "json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {(row["model"], row["gpu"], row["world_size"]) for row in rows} == {("gpt-2", "h200-sxm", 4)}
    measured = [row for row in rows if row["predicted_low_ns"] is not None]
    assert [(row["regime"], row["strategy"], row["is_scenario"]) for row in measured] == [
        ("sw_per_hop_aesgcm", "ring_ddp", False)
    ], "the pairs are of ring DDP on four ranks"
    assert all(row["interval_level"] <= 0.75 for row in measured), "three models support no more"
    for sentence in (
        "model gpt-2",
        "a batch of 32",
        "256 tokens per sequence",
        "kernels reach 12.",
        "sealing and opening 2.5",
    ):
        assert sentence in done.stderr


def test_what_a_run_does_not_say_is_named(recorded_lake: Lake) -> None:
    words = ["--lake", str(recorded_lake.place), "plan", "--run", "resnet50-plain-w4", "--gpus", "4"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 2
    assert "not taken from resnet50-plain-w4: layers, hidden size and vocabulary of ResNet-50" in done.stderr
    assert "not taken from resnet50-plain-w4: utilisation, because it does not say a known model" in done.stderr
    lost = CliRunner().invoke(main, ["--lake", str(recorded_lake.place), "plan", "--run", "gpt2-plain", "--gpus", "4"])
    assert lost.exit_code == 2
    assert "no run 'gpt2-plain' with gold tables (did you mean 'gpt2-plain-w4'?)" in lost.stderr
