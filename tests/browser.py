"""Chromium for the tests of the report and of the app: a window of any width, driven by selenium.

Not by `chromium --virtual-time-budget --dump-dom`, which once in a while never ends.
"""

import shutil
from importlib.util import find_spec

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER and find_spec("selenium")),
    reason="needs Chromium and what drives it: install chromium-driver, and selenium",
)
PATIENCE = 300  # seconds: what takes one of them alone takes many on a busy machine
# /dev/shm of a container may be too small for a page.
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Window:
    """A window with a page in it; as narrow as a phone if asked to."""

    def __init__(self, address, *, width, height=900):
        self.driver = _started()
        self.driver.set_script_timeout(PATIENCE)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(address)

    def run(self, script, *arguments):
        """What a script returns."""
        return self.driver.execute_script(script, *arguments)

    def complaints(self):
        """What the console has said since it was last asked."""
        return [f"{e['level']}: {e['message']}" for e in self.driver.get_log("browser")]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.driver.quit()


def _started(again=True):
    """Chromium, with a new profile; a second one if the first does not start in time."""
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        return webdriver.Chrome(options=options, service=Service(DRIVER))
    except WebDriverException:
        if not again:
            raise
        return _started(again=False)
