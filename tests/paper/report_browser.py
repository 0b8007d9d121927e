"""What Chromium makes of a page on a screen of a given width."""

import json
import re
import shutil
import subprocess
from html import escape, unescape

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run"
HEIGHT = 844

# Chromium's windows are at least 500 pixels wide; a frame may be as narrow as a phone.
_HOST = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<style>body {{ margin: 0 }} iframe {{ border: 0; display: block }}</style>
<iframe width="{width}" height="{height}" srcdoc="{page}"></iframe><pre></pre>
<script>
window.onload = () => setTimeout(() => {{
  const page = document.querySelector("iframe").contentDocument;
  const badge = page.querySelector("td .badge");
  badge.scrollIntoView({{block: "center", behavior: "instant"}});
  const row = [badge, ...badge.closest("tr").cells];
  const report = {{
    overflow: page.documentElement.scrollWidth - {width},
    boxes: row.map((element) => element.getBoundingClientRect()),
    colour: getComputedStyle(badge).backgroundColor.match(/\\d+/g).map(Number),
    charts: page.querySelectorAll(".main-svg").length,
  }};
  document.querySelector("pre").textContent = JSON.stringify(report);
}}, 1000);
</script>
"""


def show(page, width, folder):
    """What was measured, what the console said, and the screenshot with the first badge in sight.

    overflow: pixels by which the page is wider than the screen. boxes: of the first verdict's badge
    and of all cells beside it.
    """
    host, shot = folder / "host.html", folder / f"{width}.png"
    text = _HOST.format(width=width, height=HEIGHT, page=escape(page))
    host.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, *FLAGS.split(), f"--user-data-dir={folder / 'profile'}",
         f"--window-size={max(width, 500)},{HEIGHT}", "--hide-scrollbars", f"--screenshot={shot}",
         "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", host.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    report = json.loads(unescape(re.findall("<pre>(.*)</pre>", done.stdout)[-1]))
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return report, console, shot
