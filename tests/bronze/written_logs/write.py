"""Writes the logs in this directory with the libraries themselves, none of which the tests need.

They were written by tensorboard 2.21, tensorboardX 2.6, wandb 0.31 and mlflow-skinny 3.17 (with sqlalchemy and alembic,
which its database needs). Ids and the times at which a run began are new every time; what the tests read is the same.
"""
# mypy: ignore-errors
# None of these libraries is installed where types are checked.

import gzip
import math
import os
import shutil
import sys
from pathlib import Path

OUT = Path(__file__).parent
LOSSES = [2.5, 1.25, 0.625]
STEPS, NAN_STEP = 30, 7


def write_tensorboardx() -> None:
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(OUT / "tbx")) as writer:
        for step, loss in enumerate(LOSSES):
            writer.add_scalar("train/loss", loss, step, walltime=1_700_000_000.25 + step)
            writer.add_scalar("train/samples_per_second", 100.0 + step, step, walltime=1_700_000_000.5 + step)
        writer.add_text("note", "no scalar", 3)
    (made,) = (OUT / "tbx").iterdir()
    made.rename(OUT / "tensorboardx.events")
    shutil.rmtree(OUT / "tbx")


def write_tensorboard() -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(OUT / "tb"))
    for step, loss in enumerate(LOSSES):
        value = scalar_pb("loss", loss).value[0]
        writer.add_event(Event(wall_time=1_700_000_000.25 + step, step=step, summary=Summary(value=[value])))
    writer.close()
    (made,) = (OUT / "tb").iterdir()
    made.rename(OUT / "tensorboard.events")
    shutil.rmtree(OUT / "tb")


def write_mlflow() -> None:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    mlflow.set_tracking_uri((OUT / "mlruns").as_uri())
    with mlflow.start_run():
        client = mlflow.MlflowClient()
        run_id = mlflow.active_run().info.run_id
        for step, loss in enumerate(LOSSES):
            client.log_metric(run_id, "loss", loss, timestamp=1_700_000_000_250 + step * 1000, step=step)
    (made,) = (OUT / "mlruns").glob("*/*/metrics/loss")
    made.rename(OUT / "mlflow.metric")
    shutil.rmtree(OUT / "mlruns")


def write_wandb() -> None:
    os.environ |= {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    import wandb

    settings = wandb.Settings(
        mode="offline",
        root_dir=str(OUT),
        run_id="written",
        host="host",
        username="somebody",
        program="train.py",
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    with wandb.init(project="logs", name="written", config={"batch_size": 8}, settings=settings) as run:
        for step in range(STEPS):
            numbers = {
                "loss": math.nan if step == NAN_STEP else 2.5 / (step + 1),
                "step_time": 0.25 + step / 1024,
                "samples_per_second": 32.0,
                "optimizer": {"lr": 0.001, "group": {"momentum": 0.5}},
                "_timestamp": 1_700_000_000.25 + step,
            }
            # The last step is longer than two blocks of the file, so that it has a first, a middle and a last fragment.
            run.log(numbers | ({"note": "x" * 70_000} if step == STEPS - 1 else {}))
        run.summary["best"] = 2.5 / STEPS
    (made,) = (OUT / "wandb").glob("offline-run-*/run-written.wandb")
    (OUT / "run.wandb.gz").write_bytes(gzip.compress(made.read_bytes(), mtime=0))
    shutil.rmtree(OUT / "wandb")


def write_mlflow_database() -> None:
    from mlflow import MlflowClient
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    # The store and the client themselves: `mlflow.start_run` tells the user, the directory and the git remote.
    store = f"sqlite:///{OUT / 'mlflow.db'}"
    SqlAlchemyStore(store, "s3://bucket/mlruns")
    client = MlflowClient(store)
    experiment = client.create_experiment("written", artifact_location="s3://bucket/mlruns")
    for name in ("written", "deleted"):
        run_id = client.create_run(experiment, run_name=name).info.run_id
        client.log_param(run_id, "batch_size", 8)
        for step in range(STEPS):
            numbers = {
                "loss": math.nan if step == NAN_STEP else 2.5 / (step + 1),
                "step_time": 0.25 + step / 1024,
                "samples_per_second": 32.0,
            }
            for key, value in numbers.items():
                client.log_metric(run_id, key, value, timestamp=1_700_000_000_250 + step * 1000, step=step)
        client.set_terminated(run_id)
    client.delete_run(run_id)
    (OUT / "mlflow.db.gz").write_bytes(gzip.compress((OUT / "mlflow.db").read_bytes(), mtime=0))
    (OUT / "mlflow.db").unlink()


if __name__ == "__main__":
    for name in sys.argv[1:] or ["tensorboardx", "tensorboard", "mlflow", "wandb", "mlflow_database"]:
        globals()[f"write_{name}"]()
