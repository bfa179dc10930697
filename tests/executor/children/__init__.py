"""Requests that submit others."""
