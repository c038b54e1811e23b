"""What `unf doctor` finds."""

import importlib.metadata
import importlib.util
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


def test_a_missing_extra_comes_with_its_remedy(capsys, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "sklearn" else real(name, *a)
    )
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "extra [zoo]: without sklearn; run: pip install" in said
    assert "extra [plots]: installed" in said
