"""The description of the gateway in OpenAPI 3.1."""
