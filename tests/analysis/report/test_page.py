"""The page as a file: whole, closed to the outside, and made of texts that are never markup."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from gaitway.analysis.report.board import Board
from gaitway.analysis.report.folders import runs_inside
from gaitway.analysis.report.page import write_report
from gaitway.cli.main import main

EVIL = [
    '<img src=x onerror="window.hurt=1">',
    "</script><script>window.hurt=1</script>",
    "a'b\"c`d",
    "x\ny\u2028z",
    "{{data}}",
]


class Elements(HTMLParser):
    """The elements of a page and the content of its scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.scripts, self.kept = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag == "script":
            self.kept = []

    def handle_data(self, data):
        if self.kept is not None:
            self.kept.append(data)

    def handle_endtag(self, tag):
        if tag == "script":
            self.scripts.append("".join(self.kept))
            self.kept = None


def page_of(root, out, embed_mb=10.0, title="page"):
    board = Board(title, root)
    board.look(list(runs_inside(root)), inside=False)
    write_report(board, out, embed_mb, "gaitway report")
    return out.read_text()


def test_names_of_runs_metrics_and_texts_are_never_markup(make_run, tmp_path, film):
    for number, evil in enumerate(EVIL):
        folder = make_run(evil.replace("/", "_"), [1.0, 2.0], lr=evil, task=evil, seed=number, metrics={evil: 1.0})
        (folder / "media").mkdir()
        (folder / "media" / f"{evil.replace('/', '_')}.txt").write_text(evil)
        (folder / "code.json").write_text(json.dumps({"versions": {evil: evil}, "repositories": [{"name": evil}]}))
    text = page_of(tmp_path / "runs", tmp_path / "page.html", title=EVIL[1])
    page = Elements(text)
    plain = Elements(page_of(make_run("../plain/0", [1.0]).parent, tmp_path / "plain.html"))
    tags = lambda one: [tag for tag, _ in one.found if tag != "script"]  # noqa: E731
    assert tags(page) == tags(plain)
    kinds = [attributes.get("type") for tag, attributes in page.found if tag == "script"]
    assert kinds == ["text/plain"] * len(EVIL) + ["application/json", None, None]
    assert not any(name.startswith("on") for _, attributes in page.found for name in attributes)
    state = json.loads(page.scripts[len(EVIL)])["state"]
    assert {run["task"] for run in state["runs"]} == set(EVIL)
    assert {evil for evil in EVIL if evil in state["metrics"]} == set(EVIL)


def test_only_the_two_scripts_of_the_page_may_run_and_nothing_is_fetched(three_groups, tmp_path):
    text = page_of(three_groups, tmp_path / "page.html")
    page = Elements(text)
    (policy,) = [
        a["content"] for t, a in page.found if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digest = lambda script: "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"  # noqa: E731
    assert rules["script-src"].split() == [digest(script) for script in page.scripts[-2:]]
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert "unsafe" not in policy
    fetched = [value for _, a in page.found for name, value in a.items() if name in ("src", "srcset", "data", "poster")]
    assert fetched == []
    assert not [a for tag, a in page.found if tag == "link"]
    assert page.scripts[-1].count("plotly.js v") == 1
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", page.scripts[-2])


def test_films_are_in_the_page_up_to_a_size_and_linked_beyond_it(make_run, tmp_path, film):
    for seed in range(2):
        folder = make_run(f"a run #{seed}", [1.0], seed=seed)
        (folder / "videos").mkdir()
        (folder / "videos" / "100.mp4").write_bytes(film)
    (folder / "media").mkdir()
    (folder / "media" / "page.html").write_text("<script>1</script>")
    text = page_of(tmp_path / "runs", tmp_path / "page.html", embed_mb=1.5 * len(film) / 1e6)
    page = Elements(text)
    media = json.loads(page.scripts[1])["state"]["media"]
    by_kind = {(one["kind"], "link" in one): one for one in media}
    assert set(by_kind) == {("video", False), ("video", True), ("page", True)}
    assert base64.b64decode(page.scripts[0]) == film
    assert by_kind["video", True]["link"] == "runs/a%20run%20%231/videos/100.mp4"
    assert film[:60] not in text.encode()


def test_the_command_writes_a_page_of_what_a_glob_finds(three_groups, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "runs/0.*", "-o", "a.html", "--metric", "return"]) == 0
    assert "a.html: 9 runs" in capsys.readouterr().out
    assert (tmp_path / "a.html").stat().st_size > 4e6


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "runs/none"], "no run folder in runs/none"),
        (["report", "runs", "-o", "page.txt"], "page.txt is not the name of a page; write -o report.html"),
        (["report", "runs", "--metric", "eval/speed"], "no run has the metric 'eval/speed'; there are eval/return"),
        (["dash", "nowhere"], "nowhere is not a folder"),
        (["dash", "runs", "--port", "70000"], "--port 70000 is no port; use 0 to 65535"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(three_groups, tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))
