"""The app in Chromium: mouse, keyboard, console, a phone. Oracles: ``fbm theory``, FGSM."""

import json
import re
import shlex
import shutil
import time

import pytest
from typer.testing import CliRunner

from fermibose.cli import app
from fermibose.explore.machine_page import contest, course

pytest.importorskip("selenium", reason="selenium drives the browser")
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="the app is driven in Chromium: install chromium-driver"
)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PATIENCE = 90  # seconds, on a busy machine

# Elements of marimo live in shadow trees.
_ALL = """
const [css, text] = arguments, found = [], walk = (root) => {
  for (const e of root.querySelectorAll("*")) {
    const near = root === document || !e.matches("[role=slider], input") ? e : root;
    if (e.matches(css) && near.textContent.includes(text)) found.push(e);
    if (e.shadowRoot) walk(e.shadowRoot);
  }
};
walk(document); return found;"""


class Screen:
    """A window with the app in it."""

    def __init__(self, address, *, width):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS, f"--window-size={width},900"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(address)

    def every(self, css, text=""):
        return self.driver.execute_script(_ALL, css, text)

    def wait(self, css, text="", until=lambda element: True):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for element in self.every(css, text):
                if until(element):
                    return element
            time.sleep(0.02)
        page = self.driver.find_element("tag name", "body").text
        raise AssertionError(f"no {css} {text} within {PATIENCE} s on: {page[:2000]}")

    def text(self, css):
        script = "const e = document.querySelector(arguments[0]); return e && e.textContent"
        return self.driver.execute_script(script, css)

    def press(self, element, *keys):
        self.driver.execute_script("arguments[0].focus()", element)
        ActionChains(self.driver).send_keys(*keys).perform()

    def settled(self, before):
        """The command that the page names, once its numbers are of another problem and final."""
        self.wait("#fbm-theory[data-stage=final]", until=lambda _: self.command() != before)
        return self.command()

    def command(self):
        return self.text("#fbm-theory code")

    def tab(self, name):
        found = self.wait("[role=tab]", name)
        instantly = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
        self.driver.execute_script(instantly, found)
        found.click()


@pytest.fixture(scope="module")
def screen(address):
    screen = Screen(address, width=1200)
    yield screen
    screen.driver.quit()


def check_numbers(screen, command):
    """Every number that `fbm theory` prints, as the page has it."""
    words = shlex.split(command)[1:]
    done = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "200"})
    table = dict(re.findall(r"│ (.+?)\s*│\s*(\S+)\s*│", done.output))
    script = """return [...document.querySelectorAll("#fbm-theory th[scope=row]")].map(
        (e) => [e.textContent, e.nextSibling.textContent])"""
    shown = dict(screen.driver.execute_script(script))
    for label in set(shown) - {"numerical error of M, q, Q, χ, relative"}:
        assert shown[label] == table[label], label
    assert len(shown) == 15


def test_sliders_by_keyboard_and_mouse_give_the_numbers_of_the_command(screen):
    first = screen.settled(None)
    assert "--alpha 2.5" in first
    check_numbers(screen, first)
    screen.press(screen.wait("[role=slider]", "Δ:"), Keys.ARROW_RIGHT)
    second = screen.settled(first)
    assert second == first.replace("--delta 0.5", "--delta 0.55")
    check_numbers(screen, second)
    slider = screen.wait("[role=slider]", "β:")
    ActionChains(screen.driver).drag_and_drop_by_offset(slider, -60, 0).perform()
    third = screen.settled(second)
    assert float(re.search(r"--beta (\S+)", third)[1]) < 20
    check_numbers(screen, third)


def test_a_norm_that_is_none_is_a_message_above_the_last_page(screen):
    field = screen.wait("input", "norm")
    screen.press(field, Keys.END, *[Keys.BACKSPACE] * 12, "../etc", Keys.TAB)
    message = screen.wait("#fbm-theory [role=alert]", "../etc").text
    told = "the norm must be 2, inf or a number above 1, got '../etc'"
    assert message == f"{told}; what is shown is for 2"
    screen.wait("#fbm-theory[data-stage=final]", "ℓ₂")
    screen.press(field, Keys.END, *[Keys.BACKSPACE] * 12, "inf", Keys.TAB)
    screen.wait("#fbm-theory[data-stage=final]", "ℓ∞")


def test_the_mlp_is_fooled_before_the_machine(screen, settings):
    between, grid = contest(settings), "FGSM (ℓ∞)"

    def lead(image):
        machine, mlp = (course(between, name, image, grid).fooled_at for name in between.nets)
        return (1.0 if machine is None else machine) - (1.0 if mlp is None else mlp)

    right = [i for i in range(60, 81) if course(between, "MLP", i, grid).fooled_at not in (0, None)]
    image = max(right, key=lead)
    assert lead(image) > 0.015  # two steps of the slider at least
    screen.tab("Machine")
    screen.wait("#fbm-machine")
    slider = screen.wait("[role=slider]", "image")
    key = Keys.ARROW_RIGHT if image > 70 else Keys.ARROW_LEFT
    screen.press(slider, *[key] * abs(image - 70))
    screen.press(screen.wait("[role=slider]", "ε:"), Keys.HOME)
    told = f"The image is a {between.labels[image]}, ε = 0:"
    screen.wait("#fbm-fooled", told)
    assert said(screen) == {"machine": "right", "MLP": "right"}
    strength = course(between, "MLP", image, grid).fooled_at
    screen.press(screen.wait("[role=slider]", "ε:"), *[Keys.ARROW_RIGHT] * round(strength / 0.01))
    screen.wait("#fbm-fooled", f"ε = {strength:g}:")
    assert said(screen) == {"machine": "right", "MLP": "WRONG"}


def said(screen):
    script = """return [...document.querySelectorAll(".fbm-net")].map(
        (e) => [e.dataset.net, e.querySelector(".fbm-says").textContent.split(": ")[1]])"""
    return dict(screen.driver.execute_script(script))


def test_tabs_by_keyboard_and_a_missing_audit_is_a_message(screen):
    screen.press(screen.wait("[role=tab]", "Theory"), *[Keys.ARROW_RIGHT] * 3)
    assert screen.wait("#fbm-audit", "audit").text.startswith("There is no audit in")


def test_the_console_has_no_errors_and_nothing_comes_from_elsewhere(screen, address):
    severe = [e["message"] for e in screen.driver.get_log("browser") if e["level"] == "SEVERE"]
    assert severe == []
    asked = set()
    for entry in screen.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    server = address.split("?")[0]
    assert asked
    assert [u for u in asked if not u.startswith((server, "data:", "blob:"))] == []


def test_a_phone_shows_all_in_one_column(address):
    phone = Screen(address, width=390)
    try:
        phone.wait("#fbm-theory[data-stage=final]")
        script = "return document.documentElement.scrollWidth"
        assert phone.driver.execute_script(script) <= 390
        lefts = phone.driver.execute_script(
            "return [...document.querySelectorAll('.fbm-chart, .fbm-numbers')].map("
            "(e) => Math.round(e.getBoundingClientRect().left))"
        )
        assert len(lefts) == 6
        assert len(set(lefts)) == 1
    finally:
        phone.driver.quit()
