"""How processes of these tests tell what happens: one line of JSON an event, with its time."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

_lock = threading.Lock()


def tell(what: str, *details: Any) -> None:
    with _lock:
        print(json.dumps([what, time.time(), *details]), flush=True)
