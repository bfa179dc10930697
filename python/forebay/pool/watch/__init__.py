"""What happens to services: events, output, deaths, leases that are out for too long."""
