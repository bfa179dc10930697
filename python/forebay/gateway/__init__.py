"""The executor over HTTP, in a process of its own; docs/concepts/gateway.md says what it does."""
