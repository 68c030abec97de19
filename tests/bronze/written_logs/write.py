"""Writes the logs in this directory with the libraries themselves, none of which the tests need.

They were written by tensorboard 2.21, tensorboardX 2.6 and mlflow-skinny 3.17.
"""
# mypy: ignore-errors
# None of these libraries is installed where types are checked.

import os
import shutil
import sys
from pathlib import Path

OUT = Path(__file__).parent
LOSSES = [2.5, 1.25, 0.625]


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


if __name__ == "__main__":
    for name in sys.argv[1:] or ["tensorboardx", "tensorboard", "mlflow"]:
        globals()[f"write_{name}"]()
