"""The server over HTTP: who may ask, what is served, and what becomes of values sent by hand."""

import http.client
import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from typer.testing import CliRunner

from browser import PATIENCE
from fermibose.cli import app
from fermibose.errors import InputError
from fermibose.explore import serve
from fermibose.explore.serve import Settings

pytest.importorskip("marimo", reason="the app needs the extra `explore`")
from websockets.sync.client import connect  # marimo needs it, too

PATIENT = {"max_size": None, "open_timeout": PATIENCE, "ping_timeout": PATIENCE}
FORBIDDEN = [
    "/etc/passwd", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/assets/../../../../../../etc/passwd", "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/public/../../../../etc/passwd", "/public//etc/passwd", "/@file//etc/passwd",
    "/@file/../../etc/passwd", "/notebook.py", "/public/notebook.py", "/api/files/download",
    "/api/files/download?path=/etc/passwd", "/assets/..%2f..%2f..%2f..%2fetc%2fpasswd",
]  # fmt: skip


class Reader:
    """A browser without a screen: a cookie for the token, a session, its messages."""

    def __init__(self, address):
        self.base, self.token = address.split("?access_token=")
        jar = CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        with opener.open(address, timeout=PATIENCE) as answer:
            page = answer.read().decode()
        self.cookie = "; ".join(f"{cookie.name}={cookie.value}" for cookie in jar)
        self.server = re.search(r'"serverToken":\s*"([^"]+)"', page)[1]
        self.session = "s_reader"

    def get(self, path, cookie=True):
        """Status and content; the path goes out as it is written."""
        place = urllib.parse.urlsplit(self.base)
        line = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE)
        try:
            line.request("GET", path, headers={"Cookie": self.cookie} if cookie else {})
            answer = line.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            line.close()

    def post(self, path, body):
        headers = {"Content-Type": "application/json", "Cookie": self.cookie}
        headers |= {"Marimo-Session-Id": self.session, "Marimo-Server-Token": self.server}
        request = urllib.request.Request(
            self.base + path, json.dumps(body).encode(), headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@pytest.fixture(scope="module")
def reader(address):
    return Reader(address)


def test_without_the_token_nothing_is_shown(reader):
    status, content = reader.get("/", cookie=False)
    assert status == 303
    assert "serverToken" not in content
    assert reader.get("/api/status", cookie=False)[0] in (401, 403, 404)
    with pytest.raises(Exception, match=r"HTTP 40[13]|rejected"):
        connect(f"{reader.base.replace('http', 'ws')}/ws?session_id=s_thief").close()


def test_it_listens_on_the_loopback_interface_only(reader):
    table = Path("/proc/net/tcp")
    if not table.exists():
        pytest.skip("no /proc/net/tcp here to read the sockets from")
    port = f"{urllib.parse.urlsplit(reader.base).port:04X}"
    lines = table.read_text().splitlines()[1:]
    if (six := Path("/proc/net/tcp6")).exists():
        lines += six.read_text().splitlines()[1:]
    listening = [row.split()[1] for row in lines if row.split()[3] == "0A"]
    assert [place for place in listening if place.endswith(f":{port}")] == [f"0100007F:{port}"]


@pytest.mark.parametrize("path", FORBIDDEN)
def test_no_file_but_its_own_is_served(reader, path):
    status, content = reader.get(path)
    assert "root:" not in content
    assert "marimo.App" not in content
    assert status != 200 or "<!DOCTYPE html>" in content  # at most the app's own page


@pytest.mark.parametrize(
    "path", ["files/list_files", "files/file_details", "files/create", "files/delete",
             "kernel/run", "kernel/save", "kernel/read_code", "kernel/scratchpad/run"],
)  # fmt: skip
def test_readers_neither_edit_nor_run(reader, path):
    assert reader.post(f"/api/{path}", {"path": "/etc"}) >= 400


def test_values_sent_by_hand_are_refused_with_a_message(reader):
    place = f"{reader.base.replace('http', 'ws')}/ws?session_id={reader.session}"
    with connect(place, additional_headers={"Cookie": reader.cookie}, **PATIENT) as line:
        seen = Page(line)
        seen.until("rough", "final")
        for value in ("/etc/passwd", "9" * 10**6):
            body = {"objectIds": [seen.elements["text"][0]], "values": [value]}
            assert reader.post("/api/kernel/set_ui_element_value", body) == 200
            html = seen.until("rough", "fine", "final")
            while 'role="alert"' not in html:  # what was under way
                html = seen.until("rough", "fine", "final")
            told = html[html.index('role="alert"') : html.index('role="status"')]
            assert "the norm must be 2, inf or a number above 1" in told
            assert len(told) < 300
        body["values"] = ["inf"]
        reader.post("/api/kernel/set_ui_element_value", body)
        good = seen.until("rough", "fine", "final")
        while 'role="alert"' in good:
            good = seen.until("rough", "fine", "final")
        for value in (10**9, -1, "/etc/passwd", None):  # marimo itself keeps the last good value
            body = {"objectIds": [seen.elements["slider"][0]], "values": [value]}
            reader.post("/api/kernel/set_ui_element_value", body)
        html = seen.until("final")
        assert seen.number(html, "M") == pytest.approx(seen.number(good, "M"), abs=1e-3)
        assert "Traceback" not in seen.everything


class Page:
    """What the theory page shows, from the messages of its session."""

    def __init__(self, line):
        self.line, self.elements, self.everything = line, {}, ""

    def until(self, *stages):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                message = self.line.recv(timeout=1)
            except TimeoutError:
                continue
            self.everything += message
            output = str(((json.loads(message).get("data") or {}).get("output") or {}).get("data"))
            kinds = re.findall(r"<marimo-ui-element object-id='([^']+)'.*?<marimo-(\w+)", output)
            for name, kind in kinds:
                self.elements.setdefault(kind, []).append(name)
            stage = re.search(r'data-stage="(\w+)"', output)
            if stage and stage[1] in stages:
                return output
        raise AssertionError(f"no {stages} within {PATIENCE} s: {self.everything[-2000:]}")

    @staticmethod
    def number(html, name):
        return float(re.search(rf'data-name="{name}">([^<]*)<', html)[1])


def test_without_marimo_a_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "marimo", None)
    with pytest.raises(InputError, match=r"pip install 'fermibose\[explore\]'"):
        CliRunner().invoke(app, ["explore", "--no-browser"], catch_exceptions=False)


