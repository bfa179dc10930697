"""The executor over HTTP, in a process of its own; see docs/concepts/gateway.md."""
