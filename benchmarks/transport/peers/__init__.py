"""Other transports under the same rounds."""
