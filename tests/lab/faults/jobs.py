"""The kinds of long jobs as commands of a few seconds, and their results."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ZOO = [
    "zoo", "build", "tiny-rnn", "--models", "12", "--chunk", "4", "--hidden", "4", "--digits", "1",
    "--steps", "300", "--batch-sizes", "4", "--problems", "20", "--quiet",
]  # fmt: skip
META = [
    "lopt", "train", "--task", "mlp", "--optimizer", "sgdm", "--dataset", "digits",
    "--batch-size", "4", "--steps", "40", "--pairs", "4", "--window", "4", "--horizon", "8",
    "--checkpoint-seconds", "0", "--quiet",
]  # fmt: skip
PREDICT = [
    "predict", "train", "--method", "statnn", "--seeds", "2", "--epochs", "4", "--batch-size",
    "4", "--split", "8,2,2", "--quiet",
]  # fmt: skip
JOBS = {"zoo": ZOO, "meta": META, "seeds": [*META, "--seeds", "2"], "predict": PREDICT}


class Jobs:
    """Starts commands that share one cache of compiled functions."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {
            **{k: v for k, v in os.environ.items() if k != "UNF_DATA"},
            "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parents[3] / ".jax_cache"),
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_NUM_CPU_DEVICES": "2",
        }

    def start(self, *words):
        return subprocess.Popen(
            [sys.executable, "-m", "unf.lab.cli", *map(str, words)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words):
        """Run to the end, and return what was printed on standard error."""
        process = self.start(*words)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        return errors

    def command(self, kind: str, out: Path) -> list[str]:
        """The command of a job, with its folder."""
        source = ["--zoo", str(self.folder / "zoo")] if kind == "predict" else []
        return [*JOBS[kind], *source, "--out", str(out)]

    def run_all(self, *commands):
        """Run several commands in one process, which compiles what they share only once."""
        code = "from unf.lab.cli import main; import json, sys; "
        code += "sys.exit(any(main(words) for words in json.loads(sys.argv[1])))"
        words = [sys.executable, "-c", code, json.dumps(commands)]
        done = subprocess.run(words, env=self.environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def undisturbed(self, kind: str) -> list[list[str]]:
        """The commands that make an undisturbed run, as far as they have not been run."""
        needed = ["zoo", "predict"] if kind == "predict" else [kind]
        missing = [name for name in needed if not (self.folder / name).exists()]
        return [self.command(name, self.folder / name) for name in missing]

    def reference(self, kind: str) -> Path:
        """The folder of an undisturbed run."""
        if commands := self.undisturbed(kind):
            self.run_all(*commands)
        return self.folder / kind


def begun(kind: str, out: Path) -> bool:
    """Whether something has been stored."""
    return any(out.glob("status/c/*" if kind == "zoo" else "checkpoints/step-*"))


def results(kind: str, out: Path) -> dict[str, bytes | str]:
    """The results of a job, without the time it took and where it ran."""
    if kind == "zoo":
        files = [f for f in out.rglob("*") if f.is_file() and f.name != "config.toml"]
        return {str(f.relative_to(out)): f.read_bytes() for f in files}
    if kind == "seeds":
        return {f"{i} {k}": v for i in "01" for k, v in results("meta", out / f"seed-{i}").items()}
    if kind == "meta":
        optimizer = _tensors(out / "optimizer.safetensors")
        return {"metrics": (out / "metrics.csv").read_text(), "optimizer": optimizer}
    report = json.loads((out / "result.json").read_text())
    report.pop("seconds")
    models = {file.name: _tensors(file) for file in out.glob("model-*")}
    return {"report": json.dumps(report), **models}


def _tensors(file: Path) -> bytes:
    """The bytes after the header, which has the date."""
    data = file.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]


def kill(process) -> None:
    """Kill a command and its children, as the system does when memory is short."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate(timeout=60)


def wait_until(condition, seconds=120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
