"""Pictures and pages: the numbers survive, nothing hostile gets through, nothing is fetched."""

from __future__ import annotations

import ast
import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import networkx as nx
import numpy as np
import pytest

from hobnob.ground.errors import HobnobError
from hobnob.report import (
    Picture,
    Section,
    Tabs,
    bytes_by_part,
    convergence,
    network_map,
    style,
    weights_chart,
    write_page,
)
from hobnob.report.dots import dots

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert('&\"')</script>"
SVG = "{http://www.w3.org/2000/svg}"


def pictures() -> dict[str, Picture]:
    rng = np.random.default_rng(0)
    steps = np.arange(20)
    ring = nx.cycle_graph(8)
    weights = 10 ** rng.normal(-1, 1, 30)
    names = [HOSTILE, "cost in $", "#0072b2", "年龄", *(f"feature {i}" for i in range(26))]
    return {
        "steps": convergence({HOSTILE: (steps, 1 / (1.0 + steps))}, "steps", "loss"),
        "bytes": convergence({"a": (steps * 64, 1 / (1.0 + steps))}, "bytes", "loss", log_x=True),
        "map": network_map(ring, rng.random(8), dict.fromkeys(ring.edges, 2e6)),
        "weights": weights_chart(names, np.full(30, 0.1), weights, weights * 1.1),
        "parts": bytes_by_part({"x": 1.5e6, HOSTILE: 12.0}),
    }


def page(path: Path) -> str:
    drawn = pictures()
    against = Tabs("Against " + HOSTILE, {"steps": drawn["steps"], HOSTILE: drawn["bytes"]})
    write_page(
        path,
        title="Eight agents " + HOSTILE,
        lead="A lead " + HOSTILE,
        verdict="A verdict " + HOSTILE,
        table=[{"algorithm": HOSTILE, "loss": 2.1e-5, "samples": 384_000, HOSTILE: None}],
        sections=[
            Section("Convergence " + HOSTILE, "One.\n\nTwo " + HOSTILE, [against]),
            # The same picture twice: its ids must still differ.
            Section("The rest", "", [drawn["map"], drawn["map"], drawn["weights"], drawn["parts"]]),
        ],
        settings={"alpha": 0.01, HOSTILE: HOSTILE},
        versions={"hobnob": "0.1.0"},
        command="hobnob run " + HOSTILE,
    )
    return path.read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Every tag with its attributes, and whether what was opened was closed in order."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.tags if attribute in attrs]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(tmp_path_factory.mktemp("report") / "page.html")


def rows(picture: Picture) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(picture.csv)))


def texts(picture: Picture) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(picture.svg).iter(f"{SVG}text")]


# The room


def test_the_report_computes_nothing():
    """It knows plain data, its own files and the types of what a run hands over."""
    package = Path(style.__file__).parent
    assert {path.stem for path in package.glob("*.py")} >= {"run_page", "card", "style"}
    for path in sorted(package.rglob("*.py")):
        drawn = imported(ast.parse(path.read_text(encoding="utf-8")))
        allowed = ("hobnob.report", "hobnob.ground")
        assert all(name.startswith(allowed) for name, used in drawn if used), path.name
        types = {name for name, used in drawn if not used and not name.startswith(allowed)}
        summaries = {"hobnob.run.summary", "hobnob.run.owned.owner_summary"}
        assert types <= {*summaries, "hobnob.run.result"}, path.name


