"""Dashboard and alert rules ask for metrics and labels that a scrape has, in PromQL that parses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.sources import PROJECT
from tests.ttsweb.pages.test_metrics import fill, operator

DEPLOY = PROJECT / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
# Of Prometheus itself.
GIVEN = {"up": {"job"}}


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((DEPLOY / "grafana" / "ttsweb.json").read_text("utf-8"))
    found: list[dict[str, Any]] = dashboard["panels"]
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in alerts())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def nodes_of(expression: str) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), lambda node: found.append(node))
    return found


@pytest.fixture
def scraped(db: None) -> dict[str, set[str]]:
    """Each sample's name in a scrape, with the names of its labels."""
    fill()
    body = operator().get("/metrics").content.decode()
    found = dict(GIVEN)
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            found[sample.name] = set(sample.labels)
    return found


def test_every_metric_and_label_that_is_asked_for_is_scraped(scraped: dict[str, set[str]]) -> None:
    asked = set()
    for expression in expressions():
        nodes = nodes_of(expression)
        selectors = [node for node in nodes if isinstance(node, promql_parser.VectorSelector)]
        selectors += [
            node.vector_selector for node in nodes if isinstance(node, promql_parser.MatrixSelector)
        ]
        assert selectors, expression
        known: set[str] = set()
        for selector in selectors:
            assert selector.name in scraped, expression
            known |= scraped[selector.name]
            asked.add(selector.name)
            matched = {matcher.name for matcher in selector.matchers.matchers}
            assert matched <= scraped[selector.name], expression
        for node in nodes:
            if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
                assert set(node.modifier.labels) <= known, expression
    # What is counted is looked at.
    left = {name for name in scraped if name not in asked}
    assert left <= {"ttsweb_build_info", "ttsweb_first_audio_jobs", "ttsweb_ignored_fields_total"}


def test_each_value_of_a_label_that_is_asked_for_is_one_that_is_scraped(db: None) -> None:
    fill()
    body = operator().get("/metrics").content.decode()
    values: dict[tuple[str, str], set[str]] = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault((sample.name, label), set()).add(value)
    pattern = r"(ttsweb_\w+)\{([^}]*)\}"
    looked = 0
    for expression in expressions():
        for name, matchers in re.findall(pattern, expression):
            for label, operator_, wanted in re.findall(r'(\w+)(!?=~?)"([^"]*)"', matchers):
                names = wanted.split("|") if "~" in operator_ else [wanted]
                assert set(names) <= values[(name, label)], expression
                looked += 1
    assert looked >= 10


def test_each_rule_says_how_urgent_it_is_and_what_to_do() -> None:
    rules = alerts()
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names) >= 12
    for rule in rules:
        assert re.fullmatch("Ttsweb[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch("[0-9]+[mhd]", rule["for"])


def test_legends_and_texts_name_labels_that_their_expressions_keep() -> None:
    written = [(rule["expr"], json.dumps(rule["annotations"])) for rule in alerts()]
    for panel in panels():
        written += [(one["expr"], one["legendFormat"]) for one in panel["targets"]]
    for expression, text in written:
        kept = {
            label
            for node in nodes_of(expression)
            if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None
            for label in node.modifier.labels
        }
        named = set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text)) - {"value"}
        assert named <= kept, expression


def test_panels_do_not_overlap_and_take_the_chosen_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_the_scrape_asks_for_the_address_with_a_key() -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text("utf-8"))
    (job,) = scrape["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("ttsweb", "/metrics")
    assert job["authorization"]["type"] == "Bearer"
    assert scrape["rule_files"] == [RULES.name]


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool was found")
def test_promtool_takes_the_rules() -> None:
    run = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