@pytest.mark.parametrize("option", ["--machine", "--rival", "--audit"])
def test_a_folder_that_was_named_must_be_there(option, monkeypatch):
    monkeypatch.setattr(serve, "serve", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(InputError, match=r"nothing is not the folder of an? .*has no \w+\.json"):
        CliRunner().invoke(app, ["explore", option, "nothing"], catch_exceptions=False)


def test_folders_of_the_demo_may_come_later(settings, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(serve, "serve", lambda given, **_: started.append(given))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["explore"], catch_exceptions=False)
    assert "run `fbm demo`" in done.output
    words = ["explore", "--machine", settings.machine, "--rival", settings.rival]
    assert "fbm demo" not in CliRunner().invoke(app, words, catch_exceptions=False).output
    assert [one.machine for one in started] == [str(tmp_path / Settings.machine), settings.machine]
    assert started[1].audit == str(tmp_path / "fbm-audit")


def test_a_port_in_use_is_refused(reader):
    port = urllib.parse.urlsplit(reader.base).port
    with pytest.raises(InputError, match=f"port {port} is in use"):
        CliRunner().invoke(
            app, ["explore", "--no-browser", "--port", str(port)], catch_exceptions=False
        )
    assert serve.free_port() != port


def test_the_notebook_to_edit_is_a_copy_that_is_kept(tmp_path):
    path = tmp_path / "new" / "mine.py"
    assert serve.copied(path).read_text() == serve.NOTEBOOK.read_text()
    head = re.search('html_head_file="(.*?)"', path.read_text())[1]
    assert "aria-valuetext" in path.with_name(head).read_text()
    path.write_text("mine")
    assert serve.copied(path).read_text() == "mine"
    with pytest.raises(InputError, match=r"\.py"):
        serve.copied(tmp_path / "notebook")


def test_settings_travel_through_the_environment(monkeypatch):
    sent = Settings(machine="a b", audit="ü")
    for name, value in sent.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.from_environment() == sent
