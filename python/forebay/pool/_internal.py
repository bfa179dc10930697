"""What other packages of Forebay use of this one, and its users do not.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.pool.lend.acquire import START as START
    from forebay.pool.lend.gather import LeaseGather as LeaseGather
    from forebay.pool.lend.gather import pidfd_of as pidfd_of
    from forebay.pool.lend.home import make_default_by as make_default_by
    from forebay.pool.lend.kind import PythonKind as PythonKind
    from forebay.pool.lend.record import NEVER_BEGUN as NEVER_BEGUN
    from forebay.pool.lend.record import PythonRecord as PythonRecord
    from forebay.pool.lend.unsettled import BLAMELESS as BLAMELESS
    from forebay.pool.lend.unsettled import TRIES as TRIES
    from forebay.pool.lend.wait import THREADS as THREADS
    from forebay.pool.lend.wait import Deadline as Deadline
    from forebay.pool.service.application import MAIN_ALIAS as MAIN_ALIAS
    from forebay.pool.service.application import Application as Application
    from forebay.pool.service.application import refuse_in_template as refuse_in_template
    from forebay.pool.service.by_value import Values as Values
    from forebay.pool.service.by_value import received as received
    from forebay.pool.service.by_value import value_of as value_of
    from forebay.pool.shared.path import VARIABLE as VARIABLE
    from forebay.pool.shared.path import shared_path as shared_path
    from forebay.pool.watch.death import KEEPER_WAIT as KEEPER_WAIT
    from forebay.pool.watch.death import Told as Told
    from forebay.pool.watch.death import died_error as died_error

__getattr__, __dir__ = lazy(
    __name__,
    {
        "lend.home": ("make_default_by",),
        "lend.acquire": ("START",),
        "lend.gather": ("LeaseGather", "pidfd_of"),
        "lend.kind": ("PythonKind",),
        "lend.record": ("NEVER_BEGUN", "PythonRecord"),
        "lend.unsettled": ("BLAMELESS", "TRIES"),
        "lend.wait": ("THREADS", "Deadline"),
        "service.application": ("Application", "MAIN_ALIAS", "refuse_in_template"),
        "service.by_value": ("Values", "received", "value_of"),
        "shared.path": ("VARIABLE", "shared_path"),
        "watch.death": ("KEEPER_WAIT", "Told", "died_error"),
    },
)
