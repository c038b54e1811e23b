"""What `unf doctor` finds."""

import importlib.metadata
import json

from unf.lab.cli import main


def test_versions_devices_and_data(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("UNF_DATA", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"]["jax"] == importlib.metadata.version("jax")
    assert found["devices"][0]["kind"] == "cpu" and found["data_folder"] == str(tmp_path)
    assert found["data"]["cifar10"].startswith("missing")
    assert found["data"]["digits"].startswith("found")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "device 0: cpu" in said and "cifar10: missing (see unf data info)" in said
