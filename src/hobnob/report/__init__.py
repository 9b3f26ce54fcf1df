"""Pictures and pages. Plain arrays, graphs and dicts go in, so no run is needed to draw."""

from .bars import bytes_by_kind, weights_chart
from .curves import convergence
from .maps import network_map
from .page import Choice, Section, write_page
from .picture import Picture

__all__ = [
    "Choice",
    "Picture",
    "Section",
    "bytes_by_kind",
    "convergence",
    "network_map",
    "weights_chart",
    "write_page",
]
