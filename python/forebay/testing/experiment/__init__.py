"""An experiment in chaos: an application under requests, and faults that a seed decides.

| module | what it does |
|---|---|
| `schedule` | draws which fault comes when, from the seed alone |
| `app` | an application whose requests use all five systems |
| `ground` | the directory, the small disk, the clock and the control group of an experiment |
| `served`, `child`, `attached` | its server: started, killed and started again, or found |
| `struck` | the processes of a server, by what they are |
| `workload`, `over_http` | clients that submit, and write down what they are told |
| `processes`, `limits`, `disk`, `clock`, `proxy` | inject faults and undo them |
| `injectors` | which of them are allowed here |
| `checks` | what must be true afterwards, beside the ledger |
| `run` | puts the parts together |
| `outcome` | what came of it: the table |
"""

from __future__ import annotations
