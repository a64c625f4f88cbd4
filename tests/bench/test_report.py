"""The report: figures in, targets and tables out."""

import xml.etree.ElementTree as ET
from pathlib import Path

from bench import report
from bench.picture import bars
from bench.results import Figure, Results, number
from bench.targets import targets


def example() -> Results:
    results = Results(missing={"arq": "uv pip: no such version"})
    for system, values in {"workron": [300.0, 100.0, 200.0], "bullmq": [100.0] * 3, "ardiq": [80.0]}.items():
        for value in values:
            results.add("drain", system, value)
    return results


def test_a_figure_is_the_median_with_its_extremes() -> None:
    figure = example().get("drain", "workron")
    assert figure is not None
    assert (figure.median, figure.spread) == (200.0, "100 – 300")


def test_a_target_compares_figures_of_the_same_run() -> None:
    by_name = {target.what: target for target in targets(example())}
    to_bullmq = by_name["drain, relative to BullMQ"]
    assert (to_bullmq.reached, to_bullmq.met) == (Figure((3.0, 1.0, 2.0)), True)
    to_python = by_name["drain, relative to the best Python peer (ardiq)"]
    assert (to_python.reached, to_python.met) == (Figure((2.5,)), False)
    assert by_name["memory per waiting job, bytes"].met is None


def test_the_report_shows_targets_systems_and_what_is_missing(tmp_path: Path) -> None:
    report.write(example(), tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| drain, relative to BullMQ | ≥ 1.5 × | 2 × | 1 – 3 | yes |" in text
    assert "| workron | 200<br>100 – 300 |" in text
    assert "| arq | uv pip: no such version |" in text


def test_results_survive_their_file(tmp_path: Path) -> None:
    example().save(tmp_path / "raw.json")
    assert Results.load(tmp_path / "raw.json") == example()


def test_the_picture_has_a_bar_for_each_system_the_longest_first() -> None:
    root = ET.fromstring(bars("a & b", [("slow", 10.0), ("fast", 1000.0)], "fast"))  # noqa: S314 - our own
    texts = [text.text for text in root.findall("{*}text")]
    assert texts == ["a & b", "fast", number(1000.0), "slow", "10"]