def imported(tree: ast.AST, used: bool = True) -> list[tuple[str, bool]]:
    """Modules of hobnob that a file imports, and whether it does when it runs."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, used) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide what is imported"
            bare = node.module == "hobnob"
            found += [(f"hobnob.{a.name}" if bare else node.module, used) for a in node.names]
        else:
            for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            found += imported(node, used and not for_types)
    return [(name, used) for name, used in found if name.split(".")[0] == "hobnob"]


# The page


def test_page_is_well_formed_and_accessible(text: str):
    reader = Reader(text)
    assert reader.open == []
    assert ("html", {"lang": "en"}) in reader.tags
    headings = [tag for tag, _ in reader.tags if re.fullmatch(r"h\d", tag)]
    assert headings == ["h1", "h2", "h2", "h2"]
    drawings = [attrs for tag, attrs in reader.tags if tag == "svg"]
    assert len(drawings) == 6
    assert all(d["role"] == "img" and d["aria-label"] and d["viewbox"] for d in drawings)
    labels = [attrs["for"] for tag, attrs in reader.tags if tag == "label"]
    assert set(labels) <= set(reader.values("id"))
    assert [tag for tag, _ in reader.tags].count("figcaption") == 6


def test_hostile_names_stay_text(text: str):
    reader = Reader(text)
    assert "script" not in [tag for tag, _ in reader.tags]
    assert not any(name.startswith("on") for _, attrs in reader.tags for name in attrs)
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text


def test_page_fetches_nothing(text: str):
    reader = Reader(text)
    for attribute in ("src", "href", "xlink:href", "action", "srcset", "poster"):
        assert all(value.startswith(("data:", "#")) for value in reader.values(attribute))
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", text))
    assert "@import" not in text
    assert "<!DOCTYPE svg" not in text


def test_ids_are_unique_and_references_resolve(text: str):
    reader = Reader(text)
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    used = {v[1:] for v in reader.values("xlink:href") + reader.values("href") if v[:1] == "#"}
    used |= set(re.findall(r"url\(#([^)]*)\)", text))
    assert used
    assert used <= set(ids)


def test_same_input_same_bytes(text: str, tmp_path: Path):
    assert page(tmp_path / "again.html") == text


def test_page_replaces_the_old_one_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "deep" / "page.html"
    page(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        page(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_table_numbers_are_short_and_to_the_right(text: str):
    assert '<td class="number">2.1·10⁻⁵</td>' in text
    assert '<td class="number">384,000</td>' in text
    assert '<th scope="col" class="number">loss</th>' in text


# The pictures


@pytest.mark.parametrize("name", list(pictures()))
def test_picture_saves_standalone_files(name: str, tmp_path: Path):
    picture = pictures()[name]
    svg, png, table = picture.save(tmp_path / "pictures")
    assert "var(--" not in ElementTree.tostring(ElementTree.parse(svg).getroot(), "unicode")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert table.read_text(encoding="utf-8") == picture.csv


@pytest.mark.parametrize("name", list(pictures()))
def test_picture_follows_the_page(name: str):
    picture = pictures()[name]
    assert "var(--ink, " in picture.svg
    # Every theme colour is a variable, so nothing stays light in the dark.
    styles = re.sub(r"var\([^)]*\)", "", " ".join(re.findall(r'style="([^"]*)"', picture.svg)))
    assert not any(colour in styles for colour in style.LIGHT.values())
    assert "#000000" not in styles or name == "map"  # agents' numbers stand on their own colour


def test_theme_colours_have_names_of_their_own():
    assert len(set(style.LIGHT.values())) == len(style.LIGHT)


def test_drawing_leaves_matplotlib_alone():
    before = dict(matplotlib.rcParams)
    pictures()["map"].png(50)
    assert dict(matplotlib.rcParams) == before


def test_png_and_svg_do_not_disturb_each_other():
    one, two = pictures()["weights"], pictures()["weights"]
    one.png(50)
    assert one.svg == two.svg
    assert one.png(50) == two.png(50)


def test_names_are_kept_as_text():
    drawn = texts(pictures()["weights"])
    assert {"cost in $", "#0072b2", "年龄"} <= set(drawn)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_convergence_csv_gives_back_the_numbers(dtype: type):
    rng = np.random.default_rng(1)
    x, y = np.arange(7), rng.random((3, 7)).astype(dtype)
    y[0, 2], y[1, 3] = np.nan, np.inf
    found = rows(convergence({"a": (x, y)}, "steps", "loss"))
    assert [int(row["seed"]) for row in found] == np.repeat(np.arange(3), 7).tolist()
    assert [int(row["steps"]) for row in found] == np.tile(x, 3).tolist()
    np.testing.assert_array_equal(np.array([float(row["loss"]) for row in found]), y.ravel())


def test_other_csv_give_back_the_numbers():
    rng = np.random.default_rng(2)
    before, after, best = rng.random((3, 70))
    names = [f"{i}, {HOSTILE}" for i in range(70)]
    picture = weights_chart(names, before, after, best)
    found = rows(picture)
    assert [row["feature"] for row in found] == names
    for column, values in {"before": before, "after": after, "best": best}.items():
        assert [float(row[column]) for row in found] == values.tolist()
    assert "60 of 70" in picture.caption

    star, far = nx.star_graph(4), rng.random(5)
    found = rows(network_map(star, far, {(0, 1): 10.0, (1, 0): 5.0, (3, 0): 7.0}))
    assert [float(row["value"]) for row in found] == [*far.tolist(), 15.0, 0.0, 7.0, 0.0]

    found = rows(bytes_by_part({"x": 1 / 3, "y": 5}))
    assert [(row["part"], float(row["bytes"])) for row in found] == [("y", 5), ("x", 1 / 3)]


def test_seeds_become_a_median_and_a_band():
    x, y = np.arange(5), np.array([[1.0, 2, 3, 4, 5], [2, 3, 4, 5, 6], [9, 9, 9, 9, 9]])
    many, one = (convergence({"a": (x, values)}, "steps", "loss") for values in (y, y[1]))
    assert "FillBetween" in many.svg
    assert "FillBetween" not in one.svg
    assert many.caption.startswith("Median of 3 seeds")
    ax = many.figure.axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), y[1])
    band = ax.collections[0].get_datalim(ax.transData)
    assert (band.ymin, band.ymax) == (1, 9)


def test_a_diverged_seed_is_not_left_out_of_the_median():
    y = np.array([[1.0, 1], [2, np.nan], [3, np.inf]])
    picture = convergence({"a": ([0, 1], y)}, "steps", "loss")
    np.testing.assert_array_equal(picture.figure.axes[0].lines[0].get_ydata(), [2, np.nan])
    assert "2 of 6 values are not finite" in picture.caption


def test_log_axes_with_zeros():
    y = np.array([1.0, 1e-3, 0, -1, 1e-6])
    picture = convergence(
        {"a": (np.arange(5), y)}, "steps", "gap", log_x=True, log_y=True, slope=-1
    )
    ax = picture.figure.axes[0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert "2 of 5 values are zero or less" in picture.caption
    assert "theory: slope −1" in texts(picture)
    nothing = convergence({"a": ([0], [0.0])}, "steps", "gap", log_x=True, log_y=True)
    assert nothing.figure.axes[0].get_yscale() == "linear"
    assert convergence({"a": ([1, 2], [np.nan, np.nan])}, "steps", "gap").svg


def test_slope_and_reference_are_named():
    x = np.arange(1, 100)
    curves = {"a": (x, x**-0.5)}
    picture = convergence(
        curves, "steps", "loss", log_x=True, log_y=True, slope=-0.5, reference=(0.05, "best known")
    )
    assert {"best known", "theory: slope −1/2"} <= set(texts(picture))
    line = picture.figure.axes[0].lines[-1]
    across, up = np.log(np.asarray(line.get_xdata())), np.log(np.asarray(line.get_ydata()))
    np.testing.assert_allclose(np.diff(up) / np.diff(across), -0.5)


def test_muted_curves_stand_behind_and_are_named():
    steps = np.arange(1.0, 5.0)
    curves = {name: (steps, steps**power) for power, name in enumerate(["a", "b", "c"])}
    picture = convergence(curves, "steps", "loss", muted=["c", "b"])
    lines = picture.figure.axes[0].get_lines()
    colours = [line.get_color() for line in lines]
    assert colours[:2] == [style.MUTED, style.MUTED]
    assert [line.get_label() for line in lines[2:]] == ["a", "others"]
    assert picture.caption.startswith("Grey: c, b.")
    assert {row[0] for row in csv.reader(io.StringIO(picture.csv))} >= {"a", "b", "c"}


def test_dots_mark_the_least_and_what_was_never_reached():
    never = (np.inf, 50.0, np.inf)
    panels = {
        "samples": {"one": (10.0, 9.0, 12.0), "two": (30.0, 20.0, np.inf), "three": never},
        "bytes": {"one": never, "two": never, "three": never},
    }
    picture = dots(panels, {"bytes": "B"}, name="needs", title="needs")
    samples, sent = picture.figure.axes
    assert [text.get_text() for text in samples.get_yticklabels()] == ["one", "two", "three"]
    best = [line for line in samples.get_lines() if line.get_color() == style.SERIES[1]]
    np.testing.assert_array_equal(best[0].get_xdata(), [10.0])
    np.testing.assert_array_equal(samples.get_lines()[-1].get_ydata(), [2])
    np.testing.assert_array_equal(sent.get_lines()[-1].get_ydata(), [0, 1, 2])
    assert "samples,two,30.0,20.0,inf" in picture.csv
    with pytest.raises(HobnobError, match="nothing to draw for needs"):
        dots({}, {}, name="needs", title="needs")


@pytest.mark.parametrize(
    "graph",
    [
        nx.path_graph(1),
        nx.path_graph(2),
        nx.star_graph(9),
        nx.complete_graph(12),
        nx.grid_2d_graph(4, 4, periodic=True),
        nx.connected_watts_strogatz_graph(120, 4, 0.2, seed=0),
    ],
    ids=["one", "two", "star", "complete", "torus", "small-world"],
)
def test_networks_of_every_kind(graph: nx.Graph):
    size = graph.number_of_nodes()
    picture = network_map(graph, np.linspace(0, 1, size))
    assert f"{size} agents" in picture.caption
    drawn = picture.figure.axes[0].collections[-1]
    places = np.asarray(drawn.get_offsets())
    assert len(np.unique(places.round(6), axis=0)) == size
    assert np.abs(places).max(initial=0) < 1.1


def test_star_has_its_hub_in_the_centre():
    picture = network_map(nx.star_graph(6), np.zeros(7))
    places = np.asarray(picture.figure.axes[0].collections[-1].get_offsets())
    np.testing.assert_allclose(places[0], 0, atol=1e-12)


def test_a_server_stands_in_the_middle_if_links_carried_nothing():
    ring, sent = nx.cycle_graph(4), np.array([10.0, 20, 30, 40])
    picture = network_map(ring, np.zeros(4), dict.fromkeys(ring.edges, 0.0), server=sent)
    assert "server" in texts(picture)
    assert picture.caption == (
        "4 agents, a server. All agents agree. "
        "An agent exchanged 10 B to 40 B with a server: the wider, the more."
    )
    carried = [row for row in rows(picture) if row["quantity"] == "bytes carried"]
    assert [float(row["value"]) for row in carried] == sent.tolist()
    assert {row["neighbour"] for row in carried} == {"server"}
    both = network_map(ring, np.ones(4), dict.fromkeys(ring.edges, 5.0), server=sent)
    assert "server" not in texts(both)
    assert "4 agents, 4 links." in both.caption


def test_two_thousand_agents_become_a_histogram():
    distance = 10 ** np.random.default_rng(0).uniform(-6, 0, 2000)
    picture = network_map(nx.cycle_graph(2000), distance)
    heights = [bar.get_height() for bar in picture.figure.axes[0].patches]  # pyright: ignore
    assert sum(heights) == 2000
    assert len(picture.svg) < 200_000
    assert len(rows(picture)) == 2000


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_distances_without_a_range(value: float):
    for size in (5, 400):
        assert network_map(nx.cycle_graph(size), np.full(size, value)).svg


def test_weights_axis_is_logarithmic_only_when_it_helps():
    names = list("abcd")
    wide = weights_chart(names, np.ones(4), [1e-3, 1, 2, 3])
    narrow = weights_chart(names, np.ones(4), [0.5, 1, 2, 3])
    signed = weights_chart(names, np.zeros(4), [-100, 1e-3, 2, 3])
    scales = [picture.figure.axes[0].get_xscale() for picture in (wide, narrow, signed)]
    assert scales == ["log", "linear", "linear"]


def test_bytes_have_human_units():
    assert "1.5 MB, 75 %" in texts(bytes_by_part({"x": 1.5e6, "y": 5e5}))
    assert bytes_by_part({}).caption == "Nothing was sent."


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: convergence({}, "steps", "loss"), "no curve"),
        (lambda: convergence({"a": ([1, 2], [1.0])}, "steps", "loss"), r"\(2,\).*\(1,\)"),
        (lambda: network_map(nx.cycle_graph(4), np.ones(3)), "4 agents"),
        (lambda: network_map(nx.cycle_graph(4), np.ones(4), {(0, 2): 1.0}), r"\(0, 2\)"),
        (lambda: weights_chart(["a"], [1.0], [1.0, 2.0]), "'after' has shape"),
    ],
)
def test_mismatched_input_says_what_is_wrong(draw, message: str):
    with pytest.raises(HobnobError, match=message):
        draw()


def test_ticks_and_labels():
    values = (0, 0.02, 500, -0.5, 1e-6, 2e5)
    assert [style.tick(v) for v in values] == ["0", "0.02", "500", "−0.5", "10⁻⁶", "2·10⁵"]
    assert style.shorten("a\nb\x00\tc") == "a b c"
    assert style.shorten("sensor reading number 1 of 12", 20) == "sensor readin…of 12"
