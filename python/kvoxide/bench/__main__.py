"""``python -m kvoxide.bench [LAYOUT...]`` prints the table; needs a supported vLLM."""

import sys

from kvoxide.bench.comparison import measure
from kvoxide.bench.layouts import LAYOUTS
from kvoxide.bench.traffic import Effort

for found in measure(sys.argv[1:] or list(LAYOUTS), Effort(), with_vllm=True):
    print(
        f"{found.layout:6} {found.row.key:16} {found.vllm_us:12.2f} {found.kvoxide_us:10.2f}"
        f" {found.ratio:9.1f} goal {found.goal:g}"
    )
