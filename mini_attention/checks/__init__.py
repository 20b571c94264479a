"""Checks for a function or a layer of your own that name the mistake they find.

They go from the smallest input to larger ones and isolate one mechanism at a time. An answer that
is wrong is compared with those of the programs in `mini_attention.mistakes`: the program that
answers the same makes the same mistake.
"""

from .blocked import check_blocked, check_merge
from .case import CheckFailed, Report
from .cost import check_cost
from .function import check_attention
from .layer import check_multi_head
from .mask import check_mask
from .single import check_single_head

__all__ = [
    "CheckFailed",
    "Report",
    "check_attention",
    "check_blocked",
    "check_cost",
    "check_mask",
    "check_merge",
    "check_multi_head",
    "check_single_head",
]
