"""Maps of the network: the agents' distances from their mean, and what each link carried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from hobnob.ground.errors import HobnobError
from hobnob.report import style
from hobnob.report.picture import Picture, to_csv

MOST_DRAWN = 300  # agents; a map of more is unreadable
MOST_NAMED = 40
THIN, WIDE = 0.5, 4.5  # points, of a link that carried nothing and what the busiest adds
LABEL = "distance from the mean"

Array = NDArray[np.float64]
Carried = dict[tuple[Any, Any], float]  # link -> bytes


def network_map(
    graph: nx.Graph,
    distance: ArrayLike,
    traffic: Mapping[tuple[Any, Any], float] | None = None,
    *,
    server: ArrayLike | None = None,
    name: str = "network",
    title: str = "The agents' distances from their mean",
) -> Picture:
    """The graph, each agent coloured by `distance` [K], in the order of `graph.nodes`.

    traffic: bytes that links carried, (u, v) -> number; both directions of a link are added up.
    server: [K], bytes that each agent exchanged with a server. It is drawn in the middle if the
        links carried nothing.
    More than 300 agents are drawn as a histogram of their distances.
    """
    distance, size = np.asarray(distance), graph.number_of_nodes()
    if distance.shape != (size,) or not size:
        raise HobnobError(
            f"The distances have shape {distance.shape} and the graph has {size} agents: "
            "there must be one number per agent, and at least one agent."
        )
    links = {} if traffic is None else _links(graph, traffic)
    to_server = None if server is None else np.asarray(server, float)
    if to_server is not None and not any(links.values()):
        graph = nx.create_empty_copy(graph)  # links that nobody used are not drawn
        links = {}
    with style.theme():
        if size > MOST_DRAWN:
            drawing = style.figure(3.0)
            _draw_histogram(drawing.add_subplot(), distance)
        else:
            drawing = style.figure(3.5)
            _draw_map(drawing, graph, distance, links, to_server)
        style.settle(drawing)
    rows = [(LABEL, u, "", value) for u, value in zip(graph, distance.tolist(), strict=True)]
    rows += [("bytes carried", u, v, value) for (u, v), value in links.items()]
    if to_server is not None:
        carried = zip(graph, to_server.tolist(), strict=True)
        rows += [("bytes carried", u, "server", value) for u, value in carried]
    table = to_csv(("quantity", "agent", "neighbour", "value"), rows)
    return Picture(name, title, _caption(graph, distance, links, to_server), table, drawing)


def layout(graph: nx.Graph) -> dict[Any, Array]:
    """Positions of the agents. They depend on the graph only."""
    nodes, size = list(graph), graph.number_of_nodes()
    if not graph.number_of_edges():
        return {node: place[::-1] for node, place in nx.circular_layout(graph).items()}
    hub = max(nodes, key=lambda node: graph.degree[node])
    if size > 3 and graph.number_of_edges() == size - 1 == graph.degree[hub]:
        places = nx.shell_layout(graph, [[hub], [node for node in nodes if node != hub]])
    elif nx.is_path(graph, nodes):  # neighbours in order: ring, path, complete, exponential
        places = nx.circular_layout(graph)
    elif size <= 80 and nx.is_connected(graph):  # a better picture, but cubic in time
        places = nx.kamada_kawai_layout(graph)
    else:
        places = nx.spring_layout(graph, seed=0)
    # Swapped, the first agent of a circle is at the top and the others follow clockwise.
    return {node: places[node][::-1] for node in nodes}


def _links(graph: nx.Graph, traffic: Mapping[tuple[Any, Any], float]) -> Carried:
    unknown = [link for link in traffic if not graph.has_edge(*link)]
    if unknown:
        raise HobnobError(
            f"Traffic is given for {len(unknown)} links that the graph lacks, such as "
            f"{unknown[0]}: name agents as the graph does."
        )
    # Self-loops are left out: they carry no traffic and would count twice.
    return {
        (u, v): float(traffic.get((u, v), 0)) + float(traffic.get((v, u), 0))
        for u, v in graph.edges
        if u != v
    }


def _norm(distance: Array) -> Normalize:
    """A linear scale from zero, or a logarithmic one if distances span two decades."""
    shown = distance[np.isfinite(distance)]
    if not shown.size or shown.max() <= 0:
        return Normalize(0, 1)
    if shown.min() > 0 and shown.max() > 100 * shown.min():
        return LogNorm(shown.min(), shown.max())
    return Normalize(0, shown.max())


def _draw_map(
    drawing: Figure, graph: nx.Graph, distance: Array, links: Carried, to_server: Array | None
) -> None:
    ax = drawing.add_subplot()
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15))  # layouts lie in [-1, 1]
    places, size = layout(graph), graph.number_of_nodes()

    edges = [(u, v) for u, v in graph.edges if u != v]
    if edges:
        ends = [(places[u], places[v]) for u, v in edges]
        _draw_links(ax, ends, [links[edge] for edge in edges] if links else None)
    elif to_server is not None:
        _draw_links(ax, [(places[u], np.zeros(2)) for u in graph], to_server)
        ax.scatter(0, 0, s=900, marker="s", c=style.INK, edgecolors=style.PAPER, zorder=2)
        ax.text(0, 0, "server", color=style.PAPER, ha="center", va="center_baseline", fontsize=7)

    norm = _norm(distance)
    colours = colormaps["viridis"].resampled(48).with_extremes(bad="#8c8c8c")
    fills = colours(norm(np.ma.masked_invalid(distance)))
    xy = np.array(list(places.values()))
    area = float(np.clip(5200 / size, 24, 430))
    ax.scatter(*xy.T, s=area, c=fills, edgecolors=style.PAPER, linewidths=1.2, zorder=2)
    if size <= MOST_NAMED:
        for node, (x, y), (*rgb, _) in zip(graph, xy, fills, strict=True):
            text = "#ffffff" if np.dot(rgb, (0.3, 0.59, 0.11)) < 0.55 else "#000000"
            label = ax.text(x, y, style.shorten(node, 4), color=text, ha="center")
            label.set(va="center_baseline", fontsize=min(8.5, area**0.5 / 2))

    if not np.nan_to_num(distance).any():
        return  # one colour needs no scale
    bar = drawing.colorbar(
        ScalarMappable(norm, colours), ax=ax, label=LABEL, shrink=0.75, aspect=24, pad=0.04
    )
    bar.outline.set_visible(False)
    if bar.solids is not None:
        bar.solids.set_edgecolor("face")  # otherwise hairlines show between the colours
    if not isinstance(norm, LogNorm):
        bar.locator = MaxNLocator(5)
    bar.formatter = FuncFormatter(style.tick)
    bar.update_ticks()


def _draw_links(ax: Axes, ends: Any, carried: Sequence[float] | Array | None) -> None:
    """Lines as wide as what they carried; all of one width if that is not known."""
    crowd = min(1.0, 60 / len(ends))  # many links have to be fine and faint
    widths = np.full(len(ends), 0.6 + crowd)
    if carried is not None:
        widths = THIN + WIDE * crowd * np.asarray(carried) / (np.max(carried) or 1)
    ax.add_collection(
        LineCollection(
            ends, linewidths=widths, colors=style.MUTED, alpha=0.25 + 0.3 * crowd, zorder=1
        )
    )


def _draw_histogram(ax: Axes, distance: Array) -> None:
    shown = distance[np.isfinite(distance)]
    log = isinstance(_norm(distance), LogNorm)
    bins = np.geomspace(shown.min(), shown.max(), 41) if log else 40
    ax.hist(shown, bins=bins, color=style.SERIES[0], edgecolor=style.PAPER, linewidth=0.5)
    style.scale(ax, "x", log)
    ax.grid(visible=False, axis="x")
    ax.set(xlabel=LABEL, ylabel="agents")


def _caption(graph: nx.Graph, distance: Array, links: Carried, to_server: Array | None) -> str:
    size, count = graph.number_of_nodes(), sum(u != v for u, v in graph.edges)
    between = f"{count:,} links" if count or to_server is None else "a server"
    sentences = [f"{size:,} agents, {between}."]
    shown = np.where(np.isfinite(distance), distance, -np.inf)
    lost = int((~np.isfinite(distance)).sum())
    if lost < size and shown.max() == 0:
        sentences.append("All agents agree." if not lost else "The others agree.")
    elif lost < size and size > 1:
        far = int(shown.argmax())
        sentences.append(
            f"Agent {style.shorten(list(graph)[far])} is farthest from the mean: "
            f"{style.tick(float(f'{shown[far]:.2g}'))}."
        )
    if lost:
        sentences.append(f"{lost:,} agents hold values that are not finite.")
    if links:
        sentences.append(_carried(list(links.values()), "link", "carried"))
    if to_server is not None:
        sentences.append(_carried(to_server.tolist(), "agent", "exchanged", " with a server"))
    return " ".join(sentences)


def _carried(amounts: Sequence[float], what: str, did: str, where: str = "") -> str:
    low, high = style.amount(min(amounts)), style.amount(max(amounts))
    if low == high:
        return f"Each {what} {did} {high}{where}."
    article = "An" if what == "agent" else "A"
    return f"{article} {what} {did} {low} to {high}{where}: the wider, the more."
