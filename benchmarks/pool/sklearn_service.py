"""A service whose module imports what takes a second; it stands alone because few have it."""

from __future__ import annotations

import scipy.optimize
import sklearn.ensemble

from benchmarks.services import Echo, Fresh


class FreshLearner(Fresh):
    """Is ready once scipy and scikit-learn are imported; every lease gets a new one."""

    libraries = (scipy.optimize, sklearn.ensemble)


class Learned(Echo):
    """The same, and kept from one lease to the next."""

    libraries = (scipy.optimize, sklearn.ensemble)
