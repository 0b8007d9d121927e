"""The app in Chromium: mouse, keyboard, console, a phone. Oracles: ``fbm theory``, FGSM."""

import json
import re
import shlex
import time

import pytest
from typer.testing import CliRunner

from browser import PATIENCE, Window, needs_browser
from fermibose.cli import app
from fermibose.explore.machine_page import contest, course

pytest.importorskip("selenium", reason="selenium drives the browser")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

pytestmark = needs_browser

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


class Screen(Window):
    """A window with the app in it."""

    def every(self, css, text=""):
        return self.run(_ALL, css, text)

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
        return self.run(script, css)

    def press(self, element, *keys):
        self.run("arguments[0].focus()", element)
        ActionChains(self.driver).send_keys(*keys).perform()

    def settled(self, before):
        """The command that the page names, once its numbers are of another problem and final."""
        numbers = "#fbm-theory[data-stage=final] code"
        self.wait(numbers, until=lambda _: self.text(numbers) not in (None, before))
        return self.text(numbers)

    def tab(self, name):
        found = self.wait("[role=tab]", name)
        instantly = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
        self.run(instantly, found)
        found.click()


@pytest.fixture(scope="module")
def screen(address):
    with Screen(address, width=1200) as screen:
        yield screen


def check_numbers(screen, command):
    """Every number that `fbm theory` prints, as the page has it."""
    words = shlex.split(command)[1:]
    done = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "200"})
    table = dict(re.findall(r"│ (.+?)\s*│\s*(\S+)\s*│", done.output))
    script = """return [...document.querySelectorAll("#fbm-theory th[scope=row]")].map(
        (e) => [e.textContent, e.nextSibling.textContent])"""
    shown = dict(screen.run(script))
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


ROLES = {"slider", "textbox", "combobox", "switch", "tab", "button", "image"}


def test_a_screen_reader_is_told_names_and_values(screen):
    tree = screen.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    parts = [node for node in tree if node.get("role", {}).get("value") in ROLES]
    nameless = [node for node in parts if not node["name"]["value"]]
    assert [node["role"]["value"] for node in nameless] == []
    assert {node["role"]["value"] for node in parts} == ROLES
    shown = dict(re.findall(r"--(alpha|rho|delta|beta) (\S+)", screen.settled(None)))
    sliders = screen.every("[role=slider]")
    told = [slider.get_attribute("aria-valuetext") for slider in sliders]
    assert told[:4] == [shown[name] for name in ("alpha", "rho", "delta", "beta")]
    screen.press(sliders[0], Keys.ARROW_RIGHT)
    screen.wait("[role=slider]", "α:", lambda e: e.get_attribute("aria-valuetext") == "2.51")
    screen.press(sliders[0], Keys.ARROW_LEFT)


def heard(screen):
    """Each slider that is shown: its name in the accessibility tree, and the words for its value.

    The tree has its place among the steps, too; of aria-valuetext Chromium's protocol is silent.
    """
    tree = screen.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    told = {}
    for node in tree:
        if node.get("role", {}).get("value") == "slider":
            ends = {p["name"]: p["value"].get("value") for p in node["properties"]}
            assert ends["valuemin"] <= node["value"]["value"] <= ends["valuemax"]
            element = {"backendNodeId": node["backendDOMNodeId"]}
            found = screen.driver.execute_cdp_cmd("DOM.describeNode", element)["node"]["attributes"]
            words = dict(zip(found[::2], found[1::2], strict=True))
            told[node["name"]["value"]] = words.get("aria-valuetext")
    return told


SLIDERS = {
    "Machine": {"test image, 0 to 99": "70", "ε: strength of the attack": "0.1"},
    "Training": {"d_F: target of fermion pairs": "0.4", "epoch of the plane": "20"},
}


@pytest.mark.parametrize("page", SLIDERS)
def test_every_slider_has_a_name_and_a_value_for_readers(screen, page):
    screen.tab(page)
    screen.wait(f"#fbm-{page.lower()}")
    assert heard(screen) == SLIDERS[page]
    screen.tab("Theory")
    screen.wait("#fbm-theory[data-stage=final]")
    assert len(heard(screen)) == 7
    assert all(re.fullmatch(r"[\d.]+", words) for words in heard(screen).values())


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
    return dict(screen.run(script))


def test_tabs_by_keyboard_and_a_missing_audit_is_a_message(screen):
    screen.press(screen.wait("[role=tab]", "Theory"), *[Keys.ARROW_RIGHT] * 3)
    assert screen.wait("#fbm-audit", "audit").text.startswith("There is no audit in")


def test_an_audit_says_how_far_it_is_and_ends_when_the_reader_leaves(screen):
    screen.tab("Audit")
    screen.wait("button", "Quick audit").click()
    screen.wait("#fbm-audit progress")
    screen.wait("#fbm-audit [role=status]", " of 20 done, now: AutoAttack")
    screen.tab("Theory")
    screen.wait("#fbm-theory[data-stage=final]")
    screen.tab("Audit")
    screen.wait("#fbm-audit", "There is no audit in")
    time.sleep(3)  # an audit that went on would show what it is at
    assert "done, now" not in screen.text("#fbm-audit")


def test_the_console_has_no_errors_and_nothing_comes_from_elsewhere(screen, address):
    assert [said for said in screen.complaints() if said.startswith("SEVERE")] == []
    asked = set()
    for entry in screen.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    server = address.split("?")[0]
    assert asked
    assert [u for u in asked if not u.startswith((server, "data:", "blob:"))] == []


def test_a_phone_shows_all_in_one_column(address):
    with Screen(address, width=390) as phone:
        phone.wait("#fbm-theory[data-stage=final]")
        assert phone.run("return document.documentElement.scrollWidth") <= 390
        lefts = phone.run(
            "return [...document.querySelectorAll('.fbm-chart, .fbm-numbers')].map("
            "(e) => Math.round(e.getBoundingClientRect().left))"
        )
        assert len(lefts) == 6
        assert len(set(lefts)) == 1
