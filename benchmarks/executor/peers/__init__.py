"""Other task queues and pools under the executor's loads."""
