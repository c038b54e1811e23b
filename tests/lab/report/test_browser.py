"""Pages as a browser shows them: light, dark and narrow."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib.image import imread

from unf.lab import report

pytestmark = pytest.mark.nightly
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NARROW = 400
DARK, LIGHT = 0, 1  # of Blink's setting preferredColorScheme
MEASURE = """
<!doctype html><body style="margin:0"><iframe style="border:0;width:WIDTHpx;height:900px"></iframe>
<p id="said"></p><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const texts = [...page.querySelectorAll("figure text")];
  const outside = texts.filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < -1 || box.right > root.clientWidth + 1;
  });
  const small = texts.filter(text => text.getScreenCTM().a *
      parseFloat(frame.contentWindow.getComputedStyle(text).fontSize) < 9 &&
      !text.getAttribute("transform")?.includes("rotate(-90"));
  document.getElementById("said").textContent = JSON.stringify({
    wide: root.scrollWidth, seen: root.clientWidth,
    outside: outside.map(text => text.textContent), small: small.map(text => text.textContent),
  });
};
frame.srcdoc = PAGE;
</script>
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Runs Chromium without a window; returns what it writes to both outputs."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed (apt install chromium)")
    profile = tmp_path_factory.mktemp("profile")

    def run(*options):
        command = [
            found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--no-first-run", f"--user-data-dir={profile}",
            "--enable-logging=stderr", *options,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout, done.stderr

    return run


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_light_and_dark(browser, page, tmp_path, scheme):
    picture = tmp_path / "page.png"
    _, log = browser(
        "--window-size=1100,1400",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={picture}",
        page.as_uri(),
    )
    assert "CONSOLE" not in log, "the browser has nothing to complain about"
    pixels = (imread(picture)[:, :, :3] * 255).astype(int)
    ground = pixels[:, :10].mean()
    assert ground > 250 if scheme == LIGHT else ground < 40
    drawn = np.abs(pixels - pixels[0, 0]).max(axis=2) > 60
    assert 0.01 < drawn.mean() < 0.3, "text and charts, and room between them"
    assert np.sum(np.ptp(pixels[drawn], axis=1) > 80) > 500, "charts have their colors"


def test_pages_fit_narrow_windows(browser, page, comparison_file, tmp_path):
    """Also with long words, which do not widen the page."""
    record = json.loads(comparison_file.read_text())
    name = "w" * 400
    record |= {"task": name, "dataset": name, "notes": {name: {name: name}}}
    record["curves"] = {name: record["curves"]["unf"]}
    file = tmp_path / f"{'x' * 200}.json"
    file.write_text(json.dumps(record))
    for html in (page.read_text(), report.render(file)):
        found = measured(browser, html, tmp_path, NARROW)
        assert found["seen"] == NARROW and found["wide"] <= NARROW
        assert found["outside"] == [], "no words of charts are cut off"
        assert found["small"] == [], "they can be read"


def test_files_cannot_run_anything(browser, page, tmp_path):
    """Even if markup got through, the page's policy would stop it."""
    script = "<script>document.body.textContent = 'run'</script></main>"
    file = tmp_path / "page.html"
    file.write_text(page.read_text().replace("</main>", script))
    shown, log = browser("--dump-dom", file.as_uri())
    assert "<h1>several</h1>" in shown and "Content Security Policy" in log


def measured(browser, html, folder, width):
    """Sizes of a page in a frame, since windows are never narrower than 500 pixels."""
    file = folder / "measure.html"
    text = json.dumps(html).replace("</", "<\\/")
    file.write_text(MEASURE.replace("WIDTH", str(width)).replace("PAGE", text))
    shown, _ = browser(
        "--window-size=1500,1000", "--virtual-time-budget=5000", "--dump-dom", file.as_uri()
    )
    said = re.search(r'<p id="said">(.*?)</p>', shown, re.DOTALL).group(1)
    return json.loads(said.replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&"))
