"""Pictures and pages, drawn from plain arrays, graphs and dicts. Nothing is computed here."""

from hobnob.report.bars import bytes_by_part, weights_chart
from hobnob.report.curves import convergence
from hobnob.report.maps import network_map
from hobnob.report.page import Section, Tabs, write_page
from hobnob.report.picture import Picture

__all__ = [
    "Picture",
    "Section",
    "Tabs",
    "bytes_by_part",
    "convergence",
    "network_map",
    "weights_chart",
    "write_page",
]
