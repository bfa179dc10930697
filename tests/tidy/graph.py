"""Cycles of a directed graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

Node = TypeVar("Node")


def cycles(edges: Mapping[Node, Iterable[Node]]) -> list[set[Node]]:
    """The strongly connected components with more than one node (Tarjan, 1972)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    found: list[set[Node]] = []
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        path.append(root)
        open_nodes = {root}
        work = [(root, iter(edges.get(root, ())))]
        while work:
            node, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    open_nodes.add(other)
                    work.append((other, iter(edges.get(other, ()))))
                    break
                if other in open_nodes:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    start = path.index(node)
                    component = set(path[start:])
                    del path[start:]
                    open_nodes -= component
                    if len(component) > 1:
                        found.append(component)
    return found
